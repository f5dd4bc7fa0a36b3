"""The runs of Spotlight's evaluation: models, machines, rivals, and policies with several seeds."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pesto_cli.bench.contenders import PESTO
from pesto_cli.bench.machine_variant import MachineVariant
from pesto_cli.bench.models import BenchModel
from pesto_cli.bench.record import Record
from pesto_cli.bench.rivals import median, with_seeds
from pesto_cli.bench.runs import Effort, Job, Records

SERVER = "k80x4-pcie"
SPOTLIGHT, GRL, TOWERS = "spotlight", "grl", "ev-ps"
RIVALS = ("single", "expert", "metis")
POLICIES = (GRL, SPOTLIGHT)
# The paper's RNNLM has four LSTM layers, and its NMT eight layers in all. Mirhoseini et al. (ICML
# '17), its rival, place an Inception-v3.
MODELS = ("RNNLM-4-2048", "NMT-4-1024", "Inception-v3", "CIFAR-10")
CIFAR = MODELS[-1:]


@dataclass(frozen=True)
class Found:
    """The records of one model on one machine, by contender; policies have one for each seed."""

    records: Mapping[str, Sequence[Record]]

    def median(self, name: str) -> Record:
        """Return the record of a contender with the median step."""
        return median(self.records[name])

    def step_us(self, name: str) -> float | None:
        """Return the median step; None if it does not fit into memory."""
        record = self.median(name)
        return record.step_us if record.fits else None

    def ratio(self, name: str, other: str) -> float | None:
        """Return 1 - step of `name` / step of `other`; None if one does not fit into memory."""
        own_us, other_us = self.step_us(name), self.step_us(other)
        return None if own_us is None or other_us is None else 1 - own_us / other_us

    def is_shorter(self, name: str, other: str) -> bool:
        """Whether the step is shorter, or only the other one does not fit into memory."""
        own_us, other_us = self.step_us(name), self.step_us(other)
        return own_us is not None and (other_us is None or own_us < other_us)

    @property
    def bound_us(self) -> float:
        """The highest lower bound for whole ops."""
        every = (each for name in self.records if name != TOWERS for each in self.records[name])
        return max(each.bound_us for each in every)


def machine(num_gpus: int) -> MachineVariant:
    """Return the paper's machine with some of its GPUs."""
    return MachineVariant(preset=SERVER, num_gpus=num_gpus)


def jobs_of(
    model: BenchModel, num_gpus: int, effort: Effort, names: Iterable[str]
) -> Iterator[tuple[str, Job]]:
    """Yield the runs of contenders, with their names; those of a policy differ in their seeds.

    Ops stay whole, except in the towers: each is a replica of the model on one GPU.
    """
    for name in names:
        job = Job(
            model,
            name,
            machine(num_gpus),
            effort,
            with_timeline=True,
            max_parts=None if name == TOWERS else 1,
        )
        for each in with_seeds(job) if name in POLICIES else (job,):
            yield name, each


def found(jobs: Iterable[tuple[str, Job]], records: Records) -> Found:
    """Return the records of the runs of one model and machine."""
    of: dict[str, list[Record]] = {}
    for name, job in jobs:
        of.setdefault(name, []).append(records[job])
    return Found(of)


NAMES = (*RIVALS, *POLICIES, PESTO)
