"""Options and checks that several commands share."""

import json
import os
import re
import sys
import tempfile
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import click

from pesto_cli.cli.choices import SOLVERS, ChoiceOption
from pesto_cli.errors import BadInputError, EnvironmentFailedError
from pesto_cli.printable import printable

PATH = click.Path(path_type=Path)
Command = Callable[..., Any]


# What a size is counted in; without `i` in powers of 1000.
UNITS = {
    f"{prefix}{binary}".lower(): (1024 if binary else 1000) ** power
    for power, prefix in enumerate(("", "k", "M", "G", "T"))
    for binary in ("", "i")
}


def _limit_input(ctx: click.Context, param: click.Parameter, value: str) -> None:
    """Have a size such as `8GB` hold for all that the command reads."""
    from pesto_cli.files.reading import input_limit

    size = re.fullmatch(r"(\d{1,15}(?:\.\d{1,15})?) ?([kmgt]?i?)b?", value.lower())
    if size is None:
        raise click.BadParameter(f"{value!r} is no size; one such as 8GB or 500MiB was expected.")
    ctx.with_resource(input_limit(int(float(size[1]) * UNITS[size[2]])))


def max_input_option(command: Command) -> Command:
    """`--max-input`, of all commands."""
    return click.option(
        "--max-input",
        default="4GB",
        show_default=True,
        metavar="SIZE",
        callback=_limit_input,
        expose_value=False,
        help="Read no larger file; of a packed one, what it unpacks to.",
    )(command)


def output_option(what: str) -> Callable[[Command], Command]:
    """`-o FILE`, required."""
    return click.option("-o", "--output", type=PATH, required=True, help=f"Where to write {what}.")


def json_option(command: Command) -> Command:
    """`--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON to stdout.")(command)


def quiet_option(what: str = "neither progress nor summary") -> Callable[[Command], Command]:
    """`--quiet`."""
    return click.option("--quiet", is_flag=True, help=f"Print {what}.")


def summary_option(command: Command) -> Command:
    """`--summary`."""
    return click.option(
        "--summary", type=PATH, help="Append Markdown, as to the file of GITHUB_STEP_SUMMARY."
    )(command)


def _share(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """What share a text such as `2%` stands for."""
    if value is None:
        return None
    if re.fullmatch(r"\d{1,6}(\.\d+)?%", value) is None:
        raise click.BadParameter(
            f"{value!r} is no percentage; one such as 2% or 0.5% was expected."
        )
    return float(value[:-1]) / 100


def max_regression_option(what: str) -> Callable[[Command], Command]:
    """`--max-regression`."""
    return click.option("--max-regression", callback=_share, metavar="PERCENT", help=what)


def time_limit_option(what: str = "For the search.") -> Callable[[Command], Command]:
    """`--time-limit`."""
    return click.option(
        "--time-limit",
        type=click.FloatRange(min=0, min_open=True, max=10**7),
        default=60.0,
        show_default=True,
        metavar="SECONDS",
        help=what,
    )


def seed_option(command: Command) -> Command:
    """`--seed`."""
    return click.option(
        "--seed",
        type=click.IntRange(min=0),
        default=0,
        show_default=True,
        help="Of all that is left to chance.",
    )(command)


def deterministic_option(command: Command) -> Command:
    """`--deterministic`."""
    return click.option(
        "--deterministic",
        is_flag=True,
        help="The same answer twice: one thread, work counted instead of seconds.",
    )(command)


def num_nodes_option(command: Command) -> Command:
    """`--num-nodes`."""
    return click.option(
        "-n",
        "--num-nodes",
        type=click.IntRange(min=1),
        default=200,
        show_default=True,
        help="Size of the coarse graph.",
    )(command)


def search_options(command: Command) -> Command:
    """Options that every search takes."""
    options: list[Callable[[Command], Command]] = [
        time_limit_option(),
        click.option(
            "--solver",
            cls=ChoiceOption,
            choices=SOLVERS,
            default="cpsat",
            show_default=True,
            help="{names}.",
        ),
        num_nodes_option,
        click.option(
            "--no-congestion", is_flag=True, help="Let transfers on a link overlap in the ILP."
        ),
        click.option(
            "--balance",
            type=click.FloatRange(0, 1),
            help="Share by which the outputs on two devices may differ in the ILP.",
        ),
        seed_option,
        click.option(
            "--workers", type=click.IntRange(1, 256), help="Threads; all cores unless given."
        ),
        deterministic_option,
        click.option(
            "--constraints", type=PATH, help="TOML with pin, forbid, together and headroom."
        ),
        click.option(
            "--keep-devices",
            is_flag=True,
            help="Leave ops where the program itself puts them, by tf.device.",
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def live_options(*, steps: int) -> Callable[[Command], Command]:
    """Of steps on devices that exist; `steps` is how many by default."""
    options = [
        click.option(
            "--steps",
            type=click.IntRange(min=1),
            default=steps,
            show_default=True,
            help="How many are measured.",
        ),
        click.option(
            "--warm-up",
            type=click.IntRange(min=0),
            default=5,
            show_default=True,
            help="Steps before these.",
        ),
        click.option(
            "--feeds", metavar="SOURCE", help="FILE.npz or script.py:function; else small data."
        ),
        click.option(
            "--open-ports", is_flag=True, help="Start workers that others can reach, too."
        ),
    ]

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def check_output(output: Path, *others: Path | None) -> None:
    """Find out before the work, not after it, that its result has nowhere to go.

    others: what else the command reads or writes.
    """
    from pesto_cli.files.destination import destination

    place = destination(output)
    taken = [os.path.realpath(path) for path in others if path is not None]
    if os.path.realpath(output) in taken:
        raise BadInputError(
            f"{output} is an input or another output too, and would be lost; choose another name."
        )
    if place.is_stream:
        if place.is_joined_to(1):
            _tell_on_stderr(output)
        return
    try:
        tempfile.TemporaryFile(dir=place.path.parent).close()  # as files are written
    except OSError as error:
        raise EnvironmentFailedError(
            f"{output} cannot be written: {error.strerror}; free space or choose another path."
        ) from error


def _tell_on_stderr(output: Path) -> None:
    """Print on stderr what the command prints on stdout, where its output is written to.

    Raises:
        BadInputError: JSON was asked for, which is for a program to read from stdout.
    """
    context = click.get_current_context()
    if context.params.get("as_json") or context.params.get("form", "text") != "text":
        raise BadInputError(
            f"{output} is standard output, which JSON is printed to; choose another path."
        )
    context.with_resource(redirect_stdout(sys.stderr))


def listed(option: str, text: str, expected: str) -> list[str]:
    """The entries of `A,B,...`, each of which is there once.

    Raises:
        BadInputError: one is empty or there twice.
    """
    names = [name.strip() for name in text.split(",")]
    if "" in names:
        raise BadInputError(f"{option} {text!r} has an empty entry; {expected} were expected.")
    if twice := [name for name in names if names.count(name) > 1]:
        raise BadInputError(f"{option} {text!r} names {twice[0]} twice; name it once.")
    return names


def echo(*lines: str, err: bool = False) -> None:
    """Print lines, whose names from files are made printable here."""
    click.echo("\n".join(map(printable, lines)), err=err)


def echo_text(text: str, err: bool = False) -> None:
    """Print a text of one line or several, as `echo` does."""
    echo(*text.split("\n"), err=err)


def echo_json(value: Any) -> None:
    """Print to stdout."""
    click.echo(json.dumps(value, indent=2))
