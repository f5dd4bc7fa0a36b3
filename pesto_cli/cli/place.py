"""`place`: export, profile, solve and apply in one command."""

import fcntl
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from shlex import join
from typing import Any

import click

from pesto_cli.cli.activity import activity, connected, notes_of_profiles, searching
from pesto_cli.cli.options import (
    FOLDER_SUFFIX,
    PATH,
    check_output,
    deterministic_option,
    echo,
    echo_json,
    file_of,
    json_option,
    machine_option,
    output_option,
    parts_option,
    quiet_option,
    robust_option,
    seed_option,
    step_options,
    time_limit_option,
)
from pesto_cli.cli.reporting import write_page
from pesto_cli.cli.searches import context_from, made_by, print_notes, stoppable
from pesto_cli.errors import INTERRUPTED, BadInputError, EnvironmentFailedError, about

FILES = ("graph.meta", "profile.json", "placement.json")
# The result is compared with these strategies, which take little time.
BASELINES = ("single", "expert")
# Steps that are measured on real devices: as many with a trace as without.
STEPS = 50


@dataclass
class Run:
    """The state of one call.

    folder: contains the files of the single steps.
    reused: names of the steps whose earlier results are still fresh.
    """

    folder: Path
    quiet: bool
    reused: list[str] = field(default_factory=list)

    def path(self, name: str) -> Path:
        """Return the path of a step's file."""
        return self.folder / name

    def tell(self, step: str, text: str, *, reused: bool = False) -> None:
        """Print a summary of a step to stderr."""
        if reused:
            self.reused.append(step)
            text += " (still fresh, reused)"
        if not self.quiet:
            echo(f"{step:<8} {text}", err=True)


@dataclass(frozen=True)
class _Target:
    """The machine that the user has named.

    cluster: its real devices; None for a preset or a machine file.
    fits: links that `pesto comm` has measured, or None.
    """

    machine: Any
    cluster: Any
    fits: Any


@contextmanager
def _opened(name: str, comm: Path | None, quiet: bool) -> Iterator[_Target]:
    """Read the description of a machine, or start its real devices until the context ends."""
    from pesto_cli import api

    fits = None if comm is None else api.read_comm(comm)
    if api.is_live(name):
        with connected(name, False, quiet) as cluster:
            yield _Target(cluster.machine, cluster, fits)
    else:
        yield _Target(api.read_machine(name, "local-workers:N", "local-gpus"), None, fits)


