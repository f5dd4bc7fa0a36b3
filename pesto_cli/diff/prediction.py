"""Predictions of a step: those stored in placement files, and those of schedules."""

from collections.abc import Mapping
from dataclasses import dataclass

from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import Schedule, sent_bytes, shortfall_bytes
from pesto_cli.diff.placements import PlacementDiff
from pesto_cli.files import PlacementFile


@dataclass(frozen=True)
class Prediction:
    """Predicted figures of a step; None or empty if a file does not have them.

    step_us: makespan plus the machine's `step_overhead_us`.
    peak_bytes: by device.
    sent_bytes: by link, as (src, dst); links without transfers are left out.
    shortfall_bytes: by device, for devices whose memory is exceeded.
    """

    step_us: float | None
    peak_bytes: Mapping[str, int]
    sent_bytes: Mapping[tuple[str, str], int] | None
    shortfall_bytes: Mapping[str, int]


# Step times that differ by a smaller share are equal.
ROUNDING = 1e-6


def stored_prediction(placed: PlacementFile) -> Prediction:
    """Return the prediction that is stored in a placement file."""
    names, predicted = placed.devices, placed.predicted
    return Prediction(
        step_us=predicted.get("step_us", predicted.get("makespan_us")),
        peak_bytes=dict(zip(names, predicted.get("peak_bytes", []), strict=False)),
        sent_bytes=_by_link(names, predicted["sent_bytes"]) if "sent_bytes" in predicted else None,
        shortfall_bytes={},
    )


def predicted(problem: Problem, schedule: Schedule) -> Prediction:
    """Return the prediction of a schedule."""
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
    """Return the slowdown as a share of the first step time; None if a step time is unknown.

    It is negative if the second step is faster.
    """
    if before.step_us is None or after.step_us is None:
        return None
    if before.step_us == 0:
        return 0.0 if after.step_us == 0 else float("inf")
    return after.step_us / before.step_us - 1


@dataclass(frozen=True)
class PlacementComparison:
    """The comparison of two placements.

    stored: the prediction in the first placement's file.
    before, after: predictions of the two placements; by a profile, if one with their ops is given.
    work_us: op -> time on its fastest device, from the profile; None without a profile.
    """

    changes: PlacementDiff
    stored: Prediction
    before: Prediction
    after: Prediction
    work_us: Mapping[str, float] | None = None

    @property
    def is_as_stored(self) -> bool:
        """Whether the first step time equals the stored prediction; True if one is unknown."""
        change = slower_by(self.stored, self.before)
        return change is None or abs(change) < ROUNDING

    @property
    def slower_by(self) -> float | None:
        """Slowdown relative to `stored` as a share; to `before` if `stored` has no step time."""
        since = self.before if self.stored.step_us is None else self.stored
        return slower_by(since, self.after)
