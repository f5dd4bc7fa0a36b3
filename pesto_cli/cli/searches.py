"""Shared parts of the commands that search: values of their options, and Ctrl-C."""

import os
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from pesto_cli.cli.output import echo
from pesto_cli.errors import BadInputError, about

# Options that set parameters of strategies, and the names of these parameters. A command may lack
# some of these options.
PARAMETERS = {
    "solver": "solver",
    "num_nodes": "num_nodes",
    "no_congestion": "congestion",
    "balance": "balance",
    "robust": "robust",
    "weights": "weights",
}


def parameters_from(names: Sequence[str], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of these strategies with the values of the options.

    Raises:
        BadInputError: an option was given for a parameter that none of the strategies has.
    """
    from pesto_cli import api
    from pesto_cli.strategies.context import parameters

    chosen = [api.STRATEGIES.find(name) for name in names]
    known = {option: name for option, name in PARAMETERS.items() if option in options}
    values = {name: options[option] for option, name in known.items()}
    values["congestion"] = not options["no_congestion"]
    own = set().union(*map(parameters, chosen))
    for option, name in known.items():
        if name not in own and _is_given(option):
            raise BadInputError(
                f"--{option.replace('_', '-')} is not an option of "
                f"{' or '.join(map(repr, names))}, but of {_those_with(name)}: leave it out, or "
                "choose one of these strategies."
            )
    return {name: value for name, value in values.items() if name in own}


def check_takes_start(strategy: str) -> None:
    """Refuse a warm start for a strategy that does not search."""
    from pesto_cli import api
    from pesto_cli.strategies.context import is_search

    searches = [name for name, each in api.STRATEGIES.usable().items() if is_search(each)]
    if strategy not in searches:
        raise BadInputError(
            f"strategy {strategy!r} takes no warm start, but {', '.join(searches)} can: leave it "
            "out, or choose another strategy."
        )


def made_by(strategy: str, values: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that a placement depends on, for its provenance."""
    from pesto_cli import api
    from pesto_cli.strategies.context import is_search, parameters, with_parameters

    chosen = with_parameters(api.STRATEGIES[strategy], **values)
    found = {"seed": options["seed"], **parameters(chosen)}
    if is_search(chosen):
        workers = 1 if options["deterministic"] else options["workers"]
        found |= {"workers": workers, "deterministic": options["deterministic"]}
        found["time_limit"] = options["time_limit"]
    return found


def _is_given(option: str) -> bool:
    source = click.get_current_context().get_parameter_source(option)
    return source is not ParameterSource.DEFAULT


def _those_with(parameter: str) -> str:
    from pesto_cli import api
    from pesto_cli.strategies.context import parameters

    known = api.STRATEGIES.usable().items()
    return ", ".join(name for name, each in known if parameter in parameters(each))


def map_placement(path: Path, priced: Any, quiet: bool, read: dict[str, Any]) -> Any:
    """Return a placement file mapped to this graph, to start from, and record its hash in `read`.

    Prints on stderr how many ops it covers.
    """
    from pesto_cli import api
    from pesto_cli.report.search_summary import (
        mapping_text,
        mapping_warnings,
        split_start_text,
    )

    placed = api.read_placement(path)
    read["warm_start"] = placed.file_hash
    with about(path):
        carried = api.carry_over(priced, placed)
    if not quiet:
        split, used = list[str](), carried
        if placed.plan:
            split = [split_start_text(placed.plan, priced.problem, carried.split)]
        if carried.split is not None:
            used = carried.split.mapped
        for text in (*split, mapping_text(used), *mapping_warnings(used)):
            echo(f"{path}: {text}", err=True)
    return carried


def _compiled_before() -> Iterator[str]:
    """Yield a message for each group of kernels that is compiled before the search begins."""
    from pesto_cli import kernels
    from pesto_cli.refine.moves import MOVES

    if not kernels.are_cached():
        yield "compiling kernels, once after installation: about 40 s ..."
    if added := [name for name in MOVES if name not in MOVES.builtin]:
        yield f"compiling search moves of other packages: {', '.join(added)} ..."


def compile_before(quiet: bool) -> None:
    """Compile the kernels that a search needs, before its time is counted."""
    from pesto_cli import api

    for text in () if quiet else _compiled_before():
        with suppress(OSError):  # stderr is closed: no reason to stop
            echo(text, err=True)
    api.warm_up()


def context_from(options: dict[str, Any], stop: threading.Event, quiet: bool) -> Any:
    """Return a context with the limits of the options; compile kernels before time is counted."""
    from pesto_cli import api, ilp

    ilp.SOLVERS.find(options["solver"])
    compile_before(quiet)
    limits = api.Limits(
        time_limit_s=options["time_limit"],
        seed=options["seed"],
        workers=1 if options["deterministic"] else options["workers"] or os.cpu_count() or 1,
        deterministic=options["deterministic"],
        stop=stop,
    )
    return api.Context(limits=limits)


def print_notes(result: Any) -> None:
    """Print on stderr which parts of a search did not run."""
    for note in result.solution.notes:
        echo(note, err=True)


@contextmanager
def stoppable() -> Iterator[threading.Event]:
    """Yield an event that the first Ctrl-C sets, to end the search with the best schedule so far.

    A second Ctrl-C raises KeyboardInterrupt.
    """
    stop = threading.Event()

    def request_stop(signum: int, frame: Any) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = signal.signal(signal.SIGINT, request_stop)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)
