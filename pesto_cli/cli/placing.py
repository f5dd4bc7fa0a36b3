"""`coarsen`, `solve`, `simulate` and `compare`: profiles in, placements out."""

import json
import math
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from pesto_cli.cli.choices import STRATEGIES, ChoiceOption, SearchCommand
from pesto_cli.cli.options import (
    PATH,
    check_output,
    echo,
    echo_json,
    echo_text,
    json_option,
    listed,
    num_nodes_option,
    output_option,
    quiet_option,
    search_options,
    summary_option,
)
from pesto_cli.cli.shown import searching
from pesto_cli.errors import INTERRUPTED, BadInputError, about


@click.command()
@click.argument("profile", type=PATH)
@output_option("the coarse profile")
@num_nodes_option
@json_option
@quiet_option()
def coarsen(profile: Path, output: Path, num_nodes: int, as_json: bool, quiet: bool) -> None:
    """Coarsen PROFILE by height-based batch merging."""
    from pesto_cli import api

    check_output(output, profile)
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
        echo_json(rows)
    elif not quiet:
        for name, row in rows.items():
            echo(
                f"{name:6} {row['ops']:6} ops, {row['tensors']:6} tensors, "
                f"critical path {row['critical_path_us'] / 1e3:.2f} ms"
            )


@click.command(cls=SearchCommand, short_help="Find a device and a place in its order for every op.")
@click.argument("profile", type=PATH)
@output_option("the placement")
@click.option(
    "--strategy",
    cls=ChoiceOption,
    choices=STRATEGIES,
    default="pesto",
    show_default=True,
    help="{names}.",
)
@search_options
@click.option(
    "--warm-start", type=PATH, help="A placement to start from, also of an earlier graph."
)
@summary_option
@json_option
@quiet_option()
def solve(
    profile: Path,
    output: Path,
    strategy: str,
    warm_start: Path | None,
    summary: Path | None,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Find a device and a place in its execution order for every op of PROFILE."""
    from pesto_cli import api
    from pesto_cli.data.result import SolveStatus
    from pesto_cli.files.job_summary import append_summary
    from pesto_cli.report.layouts import print_layouts
    from pesto_cli.report.records import result_json
    from pesto_cli.report.sections import sections_markdown
    from pesto_cli.report.solved import solved_section
    from pesto_cli.report.tables import comparison

    check_output(output, profile)
    values = _parameters([strategy], options)
    if summary is not None:
        check_output(summary, output, profile, warm_start)
    read: dict[str, Any] = {}
    priced = _constrained(profile, options, read, quiet)
    start = None
    if warm_start is not None:
        _check_takes_start(strategy)
        start = _carried_over(warm_start, priced, quiet, read)
    with _stoppable() as stop:
        context = _context_from(options, stop, quiet)
        if start is not None and start.num_by_name:
            context = replace(context, warm_start=start.placement)
        with searching(strategy, context, quiet) as watched:
            result = api.solve(priced, strategy, watched, **values)
    made_by = _made_by(strategy, values, options) | read
    placed = api.placement(priced, result, dict(sorted(made_by.items())))
    api.write_placement(output, placed)
    if summary is not None:
        section = solved_section(priced.problem, result)
        append_summary(summary, sections_markdown(f"{output.name}: solved", [section]))
    if as_json:
        echo_json(result_json(priced.problem, result))
    elif not quiet:
        print_layouts([comparison(str(output), priced.problem, [result])])
    if result.status is SolveStatus.INTERRUPTED:
        echo(f"Interrupted: the best schedule so far is in {output}.", err=True)
        sys.exit(INTERRUPTED)


@click.command(short_help="Replay a placement of PROFILE, and check it.")
@click.argument("profile", type=PATH)
@click.option("--placement", type=PATH, required=True, help="What to replay.")
@click.option("--trace", type=PATH, help="Write a Chrome trace, for Perfetto.")
@click.option(
    "--random-orders",
    type=click.IntRange(min=1),
    metavar="N",
    help="Also leave the order to chance, N times.",
)
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of these orders."
)
@json_option
@quiet_option()
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
    from pesto_cli.evaluation.memory import held_over_time
    from pesto_cli.files import atomic_write
    from pesto_cli.report.layouts import print_layouts
    from pesto_cli.report.memory import memory_text
    from pesto_cli.report.orders import chance, chance_table
    from pesto_cli.report.records import result_json
    from pesto_cli.report.tables import comparison
    from pesto_cli.report.trace import chrome_trace

    if trace is not None:
        check_output(trace, profile, placement)
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
        held = held_over_time(priced.problem, result.schedule)
        value = chrome_trace(priced.problem, result.schedule, held)
        atomic_write(trace, json.dumps(value).encode())
    if as_json:
        echo_json(record)
    elif not quiet:
        print_layouts(tables)
        if result.memory_peaks:
            echo_text(memory_text(result.memory_peaks), err=True)


@click.command(cls=SearchCommand, short_help="Solve PROFILE by every strategy, side by side.")
@click.argument("profile", type=PATH)
@click.option(
    "--strategies",
    cls=ChoiceOption,
    choices=STRATEGIES,
    default="all",
    show_default=True,
    metavar="A,B,...",
    help="Some of {names}.",
)
@search_options
@json_option
@quiet_option("no progress, only the table")
def compare(profile: Path, strategies: str, as_json: bool, quiet: bool, **options: Any) -> None:
    """Solve PROFILE by every strategy, side by side, with lower bound and gap."""
    from pesto_cli import api
    from pesto_cli.report.layouts import print_layouts
    from pesto_cli.report.records import result_json
    from pesto_cli.report.tables import comparison, expert_remark
    from pesto_cli.strategies.run import run

    if strategies == "all":
        names = list(api.STRATEGIES.usable())
    else:
        some = f"all, or some of {', '.join(api.STRATEGIES)}"
        names = listed("--strategies", strategies, some)
    values = _parameters(names, options)
    priced = _constrained(profile, options, {}, quiet)
    results: list[Any] = []
    with _stoppable() as stop:
        context = _context_from(options, stop, quiet)
        for name in names:
            with searching(name, context, quiet) as watched:
                results.append(run(priced.problem, name, watched, **values))
    if as_json:
        echo_json([result_json(priced.problem, result) for result in results])
    else:
        title = f"{profile.name}: {priced.problem.num_ops} ops"
        print_layouts([comparison(title, priced.problem, results)])
        if not quiet and (remark := expert_remark(results)):
            echo(remark, err=True)
    if stop.is_set():
        sys.exit(INTERRUPTED)


# Options that are parameters of a strategy, and what these are called.
PARAMETERS = {
    "solver": "solver",
    "num_nodes": "num_nodes",
    "no_congestion": "congestion",
    "balance": "balance",
}


def _parameters(names: Sequence[str], options: Mapping[str, Any]) -> dict[str, Any]:
    """Values of parameters that options give; one that none of the strategies has is refused."""
    from pesto_cli import api
    from pesto_cli.strategies.context import parameters

    chosen = [api.STRATEGIES.find(name) for name in names]
    values = {name: options[option] for option, name in PARAMETERS.items()}
    values["congestion"] = not options["no_congestion"]
    own = set().union(*map(parameters, chosen))
    for option, name in PARAMETERS.items():
        if name not in own and _is_given(option):
            raise BadInputError(
                f"--{option.replace('_', '-')} is no option of {' or '.join(map(repr, names))}; "
                f"it is one of {_those_with(name)}: "
                "leave it out, or choose one of these."
            )
    return {name: value for name, value in values.items() if name in own}


def _check_takes_start(strategy: str) -> None:
    from pesto_cli import api
    from pesto_cli.strategies.context import is_search

    searches = [name for name, each in api.STRATEGIES.usable().items() if is_search(each)]
    if strategy not in searches:
        raise BadInputError(
            f"strategy {strategy!r} takes no warm start; {', '.join(searches)} would: leave it "
            "out, or choose another strategy."
        )


def _made_by(
    strategy: str, values: Mapping[str, Any], options: Mapping[str, Any]
) -> dict[str, Any]:
    """What a placement depends on beside the profile, for the record."""
    from pesto_cli import api
    from pesto_cli.strategies.context import is_search, parameters, with_parameters

    chosen = with_parameters(api.STRATEGIES[strategy], **values)
    made_by = {"seed": options["seed"], **parameters(chosen)}
    if is_search(chosen):
        workers = 1 if options["deterministic"] else options["workers"]
        made_by |= {"workers": workers, "deterministic": options["deterministic"]}
        made_by["time_limit"] = options["time_limit"]
    return made_by


def _is_given(option: str) -> bool:
    source = click.get_current_context().get_parameter_source(option)
    return source is not ParameterSource.DEFAULT


def _those_with(parameter: str) -> str:
    from pesto_cli import api
    from pesto_cli.strategies.context import parameters

    known = api.STRATEGIES.usable().items()
    return ", ".join(name for name, each in known if parameter in parameters(each))


def _constrained(profile: Path, options: dict[str, Any], read: dict[str, Any], quiet: bool) -> Any:
    """The profile, with the constraints that the options ask for, which go into what was read.

    Word on stderr of what binds much of the step to one device.
    """
    from pesto_cli import api
    from pesto_cli.data.binding import binding_note

    priced = api.read_profile(profile)
    note = None if quiet else binding_note(priced.problem)
    if note is not None:
        echo(f"{profile}: {note}", err=True)
    if options.pop("keep_devices"):
        read["keep_devices"] = True
        with about(profile):
            priced = api.keep_devices(priced)
    constraints = options.pop("constraints")
    if constraints is None:
        return priced
    rules = api.read_constraints(constraints)
    read["constraints"] = asdict(rules)
    with about(constraints):
        return api.constrain(priced, rules)


def _carried_over(path: Path, priced: Any, quiet: bool, read: dict[str, Any]) -> Any:
    """A placement to start from, and word on stderr of how it fits; its hash goes into `read`."""
    from pesto_cli import api
    from pesto_cli.report.solved import carried_text, carried_warnings

    placed = api.read_placement(path)
    read["warm_start"] = placed.file_hash
    with about(path):
        carried = api.carry_over(priced, placed)
    if not quiet:
        for text in (carried_text(carried), *carried_warnings(carried)):
            echo(f"{path}: {text}", err=True)
    return carried


def _compiled_before() -> Iterator[str]:
    """What is compiled before a search begins, in words."""
    from pesto_cli import kernels
    from pesto_cli.refine.moves import MOVES

    if not kernels.are_kept():
        yield "compiling kernels, once after installation: about 40 s ..."
    if added := [name for name in MOVES if name not in MOVES.builtin]:
        yield f"compiling search moves of other packages: {', '.join(added)} ..."


def _context_from(options: dict[str, Any], stop: threading.Event, quiet: bool) -> Any:
    """The limits that the command's options ask for; kernels are compiled before they begin."""
    from pesto_cli import api, ilp

    ilp.SOLVERS.find(options["solver"])
    if math.isnan(options["time_limit"]):
        raise BadInputError("--time-limit is nan; a number of seconds was expected.")
    for text in () if quiet else _compiled_before():
        with suppress(OSError):  # nobody reads it: no reason to stop
            echo(text, err=True)
    api.warm_up()
    limits = api.Limits(
        time_limit_s=options["time_limit"],
        seed=options["seed"],
        workers=1 if options["deterministic"] else options["workers"] or os.cpu_count() or 1,
        deterministic=options["deterministic"],
        stop=stop,
    )
    return api.Context(limits=limits)


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
