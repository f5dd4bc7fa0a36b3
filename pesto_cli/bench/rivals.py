"""The best of several rivals on one model and machine, and pesto beside them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pesto_cli.bench.contenders import PESTO, WITHOUT_SPLITS
from pesto_cli.bench.experiment import ms_or_oom
from pesto_cli.bench.machine_variant import MachineVariant
from pesto_cli.bench.models import BenchModel
from pesto_cli.bench.record import Record
from pesto_cli.bench.runs import Effort, Job, Records

DATA_PARALLEL = ("ev-ps", "ev-ar", "horovod")
"""Data parallelism with equal parts: parameter servers, an all-reduce of plain ops, and rings."""
NUM_SEEDS = 3
"""How many seeds a policy learns with."""
# Strategies whose decisions the tables of FastT and HeteroG show.
DECIDING = (PESTO, "os-dpos", WITHOUT_SPLITS)


@dataclass(frozen=True)
class Runs:
    """The records of some contenders on one model and machine, by contender."""

    records: Mapping[str, Record]

    @property
    def bound_us(self) -> float:
        """The highest lower bound of all."""
        return max((record.bound_us for record in self.records.values()), default=0.0)

    def best(self, names: Iterable[str]) -> str | None:
        """Return the contender with the shortest step that fits into memory; None if none does."""
        fitting = [name for name in names if self.records[name].fits]
        return min(fitting, key=lambda name: self.records[name].step_us, default=None)

    def step_us(self, names: Iterable[str]) -> float | None:
        """Return the shortest step of some contenders that fits into memory, or None."""
        best = self.best(names)
        return None if best is None else self.records[best].step_us

    @property
    def rivals(self) -> list[str]:
        """The contenders other than pesto."""
        return [name for name in self.records if name != PESTO]

    def best_shown(self, names: Sequence[str]) -> str:
        """Return the shortest step in ms and its contender; OOM if none fits into memory."""
        best = self.best(names)
        if best is not None:
            return f"{ms_or_oom(self.records[best])} ({best})"
        return "OOM" if any(not self.records[name].refused for name in names) else "refused"


def runs_of(jobs: Iterable[Job], records: Records) -> Runs:
    """Return the records of the jobs of one model and machine."""
    return Runs({job.contender: records[job] for job in jobs})


def with_seeds(job: Job) -> tuple[Job, ...]:
    """Return a job for each seed of a policy; the first seed is that of `job`."""
    seeds = range(job.effort.seed, job.effort.seed + NUM_SEEDS)
    return tuple(replace(job, effort=replace(job.effort, seed=seed)) for seed in seeds)


def by_step(records: Iterable[Record]) -> list[Record]:
    """Return records with the shortest step first; OOM is the longest."""
    return sorted(records, key=lambda each: (not each.fits, each.step_us))


def median(records: Iterable[Record]) -> Record:
    """Return the record with the median step, of runs with several seeds; see `by_step`."""
    ordered = by_step(records)
    return ordered[len(ordered) // 2]


def jobs_of(
    model: BenchModel, machine: MachineVariant, names: Iterable[str], effort: Effort
) -> list[Job]:
    """Return the runs of contenders; those of `DECIDING` record their decisions.

    All may normalise each part of a batch by its own mean and variance, as do the replicas of
    TensorFlow 1 that FastT and HeteroG start from, and those of Horovod.
    """
    return [
        Job(
            model,
            name,
            machine,
            effort,
            with_decisions=name in DECIDING,
            local_batch_norm=True,
        )
        for name in names
    ]
