"""Find the step of a placement in a graph that a program has built.

The hash of such a live graph does not help: feeds may have open sizes, and the graph may have other
ops, too. So the step is identified by the names of its ops, and checked by their types, inputs and
static sizes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from pesto_cli.data.graph import OpGraph
from pesto_cli.files import PlacementFile
from pesto_cli.files.placement import fingerprints
from pesto_cli.graphdef.conditionals import CALLS, forbid_lowering
from pesto_cli.graphdef.fetches import FED_TYPES, TRAIN_OP, Shape
from pesto_cli.graphdef.programs.live_graphs import live_step
from pesto_cli.graphdef.read import StepGraph, read_step
from pesto_cli.graphdef.simplify import simplify

SHOWN_OPS = 3
RETURN = "_retval_"


@dataclass(frozen=True)
class LiveStep:
    """A step in a live graph.

    built: the live graph as a MetaGraphDef with the fetches of this step.
    meta: the same, simplified as in the placement; its fetches are the last ops of the step.
    step: the step as read from `meta`.
    """

    built: Any
    meta: Any
    step: StepGraph


@dataclass(frozen=True)
class Difference:
    """Why the step of a graph is not that of the placement; all fields are names of ops.

    planned: ops only in the placement.
    found: ops only in the graph.
    changed: ops of another type, or with other inputs or sizes.
    calls: ops of the graph that call functions; in a captured graph these are inlined.
    seen: ops of the step that a session had seen before the others were added to the graph.
    """

    planned: Sequence[str] = ()
    found: Sequence[str] = ()
    changed: Sequence[str] = ()
    calls: Sequence[str] = ()
    seen: Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.planned) + len(self.found) + len(self.changed) + len(self.seen)

    def __str__(self) -> str:
        parts = [
            _some(self.planned, "only in the placement"),
            _some(self.found, "only in this graph"),
            _some(self.changed, "of another type, or with other inputs or sizes"),
            _some(self.calls, "a call of a tf.function, which cannot be placed in a live graph"),
            _some(self.seen, "already used by a session, before other ops were added to the graph"),
        ]
        return "; ".join(filter(None, parts))


def find_step(
    graph: Any,
    placement: PlacementFile,
    what: str,
    shapes: Mapping[str, Shape] = MappingProxyType({}),
) -> LiveStep | Difference:
    """Return the placement's step in a tf.Graph, or how the graph differs from the placement.

    what: names the program in errors. shapes: node name of a placeholder -> shape of its feed.

    Raises BadInputError for a graph that cannot be read, and for a shape that does not fit.
    """
    nodes = {operation.name: operation.type for operation in graph.get_operations()}
    calls = [name for name, kind in nodes.items() if kind in CALLS]
    ops = [name for name in placement.graph_ops if name in nodes or not name.startswith(RETURN)]
    missing = [name for name in ops if name not in nodes]
    if missing:
        return Difference(planned=missing, calls=calls)
    # The ops of the step together need the same nodes as its fetches.
    fetches = [*ops, *(_returned(name) for name in placement.graph_ops if name not in nodes)]
    feeds = {name: shapes.get(name) for name in _fed(graph, placement)}
    feeds |= {name: shape for name, shape in shapes.items() if nodes[name] in FED_TYPES}
    meta = live_step(graph, fetches, feeds, what)
    forbid_lowering(meta.graph_def)
    built = type(meta)()
    built.CopyFrom(meta)
    simplify(meta, placement.graph_ops)
    step = read_step(meta, what, open_shapes=True)
    unlike = difference(step, placement, calls)
    if unlike is not None:
        return unlike
    meta.collection_def[TRAIN_OP].node_list.value[:] = _roots(step)
    return LiveStep(built, meta, step)


def difference(
    step: StepGraph, placement: PlacementFile, calls: Sequence[str] = ()
) -> Difference | None:
    """Return how a step, whose shapes may be open, differs from that of the placement, or None.

    calls: goes into the `Difference` if the names of ops differ.
    """
    planned, found = set(placement.graph_ops), set(step.graph.names)
    if planned != found:
        return Difference(
            [name for name in placement.graph_ops if name not in found],
            [name for name in _in_order(step.graph) if name not in planned],
            calls=calls,
        )
    changed = _changed(step, placement)
    return Difference(changed=changed) if changed else None


def _roots(step: StepGraph) -> list[str]:
    """Return fetches that need the whole step: the ops without successors, fetched tensors as such.

    Other ops are no fetches: if they are split, the step need not merge their outputs.
    """
    roots: list[str] = []
    for op in np.flatnonzero(step.graph.successors.degree == 0).tolist():
        roots += step.nodes[op] or [_returned(step.graph.names[op])]
    return roots


def _fed(graph: Any, placement: PlacementFile) -> list[str]:
    """Return the names of operations, other than placeholders, that the placement's step feeds."""
    feed = fingerprints(OpGraph.build(["feed"], types=["Placeholder"]))
    named = zip(placement.graph_ops, placement.fingerprint, strict=False)
    fed = [name for name, fingerprint in named if [fingerprint] == feed]
    return [name for name in fed if graph.get_operation_by_name(name).type not in FED_TYPES]


def _changed(step: StepGraph, placement: PlacementFile) -> list[str]:
    """Return the names of ops with another fingerprint, if all their inputs have a static size."""
    graph = step.graph
    planned = dict(zip(placement.graph_ops, placement.fingerprint, strict=False))
    is_open = np.zeros(len(graph.names), dtype=bool)
    is_open[graph.consumers[step.estimated[graph.consumer_tensor]]] = True
    found = dict(
        zip(graph.names, zip(fingerprints(graph), is_open.tolist(), strict=True), strict=True)
    )
    return [
        name
        for name in _in_order(graph)
        if not found[name][1] and planned.get(name, found[name][0]) != found[name][0]
    ]


def _in_order(graph: OpGraph) -> list[str]:
    return [graph.names[op] for op in graph.topological_order.tolist()]


def _returned(name: str) -> str:
    """Return the fetched tensor of a return: `loss:0` for `_retval_loss_0`."""
    node, _, number = name.removeprefix(RETURN).rpartition("_")
    return f"{node}:{number}"


def _some(names: Sequence[str], where: str) -> str:
    if not names:
        return ""
    shown = ", ".join(map(repr, names[:SHOWN_OPS]))
    more = f", ... ({len(names)} in all)" if len(names) > SHOWN_OPS else ""
    return f"{shown}{more} {'is' if len(names) == 1 else 'are'} {where}"
