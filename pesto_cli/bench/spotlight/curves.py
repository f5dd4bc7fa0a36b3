"""Spotlight's Figure 4: learning curves."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pesto_cli.bench.contenders import PESTO
from pesto_cli.bench.experiment import (
    Experiment,
    ExperimentRequest,
    Report,
    ms,
    ms_or_oom,
)
from pesto_cli.bench.learning_curves import AXES, Panel, curves_chart
from pesto_cli.bench.models import BenchModel
from pesto_cli.bench.published import family, published
from pesto_cli.bench.record import CurvePoint, Learning
from pesto_cli.bench.runs import Job, Records
from pesto_cli.bench.spotlight.runs import CIFAR, MODELS, NAMES, POLICIES, Found, found, jobs_of
from pesto_cli.report.markdown import markdown_table

# Rivals that are drawn as lines.
DRAWN = ("single", PESTO)
COLOURS = {"grl": "#4c78a8", "spotlight": "#f58518", "single": "#9aa5b1", PESTO: "#e4572e"}


@dataclass(frozen=True)
class Case:
    """The runs of one model on some GPUs."""

    model: str
    num_gpus: int
    found: Found

    def curves(self, policy: str) -> list[Learning]:
        """Return how a policy learned with each seed."""
        return [each.learning for each in self.found.records[policy] if each.learning is not None]

    @property
    def panel(self) -> Panel:
        """The panel of the chart; rivals are lines."""
        steps_us = {name: self.found.step_us(name) for name in DRAWN}
        return Panel(
            f"{self.model}, {self.num_gpus} GPUs",
            {policy: [each.curve for each in self.curves(policy)] for policy in POLICIES},
            {name: step_us for name, step_us in steps_us.items() if step_us is not None},
        )


def _cases(request: ExperimentRequest) -> Iterator[tuple[BenchModel, int]]:
    """Yield each model with 4 GPUs, and that of the paper's figure also with 2."""
    for model in request.models:
        yield model, 4
        if family(model.name) == family(*CIFAR):
            yield model, 2


def _jobs(request: ExperimentRequest) -> list[Job]:
    return [
        job
        for model, num_gpus in _cases(request)
        for _, job in jobs_of(model, num_gpus, request.effort, NAMES)
    ]


def _report(request: ExperimentRequest, records: Records) -> Report:
    cases = [
        Case(
            model.name,
            num_gpus,
            found(jobs_of(model, num_gpus, request.effort, NAMES), records),
        )
        for model, num_gpus in _cases(request)
    ]
    lines = [line for case in cases for line in _lines(case, request.effort.seed)]
    columns = ["model", "GPUs", "policy", "seed", "placements", "first mean", "last mean", "best"]
    columns += ["single", "below single after placements", "after s"]
    columns += ["below expert and metis after placements", "after s", "pesto"]
    paper = published("spotlight_search")
    four, two = (paper["minutes_until_below_single"][each] for each in ("4", "2"))
    text = (
        "Step times in ms: the means of the first and of the last iteration, and that of the best "
        "placement. A step that does not fit into memory counts ten times in means and "
        "curves. *below single*: the first placement whose step is shorter than on one GPU; a dash "
        "if there is none. *below expert and metis*: the first one that is shorter than both."
        f"\n\n{markdown_table(columns, lines, num_text=3)}\n\nIn the paper, the "
        f"CIFAR-10 model gets {paper['placements']:,} placements in {paper['minutes']} minutes. "
        f"Spotlight is below one GPU after {four} minutes with 4 GPUs, and after {two} with 2; "
        f"GRL never is ({paper['source']})."
    )
    panels = [case.panel for case in cases]
    charts = {axis: curves_chart(panels, axis, COLOURS) for axis in AXES}
    return Report([_data(case) for case in cases], text, charts)


def _lines(case: Case, seed: int) -> Iterator[list[str]]:
    rivals = [case.found.step_us(name) for name in ("expert", "metis")]
    both_us = min((each for each in rivals if each is not None), default=None)
    for policy in POLICIES:
        for number, record in enumerate(case.found.records[policy]):
            curve = record.learning.curve if record.learning else []
            yield [
                case.model,
                str(case.num_gpus),
                policy,
                str(seed + number),
                f"{curve[-1].num_placements:,}" if curve else "0",
                *(ms(curve[at].mean_us) if curve else "-" for at in (0, -1)),
                ms_or_oom(record),
                ms_or_oom(case.found.median("single")),
                *_first_below(curve, case.found.step_us("single")),
                *_first_below(curve, both_us),
                ms_or_oom(case.found.median(PESTO)),
            ]


def _first_below(curve: Sequence[CurvePoint], step_us: float | None) -> tuple[str, str]:
    """Return the placements and seconds after which a curve is below a step; dashes if never."""
    first = next((each for each in curve if step_us is not None and each.best_us < step_us), None)
    if first is None:
        return "-", "-"
    return f"{first.num_placements:,}", f"{first.seconds:.1f}"


def _data(case: Case) -> dict[str, Any]:
    return {
        "model": case.model,
        "gpus": case.num_gpus,
        "curves": {
            policy: [
                [point.model_dump() for point in learning.curve] for learning in case.curves(policy)
            ]
            for policy in POLICIES
        },
        "steps_us": {name: case.found.step_us(name) for name in NAMES},
    }


FIGURE4 = Experiment("Figure 4: learning curves", MODELS, _jobs, _report)
