"""The tables of the results: errors, regrets and causes."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import combinations

import numpy as np

from benchmarks.fidelity.causes import Causes
from benchmarks.fidelity.placements import OWN
from pesto_cli.data.graph import FloatArray

# If two measured steps differ by less than this, their ranking is not significant.
TELLING = 0.05
# The number of op types of a table.
NUM_TYPES = 15


@dataclass(frozen=True)
class Row:
    """The result of one placement of one model.

    explained: the sum of op times as a share of the untraced step on one device.
    measured_ms: median over the steps; low_ms and high_ms are the quartiles.
    quiet_ms: median over the quiet steps, NaN without any; num_quiet: their number.
    steps_ms, probes_ms: time of each step, and of the slower one of the probes before and after it.
    times: speed-up relative to the better of single and expert, with its 95 % interval.
    by_type: kind of op and op type -> ms of these ops in the schedule, and in traced steps.
    """

    model: str
    num_ops: int
    explained: float
    op_overhead_us: float
    placement: str
    transfers: int
    transferred_mb: float
    predicted_ms: float
    measured_ms: float
    quiet_ms: float
    num_quiet: int
    steps_ms: tuple[float, ...]
    probes_ms: tuple[float, ...]
    low_ms: float
    high_ms: float
    min_ms: float
    times: float
    times_low: float
    times_high: float
    departures: int
    causes: Causes
    by_type: Mapping[str, tuple[float, float]]

    @property
    def error(self) -> float:
        """Relative error of the prediction; positive if the prediction is too long."""
        return self.predicted_ms / self.measured_ms - 1

    @property
    def quiet_error(self) -> float:
        """The error relative to the quiet steps; NaN without any."""
        return self.predicted_ms / self.quiet_ms - 1


def markdown(rows: Sequence[Row]) -> str:
    """Return the table, with one line for each placement."""
    columns = ["model", "ops", "explained", "placement", "sent", "predicted", "measured"]
    columns += ["middle half", "error", "quiet", "error", "times by hand", "95 %"]
    lines = [f"| {' | '.join(columns)} |", f"|---|--:|--:|---|{'--:|' * 9}"]
    for row in rows:
        cells = [
            row.model,
            f"{row.num_ops:,}",
            f"{row.explained:.1%}",
            row.placement,
            f"{row.transfers} of {row.transferred_mb:.1f} MB",
            f"{row.predicted_ms:.1f}",
            f"{row.measured_ms:.1f}",
            f"{row.low_ms:.1f} - {row.high_ms:.1f}",
            f"{row.error:+.1%}",
            f"{row.quiet_ms:.1f}",
            f"{row.quiet_error:+.1%}",
            f"{row.times:.2f}",
            f"{row.times_low:.2f} - {row.times_high:.2f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def in_quiet_steps(rows: Sequence[Row]) -> list[Row]:
    """Return the rows with the times of quiet steps as the measured ones.

    A model is left out if a placement of it has no quiet step.
    """
    noisy = {row.model for row in rows if not row.num_quiet}
    return [replace(row, measured_ms=row.quiet_ms) for row in rows if row.model not in noisy]


def summary(rows: Sequence[Row]) -> Iterator[str]:
    """Yield lines with the mean and worst errors, and the number of correctly ranked pairs."""
    num_quiet = sum(row.num_quiet for row in rows)
    yield f"{num_quiet / sum(len(row.steps_ms) for row in rows):.0%} of the steps are quiet"
    for steps, measured in (("all steps", rows), ("quiet steps", in_quiet_steps(rows))):
        yield f"errors of {steps}: {'; '.join(mean_and_worst(measured))}"
        yield from ranking(steps, measured)


def ranking(steps: str, rows: Sequence[Row]) -> Iterator[str]:
    """Yield how many pairs of placements of a model are ranked right, and the wrong ones."""
    telling = [
        (one, other)
        for one, other in combinations(rows, 2)
        if one.model == other.model
        and abs(math.log(one.measured_ms / other.measured_ms)) > math.log(1 + TELLING)
    ]
    wrong = [
        (one, other)
        for one, other in telling
        if (one.measured_ms < other.measured_ms) != (one.predicted_ms < other.predicted_ms)
    ]
    yield (
        f"ranking of {steps}: right in {len(telling) - len(wrong)} of {len(telling)} pairs that "
        f"measure more than {TELLING:.0%} apart"
    )
    for one, other in wrong:
        yield f"  wrong: {one.model}, {one.placement} and {other.placement}"


def mean_and_worst(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the mean and worst absolute errors: by hand, and of pesto's own placements."""
    groups = {row.placement: row.placement if row.placement in OWN else "by hand" for row in rows}
    for group in dict.fromkeys(groups.values()):
        found = [row for row in rows if groups[row.placement] == group]
        worst = max(found, key=lambda row: abs(row.error))
        mean = np.mean([abs(row.error) for row in found])
        yield f"{group} {mean:.1%}, worst {worst.error:+.1%} ({worst.model})"


