"""What an experiment is request, and what it answers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pesto_cli.bench.machine_variant import MachineVariant
from pesto_cli.bench.models import BenchModel
from pesto_cli.bench.record import Record
from pesto_cli.bench.runs import Effort, Job, Records

if TYPE_CHECKING:
    import altair as alt


@dataclass(frozen=True)
class ExperimentRequest:
    """memory_gib: sizes of the GPUs' memory; experiments of one size take the first."""

    models: tuple[BenchModel, ...]
    memory_gib: tuple[float, ...]
    effort: Effort

    @property
    def first(self) -> MachineVariant:
        """The machine of experiments that need one size of memory."""
        return MachineVariant(memory_gib=self.memory_gib[0])


@dataclass(frozen=True, eq=False)
class Report:
    """data: for JSON. text: Markdown. charts: by what their file's name ends in, empty for one."""

    data: Any
    text: str
    charts: Mapping[str, "alt.TopLevelMixin"] = field(default_factory=dict)


@dataclass(frozen=True)
class Experiment:
    """An experiment of a paper.

    models: the names of those it is about. jobs: the runs it needs. report: made of their records.
    """

    title: str
    models: tuple[str, ...]
    jobs: Callable[[ExperimentRequest], list[Job]]
    report: Callable[[ExperimentRequest, Records], Report]


def ms_or_oom(record: Record) -> str:
    """A step time in ms; that of a schedule that does not fit in brackets."""
    if record.refused:
        return "refused"
    return ms(record.step_us) if record.fits else f"OOM ({ms(record.step_us)})"


def ms(time_us: float) -> str:
    """A time in ms with a decimal, or with three digits if it is short."""
    return f"{time_us / 1e3:.1f}" if time_us >= 1e5 else f"{time_us / 1e3:#.3g}"


def percent(share: float | None, missing: str = "") -> str:
    """A share as a percentage."""
    return missing if share is None else f"{share:.1%}"


def figure(value: float | None, form: str = "", missing: str = "") -> str:
    """A number in a form, or what to say of none."""
    return missing if value is None else format(value, form)


def gib(memory_gib: float) -> str:
    """Memory of a device, as devices are called: 16 GB."""
    return f"{memory_gib:g} GB"
