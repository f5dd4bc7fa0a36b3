"""The command line: each command reads, calls, writes and echoes."""

import json
import math
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from pesto_cli import __version__
from pesto_cli.errors import BadInputError, EnvironmentFailedError, PestoError, about

INTERRUPTED = 130
BUG = 123

_Path = click.Path(path_type=Path)
_Command = Callable[..., Any]


def main() -> None:
    """Run the command line, and turn every outcome into its exit code."""
    try:
        cli(standalone_mode=False)
    except click.exceptions.Exit as exit_:
        sys.exit(exit_.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except PestoError as error:
        click.echo("\n\n".join([f"Error: {error}", *getattr(error, "__notes__", [])]), err=True)
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("Interrupted.", err=True)
        sys.exit(INTERRUPTED)
    except OSError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(EnvironmentFailedError.exit_code)
    except Exception:
        import traceback

        traceback.print_exc()
        click.echo("This is a bug in pesto: please report it with the lines above.", err=True)
        sys.exit(BUG)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="pesto")
def cli() -> None:
    """Place the ops of a TensorFlow training graph on several devices.

    \b
    pesto export  zoo:RNNLM-2-2048 -o rnnlm.meta
    pesto profile rnnlm.meta --machine v100x2-nvlink -o rnnlm.profile.json
    pesto solve   rnnlm.profile.json -o rnnlm.placement.json
    pesto apply   rnnlm.meta rnnlm.placement.json -o rnnlm.placed.meta
    """  # noqa: D301  click reads the \\b


def _output(what: str) -> Callable[[_Command], _Command]:
    return click.option("-o", "--output", type=_Path, required=True, help=f"Where to write {what}.")


def _as_json(command: _Command) -> _Command:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON to stdout.")(command)


def _quiet(what: str = "neither progress nor summary") -> Callable[[_Command], _Command]:
    return click.option("--quiet", is_flag=True, help=f"Print {what}.")


