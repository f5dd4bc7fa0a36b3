"""Spotlight's Table 1: step times on four K80 GPUs."""

from collections.abc import Mapping, Sequence

from pesto_cli.bench.contenders import PESTO
from pesto_cli.bench.experiment import (
    Experiment,
    ExperimentRequest,
    Report,
    figure,
    ms,
    ms_or_oom,
    percent,
)
from pesto_cli.bench.published import published
from pesto_cli.bench.rivals import NUM_SEEDS
from pesto_cli.bench.runs import Job, Records
from pesto_cli.bench.spotlight.runs import (
    GRL,
    MODELS,
    NAMES,
    SPOTLIGHT,
    Found,
    found,
    jobs_of,
)
from pesto_cli.report.markdown import markdown_table

NUM_GPUS = 4
# Comparisons of two contenders, the shorter step first.
CLAIMS = (
    (SPOTLIGHT, "expert"),
    (SPOTLIGHT, "metis"),
    (SPOTLIGHT, GRL),
    (PESTO, SPOTLIGHT),
    (PESTO, GRL),
)


def _jobs(request: ExperimentRequest) -> list[Job]:
    return [
        job
        for model in request.models
        for _, job in jobs_of(model, NUM_GPUS, request.effort, NAMES)
    ]


def _report(request: ExperimentRequest, records: Records) -> Report:
    of = {
        model.name: found(jobs_of(model, NUM_GPUS, request.effort, NAMES), records)
        for model in request.models
    }
    paper = published("spotlight_steps")
    theirs = {
        model: dict(zip(paper["columns"], steps_s, strict=True))
        for model, steps_s in paper["step_s"].items()
    }
    table = markdown_table(
        [
            *("model", *NAMES, "bound", "spotlight less than grl"),
            *(f"paper: {paper['columns'][0]}, s", *paper["columns"][1:], "less than grl"),
        ],
        [_line(model, each, theirs.get(model, {})) for model, each in of.items()],
    )
    text = (
        f"Step times in ms on {NUM_GPUS} GPUs. All ops are whole. `grl` and `spotlight` learn from "
        f"scratch for the time limit; shown is the median of {NUM_SEEDS} seeds. `pesto` has the "
        f"same time limit, so training counts.\n\n{table}\n\n{_claims(of, theirs)}\n\nThe paper's "
        f"figures: {paper['source']}."
    )
    data = {
        model: {
            "steps_us": {
                name: [record.step_us if record.fits else None for record in some]
                for name, some in each.records.items()
            },
            "took_s": {
                name: [record.took_s for record in some] for name, some in each.records.items()
            },
            "bound_us": each.bound_us,
            "paper_s": theirs.get(model),
        }
        for model, each in of.items()
    }
    return Report(data, text)


def _line(model: str, each: Found, theirs: Mapping[str, float]) -> list[str]:
    gain = 1 - theirs[SPOTLIGHT] / theirs[GRL] if theirs else None
    return [
        model,
        *(ms_or_oom(each.median(name)) for name in NAMES),
        ms(each.bound_us),
        percent(each.ratio(SPOTLIGHT, GRL), "-"),
        *(figure(theirs.get(name), ".2f") for name in ("expert", "metis", GRL, SPOTLIGHT)),
        percent(gain),
    ]


def _claims(of: Mapping[str, Found], theirs: Mapping[str, Mapping[str, float]]) -> str:
    """Return a table: for each comparison, the number of models on which it holds."""
    lines = []
    for name, other in CLAIMS:
        ours = [each.is_shorter(name, other) for each in of.values()]
        said = [each[name] < each[other] for each in theirs.values() if {name, other} <= {*each}]
        lines.append([f"{name} is shorter than {other}", _share(ours), _share(said)])
    return markdown_table(["claim", "here", "paper"], lines)


def _share(holds: Sequence[bool]) -> str:
    return f"{sum(holds)} of {len(holds)} models" if holds else ""


TABLE1 = Experiment("Table 1: step times on 4 GPUs", MODELS, _jobs, _report)
