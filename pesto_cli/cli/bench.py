"""`bench`: reproduce published experiments."""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from pesto_cli.cli.activity import activity
from pesto_cli.cli.options import (
    PATH,
    deterministic_option,
    json_option,
    listed,
    quiet_option,
    seed_option,
    time_limit_option,
)
from pesto_cli.cli.output import echo, echo_json
from pesto_cli.errors import BadInputError, EnvironmentFailedError, about

MOST_GIB = 2**20  # memory of a GPU; a larger number is a typing error


@click.group(short_help="Reproduce the experiments of papers, with every baseline.")
def bench() -> None:
    """Reproduce published experiments, with every baseline in the same run."""


_output = click.option(
    "-o", "--output", type=PATH, required=True, help="The folder for results; created if missing."
)
_models = click.option(
    "--models",
    metavar="A,B,...",
    help="Zoo models or profiles (.json); of papers with a batch for each model, some of their "
    "models.  [default: the models of each experiment]",
)
_memory = click.option(
    "--memory",
    default="80GB,16GB",
    show_default=True,
    metavar="A,B,...",
    help="Memory sizes of a GPU. Experiments with one size use the first.",
)
_jobs = click.option(
    "--jobs",
    type=click.IntRange(1, 256),
    default=1,
    show_default=True,
    help="Number of parallel runs. They share the cores, so more than one distorts placement "
    "times.",
)
_profiles = click.option(
    "--profiles",
    type=PATH,
    help="The folder of profiles, NAME.profile.json; missing profiles are made.  [default: "
    "profiles beside the results]",
)
_SEARCH = (
    time_limit_option("Time limit of each search by pesto, and of rivals that split ops."),
    seed_option,
    _jobs,
    deterministic_option,
)
_LEARNING = (
    time_limit_option("Time limit of each search by pesto, and of each training of a policy."),
    *_SEARCH[1:],
)
_END = (_profiles, json_option, quiet_option("no progress, only the names of written files"))


def _only(names: str) -> Any:
    return click.option("--only", metavar="A,B,...", help=f"Experiments: {names}.  [default: all]")