def errors_without_single(rows: Sequence[Row], placement: str) -> dict[str, float]:
    """Return the absolute error of a placement of each model, by name of the model.

    The error is that of the ratio of its step and the step on one device, which ran by turns.
    """
    single = {row.model: 1 + row.error for row in rows if row.placement == "single"}
    return {
        row.model: abs((1 + row.error) / single[row.model] - 1)
        for row in rows
        if row.placement == placement
    }


def regrets(rows: Sequence[Row], placement: str) -> dict[str, float]:
    """Return the regret of a placement of each model, by name of the model.

    The regret is the measured step divided by the shortest measured step of all placements of the
    model, minus 1.
    """
    best_ms: dict[str, float] = {}
    for row in rows:
        best_ms[row.model] = min(row.measured_ms, best_ms.get(row.model, math.inf))
    return {
        row.model: row.measured_ms / best_ms[row.model] - 1
        for row in rows
        if row.placement == placement
    }


def table_by_model(
    title: str,
    of: Callable[[Sequence[Row], str], Mapping[str, float]],
    rows: Sequence[Row],
) -> Iterator[str]:
    """Yield the lines of a table of a figure of pesto's own placements, and of its means."""
    found = [of(rows, placement) for placement in OWN]
    yield f"| {title} | {' | '.join(OWN)} |"
    yield f"|---|{'--:|' * len(OWN)}"
    for model in found[0]:
        yield f"| {model} | {' | '.join(f'{values[model]:.1%}' for values in found)} |"
    means = [float(np.mean([*values.values()])) for values in found]
    yield f"| mean | {' | '.join(f'{mean:.1%}' for mean in means)} |"


def table_of_causes(rows: Sequence[Row], placement: str) -> Iterator[str]:
    """Yield the lines of the table of causes of one placement of each model, and of the means."""
    names = [field.name for field in fields(Causes)]
    found = {
        row.model: [row.error, *(getattr(row.causes, name) for name in names)]
        for row in rows
        if row.placement == placement
    }
    yield f"| {placement} | error | {' | '.join(name.replace('_', ' ') for name in names)} |"
    yield f"|---|{'--:|' * (1 + len(names))}"
    for model, values in found.items():
        yield f"| {model} | {' | '.join(map(_signed, values))} |"
    known = [np.array(column)[~np.isnan(column)] for column in zip(*found.values(), strict=True)]
    means = [float(column.mean()) if len(column) else math.nan for column in known]
    yield f"| *mean* | {' | '.join(map(_signed, means))} |"


def table_by_type(rows: Sequence[Row], placement: str) -> Iterator[str]:
    """Yield the lines of a table of the op types whose times are predicted worst.

    The times are sums over all models.
    """
    total = defaultdict[str, FloatArray](lambda: np.zeros(2))
    for row in rows:
        if row.placement == placement:
            for op_type, times_ms in row.by_type.items():
                total[op_type] += times_ms
    worst = sorted(total, key=lambda each: -abs(total[each][1] - total[each][0]))
    yield f"| ops, {placement} | predicted, ms | measured, ms | error |"
    yield "|---|--:|--:|--:|"
    for op_type in worst[:NUM_TYPES]:
        predicted_ms, measured_ms = total[op_type].tolist()
        error = _signed(predicted_ms / measured_ms - 1)
        yield f"| {op_type} | {predicted_ms:.1f} | {measured_ms:.1f} | {error} |"


def _signed(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:+.1%}"
