"""Options that change the problem: what may be split, and where ops may run."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from pesto_cli.cli.options import PATH, Command
from pesto_cli.cli.output import echo
from pesto_cli.errors import BadInputError, about

# Options whose parts may compute something else than whole ops; arguments of `api.allow_local`.
LOCAL = ("batch_norm", "random")


def _local_option(name: str, what: str) -> Callable[[Command], Command]:
    """Return an option that allows parts to compute something else than whole ops."""
    choice = click.Choice(["exact", "local"])
    return click.option(name, type=choice, default="exact", show_default=True, help=what)


def problem_options(command: Command) -> Command:
    """Add the options that `asked` reads."""
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


@dataclass(frozen=True)
class Asked:
    """What these options ask for.

    record: option -> value, of those that change the problem; a placement depends on them.
    constraints: the file of the constraints and its rules, or None.
    """

    record: Mapping[str, Any]
    constraints: tuple[Path, Any] | None

    def constrained(self, priced: Any, path: Path, quiet: bool) -> Any:
        """Return the profile with what the options ask for; path: of the profile, for messages.

        Prints a note on stderr if colocation groups bind much of the step to one device.
        """
        from pesto_cli import api
        from pesto_cli.data.binding import binding_note

        note = None if quiet else binding_note(priced.problem)
        if note is not None:
            echo(f"{path}: {note}", err=True)
        max_parts = self.record.get("max_parts")
        with about(path):
            if max_parts is not None:
                priced = api.limit_parts(priced, max_parts)
            if "whole_variables" in self.record:
                priced = api.whole_variables(priced)
            local = {name: name in self.record for name in LOCAL}
            if any(local.values()):
                priced = api.allow_local(priced, **local)
            if "keep_devices" in self.record:
                priced = api.keep_devices(priced)
        if self.constraints is None:
            return priced
        file, rules = self.constraints
        with about(file):
            _check_parts(rules.split, max_parts)
            return api.constrain(priced, rules)


def asked(options: dict[str, Any]) -> Asked:
    """Take these options out of `options`, and read the constraints."""
    from pesto_cli import api

    names = ("max_parts", "whole_variables", *LOCAL, "keep_devices")
    given = {name: options.pop(name) for name in names}
    record = {name: value for name, value in given.items() if value not in (None, False, "exact")}
    file = options.pop("constraints")
    if file is None:
        return Asked(record, None)
    rules = api.read_constraints(file)
    return Asked(record | {"constraints": asdict(rules)}, (file, rules))


def _check_parts(rules: Sequence[Any], max_parts: int | None) -> None:
    for rule in rules:
        num_parts = rule.parts or len(rule.sizes)
        if max_parts is not None and num_parts > max_parts:
            raise BadInputError(
                f"a constraint splits ops {rule.ops!r} into {num_parts} parts, but --max-parts is "
                f"{max_parts}; at most as many parts were expected: change one of them."
            )