@click.command(short_help="Place SOURCE on a machine: export, profile, solve and apply in one.")
@click.argument("source")
@machine_option
@output_option("the placed graph (.meta)")
@time_limit_option()
@click.option("--report", type=PATH, help="Also write a page that shows the placement (.html).")
@click.option("--comm", type=PATH, help="A fit by `pesto comm`, in place of the machine's links.")
@click.option(
    "--constraints",
    type=PATH,
    help="Constraints (TOML): pin, forbid, together, headroom, split, whole.",
)
@parts_option("Also try to split ops; price parts of ops that are split into N parts, such as 2,4.")
@step_options
@seed_option
@deterministic_option
@robust_option
@json_option
@quiet_option()
def place(
    source: str,
    machine: str,
    output: Path,
    report: Path | None,
    comm: Path | None,
    constraints: Path | None,
    parts: tuple[int, ...],
    robust: bool,
    fetches: tuple[str, ...],
    feeds: tuple[str, ...],
    signature: str | None,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Place the training step of SOURCE on a machine.

    Does what export, profile, solve and apply do one after the other. SOURCE is what export takes,
    such as script.py:function or zoo:NAME, or a graph that it wrote. The files of the single steps
    are kept in a folder next to the output, named after it with the ending .pesto. A second call
    reuses those that are still fresh, and starts the search from an older placement.
    """
    from pesto_cli import api
    from pesto_cli.data.result import SolveStatus
    from pesto_cli.graphdef.fetches import parse_feed
    from pesto_cli.report.layouts import print_layouts
    from pesto_cli.report.samples import robust_tables
    from pesto_cli.report.splits import split_tables
    from pesto_cli.report.tables import comparison

    _check_paths(source, output, report, comm, constraints)
    step = {"fetches": fetches, "feeds": dict(map(parse_feed, feeds)), "signature": signature}
    rules = None if constraints is None else api.read_constraints(constraints)
    with _locked(output.with_suffix(FOLDER_SUFFIX)) as folder:
        run = Run(folder, quiet)
        with _opened(machine, comm, quiet) as target:
            meta = _exported(run, source, step)
            priced = _profiled(run, meta, target, source, parts)
        record: dict[str, Any] = {}
        if rules is not None:
            record["constraints"] = asdict(rules)
            with about(constraints):
                priced = api.constrain(priced, rules)
        settings = {"solver": "cpsat", "workers": None, **options}
        result = _solved(run, meta, priced, settings, record, robust)
        placed = api.read_placement(run.path("placement.json"))
        changes = _applied(run, meta, placed, output, source)
        if report is not None:
            write_page(report, priced, {"pesto": placed}, folder.stem, quiet)
            run.tell("report", str(report))
    if as_json or not quiet:
        results = [*api.compare(priced, BASELINES), result]
        if as_json:
            echo_json(_record(run, output, priced, results, changes))
        else:
            echo(err=True)
            table = comparison(str(output), priced.problem, results)
            print_layouts([table, *split_tables(result), *robust_tables(result)])
            print_notes(result)
            echo(_gain_text(results))
            echo("", "Next:", *_next_steps(run, output, machine, target, report), err=True)
    if result.status is SolveStatus.INTERRUPTED:
        echo(f"Interrupted: {output} has the best placement so far.", err=True)
        sys.exit(INTERRUPTED)


def _check_paths(source: str, output: Path, report: Path | None, *inputs: Path | None) -> None:
    """Check all outputs before the work begins."""
    from pesto_cli.files.destination import destination

    check_output(output, file_of(source), *inputs)
    if destination(output).is_stream:
        raise BadInputError(
            f"{output} is not a file, so the files of the single steps cannot be kept next to it; "
            "the path of a file was expected: choose one, or run the single steps."
        )
    folder = output.with_suffix(FOLDER_SUFFIX)
    if folder == output:
        raise BadInputError(
            f"{output} is the name of a folder for the files of the single steps; the name of a "
            f"graph was expected, such as {output.with_suffix('.meta')}."
        )
    if folder.exists() and not folder.is_dir():
        raise BadInputError(
            f"{folder} is a file; it was expected to be a folder for the files of the single "
            "steps, or not to exist: choose another name for the output."
        )
    if folder.exists():
        check_output(folder / FILES[0])
    if report is not None:
        kept = [folder, *(folder / name for name in FILES)]
        check_output(report, output, *kept, file_of(source), *inputs)


@contextmanager
def _locked(folder: Path) -> Iterator[Path]:
    """Create a folder, and keep other calls from using it until the context ends.

    A new folder is removed again if it is empty then.

    Raises:
        EnvironmentFailedError: another call uses the folder.
    """
    is_new = not folder.exists()
    folder.mkdir(exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise EnvironmentFailedError(
            f"{folder} is in use by another call of pesto place; wait until that call has ended, "
            "or choose another name for the output."
        ) from None
    except OSError:  # a file system without locks
        pass
    try:
        yield folder
    finally:
        if is_new:
            with suppress(OSError):  # it has files
                folder.rmdir()
        os.close(descriptor)


def _exported(run: Run, source: str, step: dict[str, Any]) -> Any:
    """Return the graph of the training step. A graph that export wrote is used as it is."""
    from pesto_cli import api
    from pesto_cli.apply import PLACED
    from pesto_cli.graphdef.fetches import fetch_names, init_names
    from pesto_cli.graphdef.training import untrained

    with activity(f"exporting {source}", run.quiet):
        meta = None if any(step.values()) else api.read_graph(source)
        if meta is None or not init_names(meta):
            meta = api.export(source, **step)
    if PLACED in meta.collection_def:
        raise BadInputError(
            f"{source} is a placed graph, whose control dependencies would restrict every other "
            "placement; the graph before it was placed was expected: after pesto place, it is "
            f"graph.meta in the folder next to the output ({file_of(source).stem}{FOLDER_SUFFIX})."
        )
    api.write_meta_graph(run.path("graph.meta"), meta)
    fetched = ", ".join(fetch_names(meta))
    run.tell("export", f"{len(meta.graph_def.node):,} nodes; fetches {fetched}")
    if not run.quiet and (remark := untrained(meta)):
        echo(remark, err=True)
    return meta


def _profiled(run: Run, meta: Any, target: _Target, what: str, parts: tuple[int, ...]) -> Any:
    """Return the profile, from its file if that is still fresh."""
    from pesto_cli import api
    from pesto_cli.files.comm import with_comm

    if target.cluster is None:
        source, price = "analytic", partial(api.profile, meta, target.machine)
    else:
        source, price = "run", partial(api.profile_by_run, meta, target.cluster, steps=STEPS)
    path = run.path("profile.json")
    linked = target.machine if target.fits is None else with_comm(target.machine, target.fits)
    profile = api.fresh_profile(path, meta, linked, source, parts)
    is_fresh = profile is not None
    if not is_fresh:
        with activity(f"profiling ops of {what}", run.quiet), notes_of_profiles(run.quiet):
            api.write_profile(path, price(comm=target.fits, what=what, parts=parts))
        profile = api.read_profile(path)
    run.tell("profile", _sizes(profile), reused=is_fresh)
    return profile


def _sizes(profile: Any) -> str:
    from pesto_cli import api
    from pesto_cli.report.summary import summarize
    from pesto_cli.report.times import time_text

    figures = summarize(profile.problem, api.critical_path_us(profile.problem))
    return (
        f"{figures.num_ops:,} ops on {profile.problem.num_devices} devices; work "
        f"{time_text(figures.work_us)}, critical path {time_text(figures.critical_path_us)}"
    )


def _solved(
    run: Run,
    meta: Any,
    priced: Any,
    settings: dict[str, Any],
    record: Mapping[str, Any],
    robust: bool,
) -> Any:
    """Return the result of the search, or of the earlier placement if that is still fresh."""
    from pesto_cli import api
    from pesto_cli.data.result import SolveStatus

    path = run.path("placement.json")
    parameters = dict(sorted({**made_by("pesto", {"robust": robust}, settings), **record}.items()))
    earlier = api.earlier_placement(path)
    if earlier is not None and api.is_fresh_placement(earlier, meta, priced, parameters):
        run.tell("solve", "placement", reused=True)
        return api.simulate(priced, earlier)
    start = None if earlier is None else api.carry_over(priced, earlier)
    with stoppable() as stop:
        context = context_from(settings, stop, run.quiet)
        if earlier is not None and start is not None and start.num_by_name:
            context = replace(context, warm_start=start.placement, split_start=start.split_start)
            parameters["warm_start"] = earlier.file_hash
            run.tell(
                "solve", f"starts from the earlier placement: {start.share_by_name:.0%} of ops"
            )
        with searching("pesto", context, run.quiet) as watched:
            result = api.solve(priced, "pesto", watched, robust=robust)
    if result.status is SolveStatus.INTERRUPTED:
        parameters["time_limit"] = result.runtime_s  # a second call continues the search
    api.write_placement(path, api.placement(priced, result, parameters))
    return result


def _applied(run: Run, meta: Any, placed: Any, output: Path, what: str) -> Any:
    from pesto_cli import api
    from pesto_cli.apply import planned_changes, with_changes

    with activity(f"writing {output}", run.quiet):
        changes = planned_changes(meta, placed, what=what)
        api.write_meta_graph(output, with_changes(meta, changes))
    count = f"{len(changes.device):,} nodes placed"
    run.tell("apply", f"{count}, {changes.num_control_edges:,} control dependencies added")
    return changes


def _record(run: Run, output: Path, priced: Any, results: list[Any], changes: Any) -> Any:
    """Return the results and what was written, as JSON."""
    from pesto_cli.report.records import result_json

    return {
        "output": str(output),
        "folder": str(run.folder),
        "reused": run.reused,
        "num_nodes_placed": len(changes.device),
        "num_control_edges": changes.num_control_edges,
        "results": [result_json(priced.problem, result) for result in results],
    }


def _next_steps(
    run: Run, output: Path, machine: str, target: _Target, report: Path | None
) -> Iterator[str]:
    """Yield lines with the commands that make use of the result."""
    graph, profile, placement = (str(run.path(name)) for name in FILES)
    files = join([profile, placement])
    if report is None:
        yield f"  see what runs when       pesto report {files} -o report.html"
    yield f"  see where the time goes  pesto explain {files}"
    yield f"  see all baselines        {join(['pesto', 'compare', profile])}"
    if target.cluster is not None:
        measure = ["pesto", "run", graph, "-m", machine, "--profile", profile, "--compare"]
        yield f"  measure real steps       {join([*measure, f'single,{placement}'])}"
    elif output.suffix != ".pb":  # such a file has no initialisation
        yield (
            "  train                    "
            f"tf.compat.v1.train.import_meta_graph({str(output)!r}), in a"
        )
        yield "                           session with config=pesto_cli.apply.session_config()"


def _gain_text(results: Sequence[Any]) -> str:
    """Return the predicted step time, compared with the better baseline and with the bound."""
    from pesto_cli.data.result import SolveStatus
    from pesto_cli.report.times import time_text

    *baselines, result = results
    fitting = [each for each in baselines if each.status is not SolveStatus.OUT_OF_MEMORY]
    best = min(fitting, key=lambda each: each.makespan_us, default=None)
    if best is None:
        ratio = "the baselines do not fit into memory"
    else:
        times = best.makespan_us / result.makespan_us if result.makespan_us else 1.0
        ratio = f"{times:.2f} times as fast as {best.strategy}"
    return (
        f"Predicted step time: {time_text(result.makespan_us)}, {ratio}. "
        f"No placement on this machine takes less than {time_text(result.lower_bound_us)}."
    )
