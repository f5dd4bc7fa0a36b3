"""Run unmodified training scripts under a placement on a cluster."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pesto_cli.apply import ProgramReport, run_script
from pesto_cli.cluster import Connection
from pesto_cli.data.graph import FloatArray
from pesto_cli.data.steps import StepTimes
from pesto_cli.files import PlacementFile
from pesto_cli.runtime.comparison import RealRun, check_devices_here, op_times_us
from pesto_cli.runtime.spans import busy_us, spans
from pesto_cli.runtime.verify import NOT_TRACED, verified

WARM_UP = 2
"""Number of first steps that are left out if there are more, because they are slower."""


def run_script_on(
    connection: Connection, path: Path, argv: Sequence[str], placement: PlacementFile
) -> RealRun:
    """Run a script in the client process, with its training on the cluster; see `run_script`.

    Raises:
        BadInputError: the placement is for other devices, or `run_script` raised it.
    """
    check_devices_here(
        placement,
        connection.device_names,
        "solve a profile on this machine of the script's graph (pesto export --capture)",
    )
    names = {name: connection.device_names.get(name, name) for name in placement.devices}
    connection.connect_eagerly()
    report = run_script(path, argv, placement, connection.target, names, trace=True)
    us = np.array([report.step_us[WARM_UP:] or report.step_us])
    if report.traced is None:
        return RealRun(StepTimes(us=us, losses=(), busy_us={}), NOT_TRACED)
    return real_run(report, placement, names, us, [report.traced])


def real_run(
    report: ProgramReport,
    placement: PlacementFile,
    device_names: Mapping[str, str],
    us: FloatArray,
    traced: Sequence[Any],
) -> RealRun:
    """Return the step times of a program under a placement, and the check that it was followed.

    device_names: device of the placement -> TensorFlow's full name.
    us: `[num_turns, num_in_a_row]`, times of untraced steps. traced: RunMetadata of traced steps.
    """
    meta = report.changes.changed_graph(report.meta)
    ran = [spans(each, meta.graph_def) for each in traced]
    busy = busy_us(ran[-1])
    used = {placement.devices[index] for index in placement.device}
    times = StepTimes(
        us=us,
        losses=(),
        busy_us={name: busy.get(device_names[name], 0.0) for name in sorted(used)},
    )
    verification = verified(meta, placement, report.changes, ran[-1])
    return RealRun(times, verification, op_times_us(report.changes.step, ran))
