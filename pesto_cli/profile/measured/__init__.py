"""Costs of the ops of a step, from measured times of the graph's nodes in some real steps.

    time of an op on a device kind = median over the steps of (sum over its nodes in a step)

A while loop is one op: its nodes and iterations are summed. The minimum over the steps would vary
less on a CPU, where every disturbance makes an op longer. But the profile has to predict a typical
step, and the sum of the minima is 5 % below its time.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from pesto_cli.data.graph import BoolArray, FloatArray
from pesto_cli.files.profile import Spread
from pesto_cli.profile.measured.affinity import affinity_notes, measured_affinity
from pesto_cli.profile.measured.attributed import HOST_THREAD, attribute
from pesto_cli.profile.measured.copies import TimedTransfer, copy_notes
from pesto_cli.profile.measured.coverage import check, coverage, coverage_notes
from pesto_cli.profile.measured.sizes import measured_sizes, size_notes
from pesto_cli.profile.source import CostRequest, Costs

__all__ = ["HOST_THREAD", "Measured", "TimedTransfer", "costs"]


@dataclass(frozen=True, eq=False)
class Measured:
    """Measured times and sizes of the nodes of a graph in `num_steps` steps.

    us: (node, place) -> `[num_steps]`, time of the node in each step, all iterations of a loop
        together, NaN if it did not run. Node names are those that TensorFlow used at run time.
        Sends and receives are not nodes; they are transfers. A place is a device kind of the
        machine, or a device type of TensorFlow (`CPU`, `GPU`), or HOST_THREAD.
    output_bytes: node -> output number -> the largest measured size in bytes.
    transfers: timed copies between devices.
    device: node -> the device that it last ran on, as TensorFlow names it.
    """

    num_steps: int
    us: Mapping[tuple[str, str], FloatArray]
    output_bytes: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    transfers: tuple[TimedTransfer, ...] = ()
    device: Mapping[str, str] = field(default_factory=dict)


def costs(measured: Measured, request: CostRequest, what: str = "the trace") -> Costs:
    """Return the costs of the ops of a step from a measurement; an op that never ran takes 0 us.

    `what` is the name of the measurement in error messages.

    Raises:
        BadInputError: the measurement is of another graph, or of devices that the machine lacks.
    """
    found = attribute(measured.us, measured.num_steps, request)
    covered = coverage(found, request)
    check(covered, found, what)
    where = measured_affinity(found, request, what)
    tables: dict[str, dict[str, FloatArray]] = {name: {} for name in ("time", *_STATISTICS)}
    for kind, may_run in where.may_run.items():
        rows = may_run & found.has_run
        us = found.us.get(where.place_of[kind], found.total_us)
        us = np.where(where.in_pieces[:, None], found.total_us, us)[rows]
        time_us = _column(rows, us, np.nanmedian)
        tables["time"][kind] = np.where(may_run & ~rows, 0.0, time_us)
        for name, statistic in _STATISTICS.items():
            tables[name][kind] = _column(rows, us, statistic)
    return Costs(
        tables["time"],
        tensor_bytes=measured_sizes(measured.output_bytes, request),
        num_runs=measured.num_steps,
        notes=(
            *coverage_notes(covered, found, request),
            *affinity_notes(where, found, request),
            *size_notes(measured.output_bytes, request),
            *copy_notes(measured.transfers, request.machine),
        ),
        spread=Spread(found.num_runs, *(tables[name] for name in _STATISTICS)),
        coverage=covered,
    )


_STATISTICS: Mapping[str, Callable[..., FloatArray]] = {
    "min": np.nanmin,
    "mean": np.nanmean,
    "std": np.nanstd,
}


def _column(rows: BoolArray, us: FloatArray, statistic: Callable[..., FloatArray]) -> FloatArray:
    """`[num_ops]`: a statistic of `us` for the ops where `rows` is true, NaN for the others."""
    column = np.full(len(rows), np.nan)
    if rows.any():
        column[rows] = statistic(us, axis=1)
    return column
