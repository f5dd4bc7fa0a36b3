"""`bench`: published experiments, made again."""

import math
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from pesto_cli.cli.activity import activity
from pesto_cli.cli.options import (
    PATH,
    deterministic_option,
    echo,
    echo_json,
    json_option,
    listed,
    quiet_option,
    seed_option,
    time_limit_option,
)
from pesto_cli.errors import BadInputError, about

MACHINE = "v100x2-nvlink"


@click.group(short_help="Make the experiments of papers again, with every rival.")
def bench() -> None:
    """Make published experiments again, with every rival in the same run."""


@bench.command()
@click.option(
    "-o", "--output", type=PATH, required=True, help="A folder for results; made if need be."
)
@click.option(
    "--only",
    metavar="A,B,...",
    help="table1, fig5, fig7, table2, table3, fig8a, fig8b, coarse-size, order; all unless given.",
)
@click.option(
    "--models",
    metavar="A,B,...",
    help="Zoo models or profiles (.json), instead of those that each experiment is about.",
)
@click.option(
    "--memory",
    default="80GB,16GB",
    show_default=True,
    metavar="A,B,...",
    help="Of a GPU. Experiments that need one size take the first.",
)
@time_limit_option("For each search of pesto; rivals take what they take.")
@seed_option
@click.option(
    "--jobs",
    type=click.IntRange(1, 256),
    default=1,
    show_default=True,
    help="Runs at once; they share the cores. More than one falsifies placement times.",
)
@deterministic_option
@click.option(
    "--profiles",
    type=PATH,
    help="A folder of profiles, NAME.profile.json; what it lacks is made.  [default: profiles in "
    "the output]",
)
@json_option
@quiet_option("no progress, only what was written")
def paper(
    output: Path,
    only: str | None,
    models: str | None,
    memory: str,
    time_limit: float,
    seed: int,
    jobs: int,
    deterministic: bool,
    profiles: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Make the tables and figures of the Pesto paper again (Middleware '21).

    Writes JSON, Markdown, SVG and PNG, with the paper's numbers beside ours. Every run is kept in
    OUTPUT/runs by all that its result depends on: the same command goes on where it was stopped,
    and makes nothing twice.
    """
    from pesto_cli import api
    from pesto_cli import bench as experiments
    from pesto_cli.bench.experiment import ExperimentRequest
    from pesto_cli.bench.runs import Effort

    known = ", ".join(experiments.EXPERIMENTS)
    names = list(experiments.EXPERIMENTS)
    if only is not None:
        names = listed("--only", only, f"some of {known}")
        for name in names:
            if name not in experiments.EXPERIMENTS:
                raise BadInputError(
                    f"--only names {name!r}, which is no experiment; some of {known} were expected."
                )
    named = [] if models is None else listed("--models", models, "zoo models or profiles")
    sizes = tuple(_gib(size) for size in listed("--memory", memory, "sizes such as 80GB,16GB"))
    if math.isnan(time_limit):
        raise BadInputError("--time-limit is nan; a number of seconds was expected.")
    workers = 1 if deterministic else max(1, (os.cpu_count() or 1) // jobs)
    effort = Effort(time_limit, seed, workers, deterministic)
    folder = _folder(output)

    def made(name: str) -> Any:
        with activity(f"making the profile of {name}, once", quiet):
            graph = api.export(f"zoo:{name}")
            return api.profile(graph, api.read_machine(MACHINE))

    source = experiments.Models(_folder(profiles or folder / "profiles"), made)
    for name in named:
        _check_model(name, source)
    with _telling(quiet) as tell:
        written = experiments.paper(
            names, source, named, ExperimentRequest((), sizes, effort), folder, jobs, tell
        )
    if as_json:
        echo_json({"written": list(map(str, written))})
    else:
        echo(*map(str, written))


def _check_model(name: str, source: Any) -> None:
    """Refuse a model of `--models` that is not there, before hours of runs, not after them."""
    from pesto_cli.zoo import check_name

    if source.is_made(name):
        return
    if name.endswith((".json", ".json.gz")):
        raise BadInputError(f"--models: {name} does not exist; check the path.")
    with about("--models"):
        check_name(name)


def _gib(size: str) -> float:
    """`80GB` in units of 2^30 bytes, as GPUs are sold."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?GB", size, re.IGNORECASE)
    if found is None or not float(found[1]):
        raise BadInputError(
            f"--memory names {size!r}; a size above 0 with its unit was expected, such as 80GB."
        )
    return float(found[1])


def _folder(path: Path) -> Path:
    """Make it if need be; its own folder has to exist."""
    if path.exists() and not path.is_dir():
        raise BadInputError(f"{path} is a file; a folder was expected.")
    if not path.parent.is_dir():
        raise BadInputError(f"{path}: folder {path.parent} does not exist; create it first.")
    path.mkdir(exist_ok=True)
    return path


@contextmanager
def _telling(quiet: bool) -> Iterator[Any]:
    """What is over and what is left: a line that changes in place, or one a run in a log."""
    from pesto_cli.report.run_counter import run_counter_on_stderr

    if quiet:
        yield lambda told: None
        return
    with run_counter_on_stderr("runs") as tick:
        yield lambda told: tick(str(told.job), told.num_over, told.num_jobs, not told.was_kept)
