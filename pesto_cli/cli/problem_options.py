"""Options that change the problem: what may be split, and where ops may run."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from pesto_cli.cli.options import PATH, Command
from pesto_cli.cli.output import echo
from pesto_cli.errors import BadInputError, about


def _local_option(name: str, what: str) -> Callable[[Command], Command]:
    """Return an option that allows parts to compute something else than whole ops."""
    choice = click.Choice(["exact", "local"])
    return click.option(name, type=choice, default="exact", show_default=True, help=what)


def problem_options(command: Command) -> Command:
    """Add the options that `constrained` reads."""
    options: list[Callable[[Command], Command]] = [
        click.option(
            "--max-parts",
            type=click.IntRange(min=1),
            metavar="N",
            help="Split ops into at most N parts; 1 keeps all ops whole.  [default: the largest "
            "number that the profile prices]",
        ),
        click.option(
            "--whole-variables",
            is_flag=True,
            help="Neither split nor mirror variables: Keras models and programs of TensorFlow 2 "
            "need it.",
        ),
        _local_option(
            "--batch-norm",
            "local: parts of batch normalisation use the statistics of their own rows, which "
            "changes what is computed.",
        ),
        _local_option(
            "--random", "local: parts of random ops draw other numbers than the whole op."
        ),
        click.option(
            "--constraints",
            type=PATH,
            help="Constraints (TOML): pin, forbid, together, headroom, split, whole.",
        ),
        click.option(
            "--keep-devices",
            is_flag=True,
            help="Keep ops on the devices that the program itself sets by tf.device.",
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def constrained(
    priced: Any, path: Path, options: dict[str, Any], record: dict[str, Any], quiet: bool
) -> Any:
    """Take these options out of `options`, and return the profile with what they ask for.

    Prints a note on stderr if colocation groups bind much of the step to one device.

    path: of the profile, for messages.
    record: receives what the placement will depend on.
    """
    from pesto_cli import api
    from pesto_cli.data.binding import binding_note

    note = None if quiet else binding_note(priced.problem)
    if note is not None:
        echo(f"{path}: {note}", err=True)
    max_parts = options.pop("max_parts")
    if max_parts is not None:
        record["max_parts"] = max_parts
        with about(path):
            priced = api.limit_parts(priced, max_parts)
    if options.pop("whole_variables"):
        record["whole_variables"] = True
        priced = api.whole_variables(priced)
    local = {name: options.pop(name) == "local" for name in ("batch_norm", "random")}
    if any(local.values()):
        record |= {name: "local" for name, is_local in local.items() if is_local}
        priced = api.allow_local(priced, **local)
    if options.pop("keep_devices"):
        record["keep_devices"] = True
        with about(path):
            priced = api.keep_devices(priced)
    constraints = options.pop("constraints")
    if constraints is None:
        return priced
    rules = api.read_constraints(constraints)
    record["constraints"] = asdict(rules)
    with about(constraints):
        _check_parts(rules.split, max_parts)
        return api.constrain(priced, rules)


def _check_parts(rules: Sequence[Any], max_parts: int | None) -> None:
    for rule in rules:
        num_parts = rule.parts or len(rule.sizes)
        if max_parts is not None and num_parts > max_parts:
            raise BadInputError(
                f"a constraint splits ops {rule.ops!r} into {num_parts} parts, but --max-parts is "
                f"{max_parts}; at most as many parts were expected: change one of them."
            )