def _with(*options: Any) -> Any:
    """Return a decorator that adds options, which are listed in this order."""

    def decorated(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return decorated


@bench.command()
@_with(
    _output,
    _only("table1, fig5, fig7, table2, table3, fig8a, fig8b, coarse-size, order"),
    _models,
    _memory,
    *_SEARCH,
    *_END,
)
def paper(memory: str, **options: Any) -> None:
    """Reproduce the tables and figures of the Pesto paper (Middleware '21).

    Writes JSON, Markdown, SVG and PNG to OUTPUT/paper, with the paper's numbers next to ours. Every
    run is cached in OUTPUT/paper/runs under everything that its result depends on: the same command
    continues where it was stopped, and repeats no run.
    """
    _show(_run("paper", memory, **options), options["as_json"])


@bench.command()
@_with(
    _output,
    _only("table1, table2, table3, table4, table5, table6, fig2"),
    _models,
    *_SEARCH,
    *_END,
)
def fastt(**options: Any) -> None:
    """Reproduce the tables and figures of FastT (Middleware '20).

    Nine models on one to sixteen V100 GPUs, with the rivals that split ops. Files and cache are as
    those of `bench paper`, in OUTPUT/fastt.
    """
    _show(_run("fastt", "", **options), options["as_json"])


@bench.command()
@_with(_output, _only("fig3, table1, table2, table4, table5, table7"), _models, *_SEARCH, *_END)
def heterog(**options: Any) -> None:
    """Reproduce the tables and figures of HeteroG (CoNEXT '20).

    Models of images and of words on 8 and 12 GPUs of three kinds, with its four baselines and other
    rivals. Files and cache are as those of `bench paper`, in OUTPUT/heterog.
    """
    _show(_run("heterog", "", **options), options["as_json"])


@bench.command()
@_with(_output, _only("table1, fig4, fig5, fig6"), _models, *_LEARNING, *_END)
def spotlight(**options: Any) -> None:
    """Reproduce the tables and figures of Spotlight (ICML '18).

    Policies that learn to place, with three seeds each, on up to four K80 GPUs, and pesto for the
    same time. Files and cache are as those of `bench paper`, in OUTPUT/spotlight.
    """
    _show(_run("spotlight", "", **options), options["as_json"])


@bench.command("heterog-gnn")
@_with(_output, _only("table1, table6, unseen"), _models, *_LEARNING, *_END)
def heterog_gnn(**options: Any) -> None:
    """Evaluate HeteroG's policy on graphs that it has not seen, and on Table 1 (CoNEXT '20).

    The policy learns from scratch, or first on the graphs of other families for the time limit
    each. pesto searches for the same time. Files and cache are as those of `bench paper`, in
    OUTPUT/heterog-gnn.
    """
    _show(_run("heterog-gnn", "", **options), options["as_json"])


@bench.command("all")
@_with(
    _output,
    _memory,
    time_limit_option("Time limit of each search by pesto, training, and rival that splits ops."),
    *_SEARCH[1:],
    json_option,
    _END[-1],
)
def every(output: Path, memory: str, as_json: bool, **options: Any) -> None:
    """Reproduce the evaluations of all papers.

    The files are those of the single commands, such as `bench paper`.
    """
    from pesto_cli.bench import PAPERS

    written = list[Path]()
    for name in PAPERS:
        written += _run(
            name, memory, output=output, only=None, models=None, profiles=None, **options
        )
    _show(written, as_json)


def _run(
    name: str,
    memory: str,
    *,
    output: Path,
    only: str | None,
    models: str | None,
    time_limit: float,
    seed: int,
    jobs: int,
    deterministic: bool,
    profiles: Path | None,
    quiet: bool,
    as_json: bool = False,
) -> list[Path]:
    """Run the experiments of a paper, in a folder of its own; return the written files.

    memory: empty for that of the paper's machines.
    """
    from pesto_cli import bench as papers
    from pesto_cli.bench.experiment import ExperimentRequest
    from pesto_cli.bench.runs import Effort

    paper = papers.PAPERS[name]
    names = _experiments(paper, only)
    named = [] if models is None else _listed_models(models)
    sizes: tuple[float, ...] = ()
    if memory:
        sizes = tuple(_gib(size) for size in listed("--memory", memory, "sizes such as 80GB,16GB"))
    workers = 1 if deterministic else max(1, (os.cpu_count() or 1) // jobs)
    effort = Effort(time_limit, seed, workers, deterministic)
    folder = output / name
    profiles = profiles or folder / "profiles"
    source = papers.Models(profiles, lambda model: _profile(paper, model, quiet))
    _check_models(paper, names, named, source)
    for each in (output, folder, profiles):
        _folder(each)
    with _run_progress(quiet) as show:
        request = ExperimentRequest((), sizes, effort)
        return papers.reproduce(paper, names, source, named, request, folder, jobs, show)


def _show(written: Sequence[Path], as_json: bool) -> None:
    if as_json:
        echo_json({"written": list(map(str, written))})
    else:
        echo(*map(str, written))


def _experiments(paper: Any, only: str | None) -> list[str]:
    """Return the names of the experiments of a paper that `--only` names."""
    known = ", ".join(paper.experiments)
    if only is None:
        return list(paper.experiments)
    names = listed("--only", only, f"some of {known}")
    for name in names:
        if name not in paper.experiments:
            raise BadInputError(
                f"--only: there is no experiment {name!r}; some of {known} were expected."
            )
    return names


def _profile(paper: Any, model: str, quiet: bool) -> Any:
    from pesto_cli import api

    with activity(f"making the profile of {model}, once", quiet):
        machine = api.read_machine(paper.machine)
        return api.profile(api.export(f"zoo:{model}"), machine, parts=paper.parts)


def _check_models(paper: Any, names: Sequence[str], models: Sequence[str], source: Any) -> None:
    """Refuse models of `--models` that cannot be used, before the runs, which take hours."""
    if not paper.has_own_batches:
        for model in models:
            _check_model(model, source)
        return
    known = dict.fromkeys(model for name in names for model in paper.models(name, ()))
    for model in models:
        if not any(paper.models(name, [model]) for name in names):
            raise BadInputError(
                f"--models: the experiments have no model {model!r}; some of "
                f"{', '.join(dict.fromkeys(name.partition('@')[0] for name in known))} were "
                "expected."
            )


def _listed_models(text: str) -> list[str]:
    """Return the entries of `--models`; names of models may contain commas."""
    from pesto_cli.zoo.names import COMMA_BETWEEN_NAMES

    return listed("--models", text, "zoo models or profiles", COMMA_BETWEEN_NAMES)


def _check_model(name: str, source: Any) -> None:
    """Refuse a model of `--models` that does not exist, before the runs, which take hours."""
    from pesto_cli.zoo import check_name

    if source.is_made(name):
        return
    if name.endswith((".json", ".json.gz")):
        raise BadInputError(f"--models: {name} does not exist; check the path.")
    with about("--models"):
        check_name(name)


def _gib(size: str) -> float:
    """Return the number of a size such as `80GB`; the unit is 2^30 bytes, as on GPU data sheets."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?GB", size, re.IGNORECASE)
    if found is None or not 0 < float(found[1]) <= MOST_GIB:
        raise BadInputError(
            f"--memory has the entry {size!r}; a size in GB was expected, above 0 and at most "
            f"{MOST_GIB:,}, such as 80GB."
        )
    return float(found[1])


def _folder(path: Path) -> Path:
    """Create a folder if it does not exist; its parent has to exist."""
    if path.exists() and not path.is_dir():
        raise BadInputError(f"{path} is a file; a folder was expected.")
    if not path.parent.is_dir():
        raise BadInputError(f"{path}: folder {path.parent} does not exist; create it first.")
    try:
        path.mkdir(exist_ok=True)
    except OSError as error:
        raise EnvironmentFailedError(
            f"{path} cannot be created: {error.strerror}; choose another folder."
        ) from error
    return path


@contextmanager
def _run_progress(quiet: bool) -> Iterator[Any]:
    """Yield a callback that counts finished runs: a line that changes in place, or a log line."""
    from pesto_cli.report.run_counter import run_counter_on_stderr

    if quiet:
        yield lambda progress: None
        return
    with run_counter_on_stderr("runs") as tick:
        yield lambda run: tick(str(run.job), run.num_done, run.num_jobs, not run.was_cached)
