"""Spotlight's Figure 5: the time of a whole training of the CIFAR-10 model."""

from pesto_cli.bench.contenders import PESTO
from pesto_cli.bench.experiment import Experiment, ExperimentRequest, Report, figure
from pesto_cli.bench.published import published
from pesto_cli.bench.runs import Job, Records
from pesto_cli.bench.spotlight.runs import CIFAR, GRL, NAMES, SPOTLIGHT, TOWERS, found, jobs_of
from pesto_cli.report.markdown import markdown_table

GPUS = (2, 4)
SHOWN = ("single", GRL, SPOTLIGHT, TOWERS, PESTO)
TITLES = {TOWERS: "towers"}


def _jobs(request: ExperimentRequest) -> list[Job]:
    return [
        job
        for model in request.models
        for num_gpus in GPUS
        for _, job in jobs_of(model, num_gpus, request.effort, (*NAMES, TOWERS))
    ]


def _report(request: ExperimentRequest, records: Records) -> Report:
    paper, lines, data = published("spotlight_training"), [], []
    for model in request.models:
        for num_gpus in GPUS:
            runs = jobs_of(model, num_gpus, request.effort, (*NAMES, TOWERS))
            of = found(runs, records)
            minutes = {
                name: None if step_us is None else paper["steps"] * step_us / 60e6
                for name in SHOWN
                for step_us in [of.step_us(name)]
            }
            theirs = _theirs(num_gpus) if model.name in CIFAR else {}
            lines.append(
                [
                    model.name,
                    str(num_gpus),
                    *(figure(minutes[name], ",.4g", "OOM") for name in SHOWN),
                    *(figure(theirs.get(name), ".0f") for name in SHOWN[:-1]),
                ]
            )
            data.append(
                {"model": model.name, "gpus": num_gpus, "minutes": minutes, "paper": theirs}
            )
    shown = [TITLES.get(name, name) for name in SHOWN]
    columns = ["model", "GPUs", *shown, f"paper: {shown[0]}", *shown[1:-1]]
    text = (
        f"Minutes of {paper['steps']:,} steps. *towers*: a replica on each GPU, and each variable "
        "has one owner (`ev-ps`); the batch is divided between them, where each tower of the paper "
        "has a batch of its own. The other columns are as in Table 1.\n\n"
        f"{markdown_table(columns, lines)}\n\nThe paper's figures: {paper['source']}; those of one "
        "GPU and of GRL follow from the shares that it states."
    )
    return Report(data, text)


def _theirs(num_gpus: int) -> dict[str, float]:
    """Return the minutes of the paper, by contender."""
    paper = published("spotlight_training")
    minutes = paper["spotlight_minutes"][str(num_gpus)]
    if num_gpus == max(GPUS):
        return {SPOTLIGHT: minutes, TOWERS: paper["towers_minutes"]}
    return {
        "single": minutes / paper["share_of_single"],
        GRL: minutes / paper["share_of_grl"],
        SPOTLIGHT: minutes,
    }


FIGURE5 = Experiment("Figure 5: time of a whole training", CIFAR, _jobs, _report)
