"""How pesto stands among its rivals on one model and machine."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pesto_cli.bench.contenders import BAECHI, BASELINES, PESTO, TUNED
from pesto_cli.bench.record import Record


@dataclass(frozen=True)
class Best:
    """The shortest step of some contenders."""

    contender: str
    step_us: float


@dataclass(frozen=True)
class ModelComparison:
    """What everyone found. records: by contender."""

    records: Mapping[str, Record]

    @property
    def bound_us(self) -> float:
        """The highest lower bound that any of them proved."""
        return max(record.bound_us for record in self.records.values())

    def best(self, names: Iterable[str]) -> Best | None:
        """Of those that fit into memory; none if none does."""
        fitting = [name for name in names if self.records[name].fits]
        if not fitting:
            return None
        first = min(fitting, key=lambda name: self.records[name].step_us)
        return Best(first, self.records[first].step_us)

    @property
    def baechi(self) -> Best | None:
        """The best of Baechi's three by their recipes."""
        return self.best(BAECHI)

    @property
    def baseline(self) -> Best | None:
        """The best rival, each by its recipe."""
        return self.best(BASELINES)

    @property
    def tuned_baseline(self) -> Best | None:
        """The best rival in any setting, picked by what is compared: `num_settings()` of them."""
        return self.best((*BASELINES, *tuned_names()))

    def reduction(self, other: Best | None, ours: str = PESTO) -> float | None:
        """By which share of the other's step time ours is shorter; none if one does not fit."""
        own = self.best([ours])
        return None if own is None or other is None else 1 - own.step_us / other.step_us

    def share_closed(self, other: Best | None, ours: str = PESTO) -> float | None:
        """What pesto closes of the gap between another and the lower bound.

        None if one does not fit, or if there is no gap.
        """
        own = self.best([ours])
        if own is None or other is None or other.step_us <= self.bound_us:
            return None
        return (other.step_us - own.step_us) / (other.step_us - self.bound_us)


# A model's comparison, by its name.
ModelComparisons = Mapping[str, ModelComparison]


def tuned_names() -> list[str]:
    """Contenders that are a rival in a setting of its own."""
    return [name for names in TUNED.values() for name in names]


def num_settings() -> int:
    """How many settings of rivals the best is picked of."""
    return len(BASELINES) - len(TUNED) + len(tuned_names())


def mean(values: Iterable[float | None]) -> float | None:
    """Of those that there are."""
    there = [value for value in values if value is not None]
    return sum(there) / len(there) if there else None
