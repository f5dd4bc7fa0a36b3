"""Reproduce the evaluation of a paper: run experiments and write their reports to a folder.

The files of an experiment are written when all its runs are done. Runs are cached in a subfolder,
see `runs`.
"""

import json
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from pesto_cli.bench.experiment import ExperimentRequest, Paper, Report, gib
from pesto_cli.bench.fastt import FASTT
from pesto_cli.bench.heterog import HETEROG
from pesto_cli.bench.heterog_gnn import HETEROG_GNN
from pesto_cli.bench.models import BenchModel, Models
from pesto_cli.bench.pesto import PESTO_PAPER
from pesto_cli.bench.runs import JobDone, run_jobs, shared_runs
from pesto_cli.bench.spotlight import SPOTLIGHT
from pesto_cli.bench.version import pesto_version
from pesto_cli.errors import BadInputError
from pesto_cli.files import atomic_write
from pesto_cli.report.charts import write_chart
from pesto_cli.report.counts import count_text

PAPERS: Mapping[str, Paper] = {
    "paper": PESTO_PAPER,
    "fastt": FASTT,
    "heterog": HETEROG,
    "spotlight": SPOTLIGHT,
    "heterog-gnn": HETEROG_GNN,
}
"""Name of a command -> the paper whose evaluation it repeats."""

RUNS = "runs"
CHART_ENDINGS = (".svg", ".png")


def reproduce(
    paper: Paper,
    names: Sequence[str],
    models: Models,
    model_names: Sequence[str],
    request: ExperimentRequest,
    folder: Path,
    processes: int = 1,
    on_done: Callable[[JobDone], None] = lambda done: None,
) -> list[Path]:
    """Run experiments and write their files; experiments without models are left out.

    Args:
        paper: the paper.
        names: names of its experiments.
        models: the folder of the models' profiles.
        model_names: see `Paper.models`.
        request: memory sizes and effort; the models are added here.
        folder: an existing folder for the files.
        processes: number of runs at the same time.
        on_done: is called after every run, with the counts over all experiments.

    Returns:
        The paths of the written files.
    """
    (folder / RUNS).mkdir(exist_ok=True)
    names = [name for name in names if paper.models(name, model_names)]
    of = {
        name: replace(
            request,
            models=tuple(map(models.model, paper.models(name, model_names))),
        )
        for name in names
    }
    for each in of.values():
        _check_names(each.models)
    jobs = {name: paper.experiments[name].jobs(of[name]) for name in names}
    run_of = shared_runs(job for some in jobs.values() for job in some)
    num_jobs = len({*run_of.values()})
    seen = set()

    def count(done: JobDone) -> None:
        if done.job not in seen:
            seen.add(done.job)
            on_done(replace(done, num_done=len(seen), num_jobs=num_jobs))

    written = []
    for name in names:
        runs = [run_of[job] for job in jobs[name]]
        records = run_jobs(runs, folder / RUNS, processes, count)
        records = {job: records[run_of[job]] for job in jobs[name]}
        report = paper.experiments[name].report(of[name], records)
        written += _write(folder, paper, name, report, _conditions(of[name], processes))
    return written


def _check_names(models: Sequence[BenchModel]) -> None:
    """Refuse two models of one name, which the tables could not tell apart."""
    named: dict[str, BenchModel] = {}
    for model in models:
        other = named.setdefault(model.name, model)
        if other.path != model.path:
            raise BadInputError(
                f"{other.path} and {model.path} are both named {model.name}; files with different "
                "names were expected."
            )


def _conditions(request: ExperimentRequest, processes: int) -> dict[str, Any]:
    """Return the conditions that the results depend on."""
    return {
        "pesto": pesto_version(),
        "memory": [gib(size) for size in request.memory_gib],
        **asdict(request.effort),
        "jobs": processes,
        "cores": os.cpu_count(),
        "processor": platform.processor() or platform.machine(),
        "profiles": {model.name: model.content_hash for model in request.models},
    }


def _write(
    folder: Path, paper: Paper, name: str, report: Report, conditions: Mapping[str, Any]
) -> list[Path]:
    """Write JSON, Markdown, and the charts as SVG and PNG; return their paths."""
    title = paper.experiments[name].title
    charts = {
        ending: [
            folder / f"{'-'.join(filter(None, (name, part)))}{ending}" for part in report.charts
        ]
        for ending in CHART_ENDINGS
    }
    pictures = [f"![{title}]({path.name})" for path in charts[".svg"]]
    limit = "units of work" if conditions["deterministic"] else "s"
    head = (
        f"{paper.costs}\n\npesto {conditions['pesto']}, {conditions['time_limit_s']:g} {limit} per "
        f"search, seed {conditions['seed']}, {count_text(conditions['workers'], 'thread')} per "
        f"search, {count_text(conditions['jobs'], 'run')} at a time, "
        f"{count_text(conditions['cores'], 'core')} ({conditions['processor']})."
    )
    text = "\n\n".join([f"# {title}", head, report.text, *pictures]) + "\n"
    value = {"experiment": name, "title": title, "conditions": conditions, "results": report.data}
    paths = [folder / f"{name}.json", folder / f"{name}.md"]
    atomic_write(paths[0], (json.dumps(value, indent=1) + "\n").encode())
    atomic_write(paths[1], text.encode())
    for ending in CHART_ENDINGS:
        for path, chart in zip(charts[ending], report.charts.values(), strict=True):
            write_chart(path, chart)
            paths.append(path)
    return paths
