"""The file format of a user's constraints, in TOML."""

from pathlib import Path
from typing import Annotated

from pydantic import ConfigDict, Field

from pesto_cli.data.constraints import Constraints, Rule, SplitRule
from pesto_cli.files.storage import Schema, read_toml, validate


class _RuleSchema(Schema):
    ops: str
    device: str


class _TogetherSchema(Schema):
    ops: str


class _SplitSchema(Schema):
    ops: str
    by: str = "batch"
    parts: Annotated[int, Field(ge=2)] | None = None
    sizes: list[Annotated[int, Field(ge=1)]] = []


class _WholeSchema(Schema):
    ops: str


class ConstraintsSchema(Schema):
    """A user's constraints on a placement; a TOML file."""

    model_config = ConfigDict(title="pesto-constraints")

    pin: list[_RuleSchema] = []
    forbid: list[_RuleSchema] = []
    together: list[_TogetherSchema] = []
    headroom: float | None = None
    split: list[_SplitSchema] = []
    whole: list[_WholeSchema] = []


def read_constraints(path: Path | str) -> Constraints:
    """Read constraints from TOML.

        headroom = 0.9
        [[pin]]
        ops = "embedding/*"
        device = "GPU:0"
        [[forbid]]
        ops = "softmax/*"
        device = "GPU:1"
        [[together]]
        ops = "layer_0/*"
        [[split]]
        ops = "layer_1/*"
        by = "batch"
        parts = 2
        [[whole]]
        ops = "softmax/*"

    Raises:
        BadInputError: the file is missing or malformed.
    """
    parsed = validate(path, read_toml(path), ConstraintsSchema)
    return Constraints(
        pin=[Rule(rule.ops, rule.device) for rule in parsed.pin],
        forbid=[Rule(rule.ops, rule.device) for rule in parsed.forbid],
        together=[rule.ops for rule in parsed.together],
        headroom=parsed.headroom,
        split=[SplitRule(r.ops, r.by, r.parts, tuple(r.sizes)) for r in parsed.split],
        whole=[rule.ops for rule in parsed.whole],
    )
