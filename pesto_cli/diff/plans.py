"""Differences between plans, and between the plan of a placement and a graph."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from pesto_cli.data.graph import OpGraph
from pesto_cli.data.plan import Choice, Plan
from pesto_cli.files.placement import PlacementFile, fingerprints


@dataclass(frozen=True)
class OtherSplit:
    """An op that two plans split in different ways; None where it is whole."""

    op: str
    before: Choice | None
    after: Choice | None


class WhyWhole(StrEnum):
    """Why an op that a placement splits starts whole in a warm start."""

    GONE = "gone"
    CHANGED = "changed"
    CANNOT = "cannot be split so"
    # It computes something else than the whole op; see `Local`.
    NOT_EXACT = "not exact"
    NO_PRICE = "no price"
    # Another op that takes the same variable starts whole.
    VARIABLE = "an op of its variable"
    # The op whose open sums it takes starts whole, or one that takes values of its parts.
    NEIGHBOUR = "an op split with it"


@dataclass(frozen=True)
class LostSplit:
    """An op that a placement splits, and that starts whole in a warm start.

    choice: how the placement splits it.
    """

    op: str
    choice: Choice
    why: WhyWhole


def split_otherwise(first: Plan, second: Plan) -> Iterator[OtherSplit]:
    """Yield the ops that only one of two plans splits, or that they split in different ways."""
    for name in dict.fromkeys((*first.choices, *second.choices)):
        before, after = first.choices.get(name), second.choices.get(name)
        if before != after:
            yield OtherSplit(name, before, after)


def unchanged_choices(placed: PlacementFile, graph: OpGraph) -> dict[str, Choice]:
    """Return the choices of a plan for the ops that have the same name, type and inputs in a graph.

    Without fingerprints in the placement file, only names are compared.
    """
    known = placed.fingerprint or [""] * len(placed.graph_ops)
    before = dict(zip(placed.graph_ops, known, strict=True))
    prints = fingerprints(graph) if placed.fingerprint else [""] * graph.num_ops
    now = dict(zip(graph.names, prints, strict=True))
    return {
        name: choice
        for name, choice in placed.plan.choices.items()
        if name in now and now[name] == before.get(name)
    }
