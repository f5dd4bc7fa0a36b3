"""Measured step times, compared with predictions, as a table and as JSON values."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pesto_cli.data.steps import StepTimes, speed_up
from pesto_cli.report.layouts import Layouts, layouts
from pesto_cli.report.times import TimeScale

# A device may be busy for this share of the median step: steps differ by some per cent.
MOST_BUSY = 1.05


@dataclass(frozen=True, eq=False)
class RunRow:
    """A graph that ran. predicted_us: the predicted step time; None if there is no prediction."""

    name: str
    times: StepTimes
    predicted_us: float | None = None

    @property
    def error(self) -> float | None:
        """The error of the prediction as a share of the measured time, above 0 if it is too long.

        None if there is no prediction.
        """
        return None if self.predicted_us is None else self.predicted_us / self.times.median_us - 1


def runs_table(title: str, rows: Sequence[RunRow]) -> Layouts:
    """Return a table of medians, spreads, predictions, and speed-ups over the first row."""
    scale = TimeScale.of(row.times.min_us for row in rows)
    is_predicted = any(row.predicted_us is not None for row in rows)
    columns = ["run", f"step {scale.unit}", f"middle half {scale.unit}", f"min {scale.unit}"]
    columns += [f"predicted {scale.unit}", "error"] if is_predicted else []
    columns += [f"times {rows[0].name}", "95 %"] if len(rows) > 1 else []
    columns += [f"busy {device}" for device in rows[0].times.busy_us]
    columns += ["loss"] if any(row.times.losses for row in rows) else []
    lines = [_line(row, rows[0], scale, is_predicted, len(rows) > 1) for row in rows]
    return layouts(title, columns, lines)


def _line(
    row: RunRow, first: RunRow, scale: TimeScale, is_predicted: bool, is_compared: bool
) -> list[str]:
    times = row.times
    cells = [row.name, scale.text(times.median_us)]
    cells += [" - ".join(map(scale.text, times.quartiles_us)), scale.text(times.min_us)]
    if is_predicted:
        cells.append("" if row.predicted_us is None else scale.text(row.predicted_us))
        cells.append("" if row.error is None else f"{row.error:+.1%}")
    if is_compared:
        faster = speed_up(first.times, times)
        interval = f"{faster.low:.3f} - {faster.high:.3f}" if len(times.us) > 1 else ""
        cells += [f"{faster.times:.3f}", interval]
    cells += [f"{busy / times.median_us:.0%}" for busy in times.busy_us.values()]
    if times.losses:
        cells.append(f"{times.losses[0]:.4g} -> {times.losses[-1]:.4g}")
    return cells


def busy_note(rows: Sequence[RunRow]) -> str:
    """Return an explanation if a device was busy for more than a step, else an empty text."""
    busy = [us / row.times.median_us for row in rows for us in row.times.busy_us.values()]
    if max(busy, default=0.0) <= MOST_BUSY:
        return ""
    return (
        "busy is the sum of the op times of one more step, which was traced, as a share of the "
        "median step. It is above 100 % if a device ran several ops at once (which happens "
        "without a placement), or if the traced step was slower than the others."
    )


def runs_json(rows: Sequence[RunRow]) -> list[dict[str, Any]]:
    """Return all figures as JSON values, including the time of every step."""
    return [_json(row, rows[0]) for row in rows]


def _json(row: RunRow, first: RunRow) -> dict[str, Any]:
    times = row.times
    record: dict[str, Any] = {
        "name": row.name,
        "median_us": times.median_us,
        "quartiles_us": list(times.quartiles_us),
        "min_us": times.min_us,
        "predicted_us": row.predicted_us,
        "error": row.error,
        "busy_us": dict(times.busy_us),
        "losses": list(times.losses),
        "steps_us": times.us.tolist(),
    }
    if row is not first:
        faster = asdict(speed_up(first.times, times))
        if len(times.us) == 1:  # there is no interval
            faster |= {"low": None, "high": None}
        record[f"speed_up_over_{first.name}"] = faster
    return record
