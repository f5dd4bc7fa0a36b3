"""What a placement promises of a step."""

from collections.abc import Mapping
from dataclasses import dataclass

from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import Schedule, sent_bytes, shortfall_bytes
from pesto_cli.diff.placements import PlacementDiff
from pesto_cli.files import PlacementFile


@dataclass(frozen=True)
class Prediction:
    """Figures of a step; None or empty where a file does not have them.

    peak_bytes: by device. sent_bytes: by link, as (src, dst), all links that carry something.
    shortfall_bytes: by device whose memory is exceeded.
    """

    step_us: float | None
    peak_bytes: Mapping[str, int]
    sent_bytes: Mapping[tuple[str, str], int] | None
    shortfall_bytes: Mapping[str, int]


# Step times that differ by a smaller share are the same.
ROUNDING = 1e-6


def promised(placed: PlacementFile) -> Prediction:
    """The figures that stand in a placement's file."""
    names, predicted = placed.devices, placed.predicted
    return Prediction(
        step_us=predicted.get("step_us", predicted.get("makespan_us")),
        peak_bytes=dict(zip(names, predicted.get("peak_bytes", []), strict=False)),
        sent_bytes=_by_link(names, predicted["sent_bytes"]) if "sent_bytes" in predicted else None,
        shortfall_bytes={},
    )


def predicted(problem: Problem, schedule: Schedule) -> Prediction:
    """The figures of a schedule."""
    names = [device.name for device in problem.machine.devices]
    short = zip(names, shortfall_bytes(problem, schedule).tolist(), strict=True)
    return Prediction(
        step_us=schedule.makespan_us + problem.machine.step_overhead_us,
        peak_bytes=dict(zip(names, schedule.peak_bytes.tolist(), strict=True)),
        sent_bytes=_by_link(names, sent_bytes(problem, schedule).tolist()),
        shortfall_bytes={name: size for name, size in short if size},
    )


def _by_link(names: list[str], sent: list[list[int]]) -> dict[tuple[str, str], int]:
    return {
        (src, dst): size
        for src, row in zip(names, sent, strict=False)
        for dst, size in zip(names, row, strict=True)
        if size
    }


def slower_by(before: Prediction, after: Prediction) -> float | None:
    """By what share of the step time the second is slower; negative if it is faster."""
    if before.step_us is None or after.step_us is None:
        return None
    if before.step_us == 0:
        return 0.0 if after.step_us == 0 else float("inf")
    return after.step_us / before.step_us - 1


@dataclass(frozen=True)
class PlacementComparison:
    """Two placements side by side.

    promised: what stands in the first one's file. before, after: of both, by a profile if there is
        one of their ops.
    work_us: by op, where a profile tells it.
    """

    changes: PlacementDiff
    promised: Prediction
    before: Prediction
    after: Prediction
    work_us: Mapping[str, float] | None = None

    @property
    def is_as_promised(self) -> bool:
        """Whether the first one takes as long as its file says, if that says anything."""
        change = slower_by(self.promised, self.before)
        return change is None or abs(change) < ROUNDING

    @property
    def slower_by(self) -> float | None:
        """Than the first one promised, or is predicted where it promised nothing."""
        since = self.before if self.promised.step_us is None else self.promised
        return slower_by(since, self.after)
