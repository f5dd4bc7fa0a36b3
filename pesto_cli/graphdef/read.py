"""Read a GraphDef as the op graph of one training step."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pesto_cli.data.graph import BoolArray, OpGraph
from pesto_cli.data.labels import Role
from pesto_cli.errors import InfeasibleError, about
from pesto_cli.graphdef.contraction import LEFT_OUT
from pesto_cli.graphdef.devices import Site
from pesto_cli.graphdef.facts import Facts, facts
from pesto_cli.graphdef.fetches import fetch_names
from pesto_cli.graphdef.hashing import graph_hash
from pesto_cli.graphdef.kernels import DEVICE_TYPES
from pesto_cli.graphdef.op_graph import op_graph
from pesto_cli.graphdef.program_devices import device_type, program_device
from pesto_cli.graphdef.sizes import TensorSize
from pesto_cli.graphdef.wiring import Wiring


@dataclass(frozen=True, eq=False)
class StepGraph:
    """One training step, read from a GraphDef.

    wiring: the nodes of the GraphDef that the step needs.
    sites: `[num_nodes]`, where each node of `wiring` can run.
    sizes: `[num_nodes]`, the size of each output of a node.
    members: `[num_ops]`, the nodes of `wiring` that each op stands for: all nodes of a while loop,
        else the one node of its name; none for the return of a fetch.
    supported: TensorFlow device type ("CPU", "GPU") -> `[num_ops]`, whether an op can run there.
    constants: name of a small constant left out of the graph -> index of an op that consumes it.
    estimated: `[num_tensors]`, whether the size is an estimate because it depends on data.
    size_unknown: `[num_tensors]`, whether even an estimate is missing: open dimensions count as 1.
    program_device: `[num_ops]`, the device that the program itself chose, as a pattern (see
        `program_devices`). Empty if the program chose none, or one that cannot run the op:
        TensorFlow's soft placement uses another device, too. If the program placed variables of a
        colocation group, only ops with variables have a pattern in this group.
    targets: the ops that are fetched as ops, such as the train op; a tensor has a return instead.
    """

    graph: OpGraph
    wiring: Wiring
    sites: Sequence[Site]
    sizes: Sequence[Sequence[TensorSize]]
    members: tuple[tuple[int, ...], ...]
    supported: Mapping[str, BoolArray]
    constants: Mapping[str, int]
    estimated: BoolArray
    size_unknown: BoolArray
    program_device: tuple[str, ...]
    targets: frozenset[int]
    graph_hash: str

    @cached_property
    def nodes(self) -> tuple[tuple[str, ...], ...]:
        """The names of `members`."""
        return tuple(tuple(self.wiring.nodes[index].name for index in op) for op in self.members)


def read_step(meta_graph: Any, what: str = "the graph", *, open_shapes: bool = False) -> StepGraph:
    """Read the training step that computes the fetches of a MetaGraphDef.

    An op is a node that the fetches need, all nodes of a while loop together, or the return of a
    fetched tensor.

    what: names the graph in errors.
    open_shapes: accept open shapes, for callers that need only the ops and their order. An unknown
        dimension counts as 1.

    Raises:
        BadInputError: the graph names no fetches, is incomplete or cyclic, or a shape is open.
        InfeasibleError: an op has no kernel for any device type.
    """
    with about(what):
        return _step_graph(meta_graph, open_shapes)


def _step_graph(meta_graph: Any, open_shapes: bool) -> StepGraph:
    step = facts(meta_graph)
    members = (*step.ops.members, *[()] * len(step.returns))
    graph = op_graph(step, members, open_shapes)
    supported = _supported(step, graph.names)
    return StepGraph(
        graph=graph,
        wiring=step.wiring,
        sites=step.sites,
        sizes=step.sizes,
        members=members,
        supported=supported,
        constants=_constants(step),
        estimated=_of_tensors(step, lambda size: not (size.is_exact or size.is_handle)),
        size_unknown=_of_tensors(step, lambda size: not (size.is_known or size.is_handle)),
        program_device=_program_device(step, graph, supported),
        targets=frozenset(
            graph.index_of[name] for name in fetch_names(meta_graph) if name in graph.index_of
        ),
        graph_hash=graph_hash(meta_graph.graph_def),
    )


def _supported(step: Facts, names: Sequence[str]) -> dict[str, BoolArray]:
    """Return by device type which ops can run there, `[num_ops]`.

    A while loop can run on the types that can run all its nodes. The return of a fetch runs on the
    CPU.
    """
    types = [
        frozenset.intersection(*(step.sites[index].device_types for index in members))
        for members in step.ops.members
    ]
    if not all(types):
        raise InfeasibleError(
            f"the while loop of {names[types.index(frozenset())]!r} has ops that no single device "
            f"type can run together; {' or '.join(DEVICE_TYPES)} was expected to run all of them: "
            "move the ops that only one type can run out of the loop."
        )
    types += [frozenset({"CPU"})] * len(step.returns)
    return {kind: np.array([kind in able for able in types], dtype=bool) for kind in DEVICE_TYPES}


def _program_device(
    step: Facts, graph: OpGraph, supported: Mapping[str, BoolArray]
) -> tuple[str, ...]:
    """Return the field `program_device` of `StepGraph`."""
    found = [
        program_device(step.nodes[index].proto.device for index in op) for op in step.ops.members
    ] + [""] * len(step.returns)
    for op, pattern in enumerate(found):
        able = supported.get(device_type(pattern))
        if graph.labels.role[op] == Role.FEED or (able is not None and not able[op]):
            found[op] = ""
    groups = graph.colocation_group.tolist()
    of_variables = {groups[op] for op in np.flatnonzero(graph.resident_bytes) if found[op]}
    return tuple(
        "" if groups[op] in of_variables and not graph.resident_bytes[op] else pattern
        for op, pattern in enumerate(found)
    )


def _constants(step: Facts) -> dict[str, int]:
    """Return for each constant left out, by name, the index of an op that consumes it.

    An op of the constant's colocation group is preferred.
    """
    constants: dict[str, int] = {}
    for index, node in enumerate(step.nodes):
        for source, _ in node.inputs:
            if step.ops.op_of[source] == LEFT_OUT:
                name = step.nodes[source].name
                if name not in constants or step.group[source] == step.group[index]:
                    constants[name] = step.ops.op_of[index]
    return constants


def _of_tensors(step: Facts, holds: Callable[[TensorSize], bool]) -> BoolArray:
    """`[num_tensors]`: whether the tensor has a consumer, and a size for which `holds` is true."""
    outputs = sorted(step.outputs, key=lambda output: step.ops.op_of[output[0]])  # as in OpGraph
    held = [
        output in step.consumers and holds(step.sizes[output[0]][output[1]]) for output in outputs
    ]
    return np.array(held, dtype=bool)