def _search(command: _Command) -> _Command:
    """Options that every search takes."""
    options = [
        click.option(
            "--time-limit",
            type=click.FloatRange(min=0, min_open=True, max=10**7),
            default=60.0,
            show_default=True,
            metavar="SECONDS",
        ),
        click.option("--solver", default="cpsat", show_default=True, help="cpsat, cbc or highs."),
        click.option(
            "-n",
            "--num-nodes",
            type=click.IntRange(min=1),
            default=200,
            show_default=True,
            help="Size of the coarse graph.",
        ),
        click.option(
            "--no-congestion", is_flag=True, help="Let transfers on a link overlap in the ILP."
        ),
        click.option(
            "--balance",
            type=click.FloatRange(0, 1),
            help="Share by which the outputs on two devices may differ in the ILP.",
        ),
        click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True),
        click.option(
            "--workers", type=click.IntRange(1, 256), help="Threads; all cores unless given."
        ),
        click.option(
            "--deterministic",
            is_flag=True,
            help="The same answer twice: one thread, work counted instead of seconds.",
        ),
        click.option(
            "--constraints", type=_Path, help="TOML with pin, forbid, together and headroom."
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


@cli.command()
@click.argument("source")
@_output("the graph (.meta)")
@click.option("--fetch", "fetches", multiple=True, metavar="NAME", help="The train op first.")
@click.option("--feed", "feeds", multiple=True, metavar="NAME=SHAPE", help="images=32,224,224,3")
@click.option("--signature", help="Which one of a SavedModel's.")
@click.option("--optimize", is_flag=True, help="Run grappler once, now.")
@_quiet()
def export(
    source: str,
    output: Path,
    fetches: tuple[str, ...],
    feeds: tuple[str, ...],
    signature: str | None,
    optimize: bool,
    quiet: bool,
) -> None:
    """Write a flat training-step graph.

    SOURCE is script.py:function, zoo:NAME, a SavedModel directory, a .meta, a .pb or a .pbtxt.
    """
    from pesto_cli import api
    from pesto_cli.graphdef.fetches import fetch_names, parse_feed

    _check_output(output, Path(source))
    graph = api.export(
        source,
        fetches=fetches,
        feeds=dict(map(parse_feed, feeds)),
        signature=signature,
        optimize=optimize,
    )
    api.write_meta_graph(output, graph)
    if not quiet:
        fetched = ", ".join(fetch_names(graph))
        click.echo(f"{output}: {len(graph.graph_def.node)} nodes; fetches {fetched}", err=True)


@cli.command()
@click.argument("graph", type=_Path)
@click.option("-m", "--machine", required=True, help="A preset, or a machine file (TOML).")
@_output("the profile (.json or .json.gz)")
@click.option("--source", default="analytic", show_default=True, help="analytic, or csv:FILE.")
@click.option("--comm", type=_Path, help="A fit by `pesto comm`, in place of the machine's.")
@click.option("--cpu-offload", is_flag=True, help="Price GPU ops on the CPU too.")
@_as_json
@_quiet()
def profile(
    graph: Path,
    machine: str,
    output: Path,
    source: str,
    comm: Path | None,
    cpu_offload: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Price every op and transfer of GRAPH on a machine."""
    from pesto_cli import api
    from pesto_cli.report.layouts import print_layouts
    from pesto_cli.report.summary import summarize
    from pesto_cli.report.tables import profile_table

    _check_output(output, graph)
    priced = api.profile(
        api.read_meta_graph(graph),
        api.read_machine(machine),
        source=source,
        cpu_offload=cpu_offload,
        comm=None if comm is None else api.read_comm(comm),
        what=str(graph),
    )
    api.write_profile(output, priced)
    summary = summarize(priced.problem, api.critical_path_us(priced.problem))
    if as_json:
        _echo_json(asdict(summary))
    elif not quiet:
        print_layouts([profile_table(graph.name, summary)])


@cli.command()
@click.option("--from", "samples", type=_Path, required=True, metavar="CSV")
@_output("the fit")
@_as_json
@_quiet()
def comm(samples: Path, output: Path, as_json: bool, quiet: bool) -> None:
    """Fit latency and slope of transfers by linear regression.

    CSV has the columns src kind, dst kind, bytes and us.
    """
    from pesto_cli import api
    from pesto_cli.profile.comm import fit, read_samples
    from pesto_cli.report.layouts import print_layouts
    from pesto_cli.report.tables import comm_table

    _check_output(output, samples)
    fits = fit(read_samples(samples))
    api.write_comm(output, fits)
    if as_json:
        _echo_json([asdict(row) for row in fits])
    elif not quiet:
        print_layouts([comm_table(samples.name, fits)])


@cli.command()
@click.argument("profile", type=_Path)
@_output("the coarse profile")
@click.option("-n", "--num-nodes", type=click.IntRange(min=1), default=200, show_default=True)
@_as_json
@_quiet()
def coarsen(profile: Path, output: Path, num_nodes: int, as_json: bool, quiet: bool) -> None:
    """Coarsen PROFILE by height-based batch merging."""
    from pesto_cli import api

    _check_output(output, profile)
    fine = api.read_profile(profile)
    coarse = api.coarsen(fine, num_nodes)
    api.write_profile(output, coarse)
    rows = {
        name: {
            "ops": part.problem.num_ops,
            "tensors": part.problem.graph.num_tensors,
            "critical_path_us": api.critical_path_us(part.problem),
        }
        for name, part in (("fine", fine), ("coarse", coarse))
    }
    if as_json:
        _echo_json(rows)
    elif not quiet:
        for name, row in rows.items():
            click.echo(
                f"{name:6} {row['ops']:6} ops, {row['tensors']:6} tensors, "
                f"critical path {row['critical_path_us'] / 1e3:.2f} ms"
            )


@cli.command()
@click.argument("profile", type=_Path)
@_output("the placement")
@click.option("--strategy", default="pesto", show_default=True)
@_search
@click.option("--warm-start", type=_Path, help="A placement to start from.")
@_as_json
@_quiet()
def solve(
    profile: Path,
    output: Path,
    strategy: str,
    warm_start: Path | None,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Find a device and a place in its execution order for every op of PROFILE."""
    from pesto_cli import api
    from pesto_cli.report.layouts import print_layouts
    from pesto_cli.report.records import result_json
    from pesto_cli.report.tables import comparison
    from pesto_cli.result import SolveStatus

    _check_output(output, profile)
    priced = _constrained(profile, options.pop("constraints"))
    start = None
    if warm_start is not None and strategy != "pesto":
        raise BadInputError(f"strategy {strategy!r} takes no warm start; 'pesto' does.")
    if warm_start is not None:
        start = api.read_placement(warm_start).match(priced.problem)
    with _stoppable() as stop:
        search = _search_from(options, stop, quiet, warm_start=start)
        with _progress(strategy, search, quiet) as watched:
            result = api.solve(priced, strategy, watched)
    if options["deterministic"]:
        options["workers"] = 1
    placed = api.placement(priced, result, options)
    api.write_placement(output, placed)
    if as_json:
        _echo_json(result_json(priced.problem, result))
    elif not quiet:
        print_layouts([comparison(str(output), priced.problem, [result])])
    if result.status is SolveStatus.INTERRUPTED:
        click.echo(f"Interrupted: the best schedule so far is in {output}.", err=True)
        sys.exit(INTERRUPTED)


@cli.command()
@click.argument("profile", type=_Path)
@click.option("--placement", type=_Path, required=True)
@click.option("--trace", type=_Path, help="Write a Chrome trace, for Perfetto.")
@click.option(
    "--random-orders",
    type=click.IntRange(min=1),
    metavar="N",
    help="Also leave the order to chance, N times.",
)
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of these orders."
)
@_as_json
@_quiet()
def simulate(
    profile: Path,
    placement: Path,
    trace: Path | None,
    random_orders: int | None,
    seed: int,
    as_json: bool,
    quiet: bool,
) -> None:
    """Replay a placement of PROFILE and check it against every rule of the execution model."""
    from pesto_cli import api
    from pesto_cli.files import atomic_write
    from pesto_cli.report.layouts import print_layouts
    from pesto_cli.report.memory import memory_text
    from pesto_cli.report.orders import chance, chance_table
    from pesto_cli.report.records import result_json
    from pesto_cli.report.tables import comparison
    from pesto_cli.report.trace import chrome_trace

    priced = api.read_profile(profile)
    placed = api.read_placement(placement)
    result = api.simulate(priced, placed)
    record = result_json(priced.problem, result)
    tables = [comparison(placement.name, priced.problem, [result])]
    if random_orders is not None:
        random_us = api.random_orders_us(priced, placed, random_orders, seed)
        found = chance(result.makespan_us, random_us)
        record["random_orders"] = {"seed": seed, "makespan_us": random_us.tolist(), **asdict(found)}
        tables.append(chance_table(result.makespan_us, found))
    if trace is not None:
        value = chrome_trace(priced.problem, result.schedule)
        atomic_write(trace, json.dumps(value).encode())
    if as_json:
        _echo_json(record)
    elif not quiet:
        print_layouts(tables)
        if result.memory_peaks:
            click.echo(memory_text(result.memory_peaks), err=True)


@cli.command()
@click.argument("profile", type=_Path)
@click.option("--strategies", default="all", show_default=True, metavar="A,B,...")
@_search
@_as_json
@_quiet("no progress, only the table")
def compare(profile: Path, strategies: str, as_json: bool, quiet: bool, **options: Any) -> None:
    """Solve PROFILE by every strategy, side by side, with lower bound and gap."""
    from pesto_cli import api
    from pesto_cli.report.layouts import print_layouts
    from pesto_cli.report.records import result_json
    from pesto_cli.report.tables import comparison

    names = list(api.STRATEGIES) if strategies == "all" else strategies.split(",")
    priced = _constrained(profile, options.pop("constraints"))
    results = []
    with _stoppable() as stop:
        search = _search_from(options, stop, quiet)
        for name in names:
            with _progress(name, search, quiet) as watched:
                results += api.compare(priced, [name], watched)
    if as_json:
        _echo_json([result_json(priced.problem, result) for result in results])
    else:
        title = f"{profile.name}: {priced.problem.num_ops} ops"
        print_layouts([comparison(title, priced.problem, results)])
    if stop.is_set():
        sys.exit(INTERRUPTED)


@cli.command()
@click.argument("graph", type=_Path)
@click.argument("placement", type=_Path)
@_output("the placed graph (.meta)")
@click.option(
    "--order",
    type=click.Choice(["full", "none"]),
    default="full",
    show_default=True,
    help="Enforce each device's order by control dependencies, or leave it to TensorFlow.",
)
@click.option("--devices", default="", metavar="GPU:0=/device:CPU:0,...", help="Devices at hand.")
@click.option("--tf-pesto", type=_Path, metavar="DIR", help="Also write part.json and cdep.json.")
@_quiet()
def apply(
    graph: Path,
    placement: Path,
    output: Path,
    order: str,
    devices: str,
    tf_pesto: Path | None,
    quiet: bool,
) -> None:
    """Write PLACEMENT into GRAPH: devices and control dependencies."""
    from pesto_cli import api
    from pesto_cli.apply import parse_devices, planned_changes, with_changes, write_tf_pesto

    _check_output(output, graph, placement)
    meta, placed = api.read_meta_graph(graph), api.read_placement(placement)
    changes = planned_changes(
        meta,
        placed,
        order="full" if order == "full" else "none",
        devices=parse_devices(devices),
        what=str(graph),
    )
    if tf_pesto is not None:
        write_tf_pesto(tf_pesto, changes)
    api.write_meta_graph(output, with_changes(meta, changes))
    if not quiet:
        click.echo(
            f"{output}: {len(changes.device)} nodes placed, "
            f"{sum(map(len, changes.waits_for.values()))} control dependencies added. Run it with "
            "pesto_cli.apply.session_config(), or TensorFlow may move ops or lose their order.",
            err=True,
        )


def _constrained(profile: Path, constraints: Path | None) -> Any:
    from pesto_cli import api

    priced = api.read_profile(profile)
    if constraints is None:
        return priced
    rules = api.read_constraints(constraints)
    with about(constraints):
        return api.constrain(priced, rules)


def _search_from(
    options: dict[str, Any], stop: threading.Event, quiet: bool, warm_start: Any = None
) -> Any:
    """The search that the command's options ask for."""
    from pesto_cli import api, ilp

    if options["solver"] not in ilp.SOLVERS:
        raise BadInputError(
            f"solver {options['solver']!r} is unknown; one of {', '.join(ilp.SOLVERS)} "
            "was expected."
        )
    if math.isnan(options["time_limit"]):
        raise BadInputError("--time-limit is nan; a number of seconds was expected.")
    notice = threading.Timer(
        2.0, click.echo, ["compiling kernels, once: about 20 s ..."], {"err": True}
    )
    if not quiet:
        notice.start()
    api.warm_up()
    notice.cancel()
    limits = api.Limits(
        time_limit_s=options["time_limit"],
        seed=options["seed"],
        workers=1 if options["deterministic"] else options["workers"] or os.cpu_count() or 1,
        deterministic=options["deterministic"],
        stop=stop,
    )
    return api.Search(
        limits=limits,
        solver=options["solver"],
        num_nodes=options["num_nodes"],
        congestion=not options["no_congestion"],
        balance=options["balance"],
        warm_start=warm_start,
    )


@contextmanager
def _progress(strategy: str, search: Any, quiet: bool) -> Iterator[Any]:
    """The same search, with progress on stderr unless quiet."""
    from pesto_cli.report.progress import progress_on_stderr

    if quiet:
        yield search
        return
    with progress_on_stderr(strategy, search.limits) as tell:
        yield replace(search, on_progress=tell)


@contextmanager
def _stoppable() -> Iterator[threading.Event]:
    """The first Ctrl-C asks the search to stop with the best so far; a second one ends it."""
    stop = threading.Event()

    def ask(signum: int, frame: Any) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)


def _check_output(output: Path, *inputs: Path) -> None:
    """Find out before the work, not after it, that its result has nowhere to go."""
    if not output.parent.is_dir():
        raise BadInputError(f"{output}: folder {output.parent} does not exist; create it first.")
    if output.is_dir():
        raise BadInputError(f"{output} is a folder; a file name was expected.")
    if output.resolve() in [path.resolve() for path in inputs]:
        raise BadInputError(f"{output} is the input, and would be lost; choose another output.")


def _echo_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2))
