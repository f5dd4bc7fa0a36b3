"""Differences between plans, and between the plan of a placement and a graph."""

from collections.abc import Iterator
from dataclasses import dataclass

from pesto_cli.data.graph import OpGraph
from pesto_cli.data.plan import Choice, Plan
from pesto_cli.files.placement import PlacementFile, fingerprints


@dataclass(frozen=True)
class OtherSplit:
    """An op that two plans split in different ways; None where it is whole."""

    op: str
    before: Choice | None
    after: Choice | None


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


def lost_splits(
    placed: PlacementFile, graph: OpGraph, graph_hash: str | None
) -> tuple[OtherSplit, ...]:
    """Return the ops that a placement splits, and that a graph does not have or that have changed.

    graph_hash: the hash of the graph, None if it is unknown. If it is that of the placed graph, no
        op has changed.
    """
    if graph_hash is not None and graph_hash == placed.graph_hash:
        return ()
    kept = unchanged_choices(placed, graph)
    lost = placed.plan.choices.items()
    return tuple(OtherSplit(name, choice, None) for name, choice in lost if name not in kept)
