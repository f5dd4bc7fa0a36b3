"""Options and arguments that several commands share."""

import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from pesto_cli.cli.choices import SOLVERS, ChoiceOption
from pesto_cli.data.parts import MAX_PARTS
from pesto_cli.errors import BadInputError

# Ending of the folder in which `pesto place` keeps the files of the single steps.
FOLDER_SUFFIX = ".pesto"
Command = Callable[..., Any]


class _PathType(click.Path):
    """A path. An empty one, as of an unset variable, is not the current folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("the path is empty; the path of a file was expected.", param, ctx)
        if value == "-":
            self.fail(
                "'-' does not stand for a stream; use /dev/stdin or /dev/stdout, or ./- for a file "
                "of this name.",
                param,
                ctx,
            )
        return super().convert(value, param, ctx)


PATH = _PathType(path_type=Path)

# Units of sizes in bytes: powers of 1024 with `i`, else of 1000.
UNITS = {
    f"{prefix}{binary}".lower(): (1024 if binary else 1000) ** power
    for power, prefix in enumerate(("", "k", "M", "G", "T"))
    for binary in ("", "i")
}


def _limit_input(ctx: click.Context, param: click.Parameter, value: str) -> None:
    """Parse a size such as `8GB`, and limit all files that the command reads to it."""
    from pesto_cli.files.reading import input_limit

    size = re.fullmatch(r"(\d{1,15}(?:\.\d{1,15})?) ?([kmgt]?i?)b?", value.lower())
    if size is None:
        raise click.BadParameter(
            f"{value!r} is not a size; a size such as 8GB or 500MiB was expected."
        )
    ctx.with_resource(input_limit(int(float(size[1]) * UNITS[size[2]])))


def max_input_option(command: Command) -> Command:
    """Add `--max-input`, which holds for all commands."""
    return click.option(
        "--max-input",
        default="4GB",
        show_default=True,
        metavar="SIZE",
        callback=_limit_input,
        expose_value=False,
        help="Refuse larger input files; a compressed file counts with its uncompressed size.",
    )(command)


def output_option(what: str) -> Callable[[Command], Command]:
    """Add `-o FILE`, which is required."""
    return click.option("-o", "--output", type=PATH, required=True, help=f"Where to write {what}.")


def json_option(command: Command) -> Command:
    """Add `--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON to stdout.")(command)


def quiet_option(what: str = "neither progress nor summary") -> Callable[[Command], Command]:
    """Add `--quiet`. what: completes the sentence `Print ...`."""
    return click.option("--quiet", is_flag=True, help=f"Print {what}.")


def summary_option(command: Command) -> Command:
    """Add `--summary`."""
    return click.option(
        "--summary",
        type=PATH,
        help="Append a summary in Markdown to this file, such as $GITHUB_STEP_SUMMARY.",
    )(command)


def _share(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Return the share of a percentage: 0.02 for `2%`; None if the option is not given."""
    if value is None:
        return None
    if re.fullmatch(r"\d{1,6}(\.\d+)?%", value) is None:
        raise click.BadParameter(
            f"{value!r} is not a percentage; one such as 2% or 0.5% was expected."
        )
    return float(value[:-1]) / 100


def max_regression_option(what: str) -> Callable[[Command], Command]:
    """Add `--max-regression`."""
    return click.option("--max-regression", callback=_share, metavar="PERCENT", help=what)


def _not_nan(ctx: click.Context, param: click.Parameter, value: float) -> float:
    if math.isnan(value):
        raise BadInputError("--time-limit is nan; a number of seconds was expected.")
    return value


def _numbers_of_parts(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> tuple[int, ...]:
    """Return the numbers in `--parts`, ascending."""
    if value is None:
        return ()
    texts = listed("--parts", value, "numbers of parts, as in 2,4,8,")
    if not all(text.isdecimal() and 2 <= int(text) <= MAX_PARTS for text in texts):
        raise BadInputError(
            f"--parts is {value!r}; numbers from 2 to {MAX_PARTS}, as in 2,4,8, were expected."
        )
    return tuple(sorted(map(int, texts)))


def parts_option(what: str) -> Callable[[Command], Command]:
    """Add `--parts`."""
    return click.option("--parts", metavar="N,N,...", callback=_numbers_of_parts, help=what)


def time_limit_option(
    what: str = "Time limit of the search.", seconds: float = 60.0
) -> Callable[[Command], Command]:
    """Add `--time-limit`."""
    return click.option(
        "--time-limit",
        type=click.FloatRange(min=0, min_open=True, max=10**7),
        default=seconds,
        show_default=True,
        callback=_not_nan,
        metavar="SECONDS",
        help=what,
    )


def seed_option(command: Command) -> Command:
    """Add `--seed`."""
    return click.option(
        "--seed",
        type=click.IntRange(min=0),
        default=0,
        show_default=True,
        help="Random seed.",
    )(command)


def deterministic_option(command: Command) -> Command:
    """Add `--deterministic`."""
    return click.option(
        "--deterministic",
        is_flag=True,
        help="Give the same result in every run: use one thread, and limit work instead of time.",
    )(command)


def robust_option(command: Command) -> Command:
    """Add `--robust`."""
    return click.option(
        "--robust",
        is_flag=True,
        help="Minimise the mean step time over samples of op times and delays, which vary as they "
        "were measured.",
    )(command)


def num_nodes_option(command: Command) -> Command:
    """Add `--num-nodes`."""
    return click.option(
        "-n",
        "--num-nodes",
        type=click.IntRange(min=1),
        default=200,
        show_default=True,
        help="Number of nodes of the coarse graph.",
    )(command)


def search_options(command: Command) -> Command:
    """Add the options of all searches."""
    options: list[Callable[[Command], Command]] = [
        time_limit_option(),
        click.option(
            "--solver",
            cls=ChoiceOption,
            choices=SOLVERS,
            default="cpsat",
            show_default=True,
            help="Solver of the ILP: {names}.",
        ),
        num_nodes_option,
        click.option(
            "--no-congestion", is_flag=True, help="Let transfers on a link overlap in the ILP."
        ),
        click.option(
            "--balance",
            type=click.FloatRange(0, 1),
            help="Largest difference between the output bytes of two GPUs in the ILP, as a share "
            "of their sum.",
        ),
        seed_option,
        click.option(
            "--workers",
            type=click.IntRange(1, 256),
            help="Number of threads.  [default: all cores]",
        ),
        deterministic_option,
    ]
    for option in reversed(options):
        command = option(command)
    return command


def feeds_option(command: Command) -> Command:
    """Add `--feeds`."""
    return click.option(
        "--feeds",
        metavar="SOURCE",
        help="Data of feeds: FILE.npz or script.py:function.  [default: small generated data]",
    )(command)


def open_ports_option(command: Command) -> Command:
    """Add `--open-ports`."""
    return click.option(
        "--open-ports",
        is_flag=True,
        help="Start workers in the network of this host, where others can connect to them.",
    )(command)


def given_options(*names: str) -> dict[str, Any]:
    """Return those of some options of the running command that the user gave: {--name: value}."""
    context = click.get_current_context()
    return {
        f"--{name.replace('_', '-')}": context.params[name]
        for name in names
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }


def live_options(*, steps: int) -> Callable[[Command], Command]:
    """Add the options of steps on real devices; `steps` is the default number of steps."""
    options: list[Callable[[Command], Command]] = [
        click.option(
            "--steps",
            type=click.IntRange(min=1),
            default=steps,
            show_default=True,
            help="Number of measured steps.",
        ),
        click.option(
            "--warm-up",
            type=click.IntRange(min=0),
            default=5,
            show_default=True,
            help="Number of steps before the measured ones.",
        ),
        feeds_option,
        open_ports_option,
    ]

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def machine_option(command: Command) -> Command:
    """Add `-m`, required."""
    return click.option(
        "-m",
        "--machine",
        required=True,
        help="A preset, a machine file (TOML), or real devices: local-workers:N, local-gpus or a "
        "cluster file (TOML).",
    )(command)


def step_options(command: Command) -> Command:
    """Add `--fetch`, `--feed` and `--signature`, which choose the training step of a SOURCE."""
    command = click.option("--signature", help="The signature of a SavedModel to export.")(command)
    command = click.option(
        "--feed",
        "feeds",
        multiple=True,
        metavar="NAME=SHAPE",
        help="The shape of an input whose shape is open, such as images=32,224,224,3.",
    )(command)
    return click.option(
        "--fetch",
        "fetches",
        multiple=True,
        metavar="NAME",
        help="An op that the step runs. May be repeated; give the train op first.",
    )(command)


def file_of(source: str) -> Path:
    """Return the path in a SOURCE; for script.py:function, the path of the script."""
    script, colon, _ = source.rpartition(":")
    return Path(script if colon and script.endswith(".py") else source)


def check_script(script: Path, arguments: Sequence[str]) -> None:
    """Check that a script (.py) exists, and that any other graph has no arguments."""
    if script.suffix != ".py" and arguments:
        given = " ".join(arguments)
        raise BadInputError(
            f"arguments ({given}) are for a script, but {script} is not a script (.py); leave "
            "them out."
        )
    if script.suffix == ".py" and not script.is_file():
        raise BadInputError(f"{script} does not exist; check the path.")


def listed(option: str, text: str, expected: str, comma: str = ",") -> list[str]:
    """Return the entries of `A,B,...`.

    comma: a regular expression of what separates entries.

    Raises:
        BadInputError: an entry is empty or occurs twice.
    """
    names = [name.strip() for name in re.split(comma, text)]
    if "" in names:
        raise BadInputError(f"{option} {text!r} has an empty entry; {expected} were expected.")
    if twice := [name for name in names if names.count(name) > 1]:
        raise BadInputError(f"{option} {text!r} names {twice[0]} twice; name it once.")
    return names
