"""Run unmodified training scripts under a placement on a cluster."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pesto_cli.apply import run_script
from pesto_cli.cluster import Connection
from pesto_cli.data.steps import StepTimes
from pesto_cli.files import PlacementFile
from pesto_cli.runtime.comparison import RealRun, check_devices_here
from pesto_cli.runtime.spans import busy_us, spans
from pesto_cli.runtime.verify import verified

WARM_UP = 2
"""Number of first steps that are left out if there are more, because they are slower."""


def run_script_on(
    connection: Connection, path: Path, argv: Sequence[str], placement: PlacementFile
) -> RealRun:
    """Run a script in the client process, with its sessions on the cluster; see `run_script`.

    Raises:
        BadInputError: the placement is for other devices, or `run_script` raised it.
    """
    check_devices_here(
        placement,
        connection.device_names,
        "solve a profile on this machine of the script's graph (pesto export --capture)",
    )
    names = {name: connection.device_names.get(name, name) for name in placement.devices}
    report = run_script(path, argv, placement, connection.target, names, trace=True)
    meta = report.meta if report.changes.split is None else report.changes.split
    ran = spans(report.traced, meta.graph_def)
    busy = busy_us(ran)
    step_us = report.step_us[WARM_UP:] or report.step_us
    used = {placement.devices[index] for index in placement.device}
    times = StepTimes(
        us=np.array([step_us]),
        losses=(),
        busy_us={name: busy.get(names[name], 0.0) for name in sorted(used)},
    )
    return RealRun(times, verified(meta, placement, report.changes, ran))
