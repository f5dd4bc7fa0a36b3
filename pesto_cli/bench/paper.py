"""Reproduce the evaluation of the Pesto paper: run experiments and write their reports to a folder.

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

from pesto_cli.bench.coarse_size import COARSE_SIZE
from pesto_cli.bench.experiment import Experiment, ExperimentRequest, Report, gib
from pesto_cli.bench.figure5 import FIGURE5
from pesto_cli.bench.figure7 import FIGURE7
from pesto_cli.bench.figure8 import FIGURE8A, FIGURE8B
from pesto_cli.bench.models import Models
from pesto_cli.bench.order import ORDER
from pesto_cli.bench.runs import JobDone, run_jobs
from pesto_cli.bench.table1 import TABLE1
from pesto_cli.bench.table2 import TABLE2
from pesto_cli.bench.table3 import TABLE3
from pesto_cli.bench.version import pesto_version
from pesto_cli.files import atomic_write
from pesto_cli.report.charts import write_chart

EXPERIMENTS: Mapping[str, Experiment] = {
    "table1": TABLE1,
    "fig5": FIGURE5,
    "fig7": FIGURE7,
    "table2": TABLE2,
    "table3": TABLE3,
    "fig8a": FIGURE8A,
    "fig8b": FIGURE8B,
    "coarse-size": COARSE_SIZE,
    "order": ORDER,
}

RUNS = "runs"
CHART_ENDINGS = (".svg", ".png")

OTHER_COSTS = (
    "The cost models differ: the paper measured TensorFlow 1.15 on two V100 GPUs; here op times "
    "are analytic costs of a V100, and steps are simulated. Compare ratios, rankings and trends, "
    "not milliseconds."
)


def paper(
    names: Sequence[str],
    models: Models,
    model_names: Sequence[str],
    request: ExperimentRequest,
    folder: Path,
    processes: int = 1,
    on_done: Callable[[JobDone], None] = lambda done: None,
) -> list[Path]:
    """Run experiments and write their files.

    Args:
        names: names in `EXPERIMENTS`.
        models: the folder of the models' profiles.
        model_names: models to use for all experiments; if empty, each experiment uses its own.
        request: memory sizes and effort; the models are added here.
        folder: an existing folder for the files.
        processes: number of runs at the same time.
        on_done: is called after every run, with the counts over all experiments.

    Returns:
        The paths of the written files.
    """
    (folder / RUNS).mkdir(exist_ok=True)
    of = {
        name: replace(
            request,
            models=tuple(map(models.model, model_names or EXPERIMENTS[name].models)),
        )
        for name in names
    }
    jobs = {name: EXPERIMENTS[name].jobs(of[name]) for name in names}
    num_jobs = len({job for some in jobs.values() for job in some})
    seen = set()

    def count(done: JobDone) -> None:
        if done.job not in seen:
            seen.add(done.job)
            on_done(replace(done, num_done=len(seen), num_jobs=num_jobs))

    written = []
    for name in names:
        records = run_jobs(jobs[name], folder / RUNS, processes, count)
        report = EXPERIMENTS[name].report(of[name], records)
        written += _write(folder, name, report, _conditions(of[name], processes))
    return written


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


def _write(folder: Path, name: str, report: Report, conditions: Mapping[str, Any]) -> list[Path]:
    """Write JSON, Markdown, and the charts as SVG and PNG; return their paths."""
    title = EXPERIMENTS[name].title
    charts = {
        ending: [
            folder / f"{'-'.join(filter(None, (name, part)))}{ending}" for part in report.charts
        ]
        for ending in CHART_ENDINGS
    }
    pictures = [f"![{title}]({path.name})" for path in charts[".svg"]]
    limit = "units of work" if conditions["deterministic"] else "s"
    head = (
        f"{OTHER_COSTS}\n\npesto {conditions['pesto']}, {conditions['time_limit_s']:g} {limit} per "
        f"search, seed {conditions['seed']}, {conditions['workers']} threads per search, "
        f"{conditions['jobs']} runs at once, {conditions['cores']} cores "
        f"({conditions['processor']})."
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
