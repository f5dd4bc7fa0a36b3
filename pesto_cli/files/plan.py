"""How a placement file stores its plan, and of which ops its rows are parts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from pesto_cli.data.plan import Choice, Plan
from pesto_cli.errors import BadInputError
from pesto_cli.files.storage import Schema

_Index = Annotated[int, Field(ge=0, lt=2**31)]


class ChoiceSchema(Schema):
    """One way to split an op, which several ops may share."""

    alternative: str
    """Name of the alternative, such as `rows`."""
    sizes: list[_Index]
    """Units of the factor in each part; all 1 if the alternative has no factor."""


class PlanSchema(Schema):
    """How ops are split before they are placed; empty if all are whole."""

    choices: list[ChoiceSchema] = []
    ops: dict[str, _Index] = {}
    """For each op that is split, the index of its choice in `choices`."""
    hosts: list[_Index] = []
    """The host for which each part is meant, if sums and copies are made once for each host."""
    bucket_bytes: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """The largest size of gradients that are added together; 0: each is added on its own."""
    islands: list[_Index] = []
    """The island of each part, if a share of large tensors is sent to each island once."""


class PartsSchema(Schema):
    """For a placement with a plan: the ops of which its rows are parts."""

    ops: list[str] = []
    """Names of the ops of the graph, before ops were split."""
    origin: list[Annotated[int, Field(ge=-1, lt=2**31)]] = []
    """For each placed op, the index in `ops` of the op that it is or is a part of; -1 for an op
    that the plan adds."""
    part: list[Annotated[int, Field(ge=-1, lt=2**31)]] = []
    """For each placed op, the index of its part; -1 if the op is no part."""


@dataclass(frozen=True)
class PlacedParts:
    """The ops of which the rows of a placement are parts; fields as in `PartsSchema`."""

    ops: Sequence[str]
    origin: Sequence[int]
    part: Sequence[int]


def plan_of(parsed: PlanSchema) -> Plan:
    """Return the plan of a file.

    Raises:
        BadInputError: an op has a choice that is not in the file, or the hosts are not those of the
            parts.
    """
    choices = [Choice(each.alternative, tuple(each.sizes)) for each in parsed.choices]
    for name, index in parsed.ops.items():
        if index >= len(choices):
            raise BadInputError(
                f"plan.ops gives op {name!r} choice {index}; an index into the {len(choices)} "
                "entries of plan.choices was expected."
            )
    num_parts = max((len(choice.sizes) for choice in choices), default=0)
    _check_groups("host", parsed.hosts, num_parts)
    _check_groups("island", parsed.islands, num_parts)
    if parsed.hosts and parsed.islands:
        raise BadInputError("the plan has hosts and islands; at most one of them was expected.")
    return Plan(
        {name: choices[index] for name, index in parsed.ops.items()},
        tuple(parsed.hosts),
        parsed.bucket_bytes,
        tuple(parsed.islands),
    )


def _check_groups(kind: str, groups: Sequence[int], num_parts: int) -> None:
    if groups and len(groups) < num_parts:
        raise BadInputError(
            f"plan.{kind}s has {len(groups)} entries; one for each of {num_parts} parts was "
            "expected."
        )
    if groups and max(groups) >= len(groups):
        raise BadInputError(
            f"plan.{kind}s names {kind} {max(groups)}; numbers from 0 to {len(groups) - 1} were "
            f"expected, as there are at most as many {kind}s as parts."
        )


def plan_json(plan: Plan) -> Mapping[str, Any]:
    """Return a plan as it is stored: equal choices once."""
    if not plan:
        return {}
    number: dict[Choice, int] = {}
    ops = {name: number.setdefault(choice, len(number)) for name, choice in plan.choices.items()}
    return {
        "choices": [
            {"alternative": choice.alternative, "sizes": list(choice.sizes)} for choice in number
        ],
        "ops": ops,
        "hosts": _for_each_part(plan.hosts, plan.num_parts),
        "bucket_bytes": plan.bucket_bytes,
        "islands": _for_each_part(plan.islands, plan.num_parts),
    }


def _for_each_part(groups: Sequence[int], num_parts: int) -> list[int]:
    """Return the host or island of each part; those that a plan does not name are for the first."""
    return [*groups, *[0] * (num_parts - len(groups))] if groups else []


def parts_of(parsed: PartsSchema, plan: Plan, num_placed: int) -> PlacedParts | None:
    """Return the parts of a file; None if it has none.

    Raises:
        BadInputError: a column has another length, an index is out of range, or the plan splits an
            op that is not in the file.
    """
    if not (parsed.ops or plan):
        return None
    if not plan:
        raise BadInputError("there are parts without a plan; plan.ops was expected with them.")
    if len(set(parsed.ops)) < len(parsed.ops):
        raise BadInputError("parts.ops names an op twice; unique names were expected.")
    unknown = sorted(plan.choices.keys() - set(parsed.ops))
    if unknown:
        raise BadInputError(
            f"plan.ops splits op {unknown[0]!r}, which is not in parts.ops; one of its "
            f"{len(parsed.ops)} names was expected."
        )
    if not len(parsed.origin) == len(parsed.part) == num_placed:
        raise BadInputError(
            f"parts.origin and part have {len(parsed.origin)} and {len(parsed.part)} entries; one "
            f"for each of the {num_placed} placed ops was expected."
        )
    largest = max(parsed.origin, default=-1)
    if largest >= len(parsed.ops):
        raise BadInputError(
            f"parts.origin names op {largest}; an index into the {len(parsed.ops)} entries of "
            "parts.ops was expected."
        )
    return PlacedParts(parsed.ops, parsed.origin, parsed.part)


def parts_json(parts: PlacedParts | None) -> Mapping[str, Any]:
    """Return the parts of a placement as they are stored."""
    if parts is None:
        return {}
    return {"ops": list(parts.ops), "origin": list(parts.origin), "part": list(parts.part)}
