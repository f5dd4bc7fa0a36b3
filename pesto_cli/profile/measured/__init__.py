"""What was seen of the nodes of a graph over some real steps, and what the ops of a step cost then.

    time of an op on a kind of device = median over the steps of (sum over its nodes in a step)

A while loop is one op, whose nodes and iterations are summed. The minimum is steadier on a CPU,
where whatever disturbs an op makes it longer; but what is to be predicted is a step as it usually
is, and the sum of the minima is 5 % short of it.
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
    """The nodes of a graph over `num_steps` steps.

    us: (node, place) -> `[num_steps]`, what the node took in each step, all iterations of a loop
        together, NaN where it did not run. A node has the name that TensorFlow gave it when it
        ran. Sends and receives are no nodes, but transfers. A place is a device kind of the
        machine, or a device type of TensorFlow (`CPU`, `GPU`), or HOST_THREAD.
    output_bytes: node -> number of an output -> the most bytes that it had.
    transfers: what was copied between devices, where it was timed.
    device: node -> the device that it ran on last, as TensorFlow names it.
    """

    num_steps: int
    us: Mapping[tuple[str, str], FloatArray]
    output_bytes: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    transfers: tuple[TimedTransfer, ...] = ()
    device: Mapping[str, str] = field(default_factory=dict)


def costs(measured: Measured, request: CostRequest, what: str = "the trace") -> Costs:
    """Return what the ops of a step cost by a measurement; an op that never ran takes no time.

    `what` names the measurement in errors.

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
    """`[num_ops]`: a statistic of each of some rows, NaN in the others."""
    column = np.full(len(rows), np.nan)
    if rows.any():
        column[rows] = statistic(us, axis=1)
    return column
