"""Read a GraphDef as the op graph of one training step."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pesto_cli.data.graph import BoolArray, OpGraph, Tensor
from pesto_cli.data.inputs import Inputs
from pesto_cli.data.labels import Role
from pesto_cli.errors import BadInputError, InfeasibleError, about
from pesto_cli.files import MAX_TENSOR_BYTES
from pesto_cli.files.tensorflow_names import labelled
from pesto_cli.graphdef.colocation import colocation_groups
from pesto_cli.graphdef.contraction import LEFT_OUT, Contraction, contracted, small_constants
from pesto_cli.graphdef.devices import Site, sites
from pesto_cli.graphdef.fetches import fetch_names, node_name
from pesto_cli.graphdef.hashing import graph_hash
from pesto_cli.graphdef.kernels import DEVICE_TYPES
from pesto_cli.graphdef.memory import REFERENCE_VARIABLES, forwarded_input, resident_bytes
from pesto_cli.graphdef.nodes import Node, output_number
from pesto_cli.graphdef.program_devices import device_type, program_device
from pesto_cli.graphdef.sizes import TensorSize, tensor_sizes, unbounded
from pesto_cli.graphdef.wiring import Wiring, wiring

Output = tuple[int, int]
"""(node index, output number)"""


@dataclass(frozen=True, eq=False)
class StepGraph:
    """One training step, read from a GraphDef.

    wiring: the nodes of the GraphDef that the step needs.
    sites: `[num_nodes]`, where each node of `wiring` can run.
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
    """

    graph: OpGraph
    wiring: Wiring
    sites: Sequence[Site]
    members: tuple[tuple[int, ...], ...]
    supported: Mapping[str, BoolArray]
    constants: Mapping[str, int]
    estimated: BoolArray
    size_unknown: BoolArray
    program_device: tuple[str, ...]
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
    step = _facts(meta_graph)
    members = (*step.ops.members, *[()] * len(step.returns))
    graph = _op_graph(step, members, open_shapes)
    supported = _supported(step, graph.names)
    return StepGraph(
        graph=graph,
        wiring=step.wiring,
        sites=step.sites,
        members=members,
        supported=supported,
        constants=_constants(step),
        estimated=_of_tensors(step, lambda size: not (size.is_exact or size.is_handle)),
        size_unknown=_of_tensors(step, lambda size: not (size.is_known or size.is_handle)),
        program_device=_program_device(step, graph, supported),
        graph_hash=graph_hash(meta_graph.graph_def),
    )


@dataclass(frozen=True)
class _Facts:
    """The nodes of a step, their properties, and the ops that they become.

    sites, sizes, group: `[num_nodes]`, see the modules `devices`, `sizes` and `colocation`.
    ops: map from nodes to ops.
    returns: the fetched tensors; their ops come after those of the nodes.
    """

    wiring: Wiring
    sites: Sequence[Site]
    sizes: Sequence[Sequence[TensorSize]]
    group: Sequence[int]
    ops: Contraction
    returns: Sequence[Output]

    @property
    def nodes(self) -> Sequence[Node]:
        """The nodes of the wiring."""
        return self.wiring.nodes

    @cached_property
    def consumers(self) -> Mapping[Output, Sequence[tuple[int, bool]]]:
        """Output -> (op, on_host) for each consumer in another op.

        on_host: whether the tensor is in host memory at both its producer and the consumer.
        """
        consumers: dict[Output, list[tuple[int, bool]]] = defaultdict(list)
        op_of = self.ops.op_of
        for index, node in enumerate(self.nodes):
            for (source, output), to_host in zip(
                node.inputs, self.sites[index].host_inputs, strict=True
            ):
                if op_of[source] not in (LEFT_OUT, op_of[index]):
                    on_host = to_host and self.sites[source].host_outputs[output]
                    consumers[source, output].append((op_of[index], on_host))
        for op, (source, output) in enumerate(self.returns, start=len(self.ops.members)):
            consumers[source, output].append((op, self.sites[source].host_outputs[output]))
        return consumers

    @cached_property
    def outputs(self) -> Sequence[Output]:
        """All outputs of ops in topological order; of a while loop, those with a consumer outside.

        They include outputs of single nodes that have no consumer.
        """
        return [
            (index, number)
            for index in self.wiring.order
            if self.ops.op_of[index] != LEFT_OUT
            for number in range(len(self.sizes[index]))
            if len(self.ops.members[self.ops.op_of[index]]) == 1
            or (index, number) in self.consumers
        ]


def _facts(meta_graph: Any) -> _Facts:
    fetches = fetch_names(meta_graph)
    if not fetches:
        raise BadInputError(
            "the graph names no fetches; a collection `train_op` was expected: export the graph "
            "with --fetch NAME."
        )
    step = wiring(meta_graph)
    where = sites(step.nodes, step.op_defs)
    sizes = tensor_sizes(meta_graph.graph_def, step.nodes, step.order)
    fetched = {node_name(name) for name in fetches}
    small = small_constants(step.nodes, step.frames, where, sizes, fetched)
    return _Facts(
        wiring=step,
        sites=where,
        sizes=sizes,
        group=colocation_groups(step.nodes, step.frames, step.op_defs),
        ops=contracted(step.frames, small),
        returns=_returns(step.nodes, sizes, fetches),
    )


def _op_graph(step: _Facts, members: Sequence[Sequence[int]], open_shapes: bool) -> OpGraph:
    graph = OpGraph.build(
        names=_names(step),
        types=_types(step),
        tensors=_tensors(step, open_shapes),
        control_edges=_control_edges(step),
        colocation_group=[
            *(step.group[members[0]] for members in step.ops.members),
            *[None] * len(step.returns),
        ],
        resident_bytes=[_resident_bytes(step, op) for op in members],
        alias_of=[_alias(step, op) for op in members],
        inputs=Inputs.build(_inputs(step)),
    )
    return labelled(graph)


def _returns(
    nodes: Sequence[Node], sizes: Sequence[Sequence[TensorSize]], fetches: Sequence[str]
) -> list[Output]:
    """Return the fetched tensors, once each; a fetch without output number is an op."""
    index_of = {node.name: index for index, node in enumerate(nodes)}
    returns: dict[Output, None] = {}
    for fetch in fetches:
        name, is_tensor, number = fetch.partition(":")
        if is_tensor:
            outputs = len(sizes[index_of[name]])
            output = output_number(number)
            if output is None or output >= outputs:
                raise BadInputError(
                    f"fetch {fetch!r}: op {name!r} has {outputs} outputs; {name}:NUMBER with a "
                    f"number below {outputs} was expected."
                )
            returns[index_of[name], output] = None
    return list(returns)


def _names(step: _Facts) -> list[str]:
    """Return the name of each op: that of its node; for a while loop, of its first LoopCond."""
    names = []
    for members in step.ops.members:
        conditions = (index for index in members if step.nodes[index].type == "LoopCond")
        names.append(step.nodes[next(conditions, members[0])].name)
    return names + [f"_retval_{step.nodes[index].name}_{number}" for index, number in step.returns]


def _types(step: _Facts) -> list[str]:
    types = [
        step.nodes[members[0]].type if len(members) == 1 else "While"
        for members in step.ops.members
    ]
    return types + ["_Retval"] * len(step.returns)


def _tensors(step: _Facts, open_shapes: bool) -> list[Tensor]:
    """Return the outputs as tensors.

    Raises BadInputError for an output of unknown size, unless `open_shapes`. Outputs are in
    topological order, so the error names the op where the unknown size originates.
    """
    tensors = []
    for index, number in step.outputs:
        size, found = step.sizes[index][number], step.consumers.get((index, number), ())
        if found and size.num_elements is None and not (size.is_handle or open_shapes):
            raise unbounded(step.nodes[index], size)
        _check_size(f"an output of {step.nodes[index].name!r}", size.num_bytes)
        consumers, on_host = [consumer for consumer, _ in found], [host for _, host in found]
        tensors.append(
            Tensor(
                producer=step.ops.op_of[index],
                num_bytes=size.num_bytes,
                consumers=consumers,
                consumer_on_host=on_host,
                shape=size.shape,
                dtype=size.dtype,
            )
        )
    return tensors


def _inputs(step: _Facts) -> list[list[int | None]]:
    """Return the inputs of every op by slot, as indices into `_tensors`; None for a small constant.

    The inputs of a while loop are those that its nodes have from outside the loop, in node order.
    """
    number = {output: tensor for tensor, output in enumerate(step.outputs)}
    op_of = step.ops.op_of
    of_nodes: list[list[int | None]] = [
        [
            number.get(output)
            for index in members
            for output in step.nodes[index].inputs
            if op_of[output[0]] != op_of[index]
        ]
        for members in step.ops.members
    ]
    return of_nodes + [[number[output]] for output in step.returns]


def _check_size(what: str, num_bytes: int) -> int:
    if num_bytes > MAX_TENSOR_BYTES:
        raise BadInputError(
            f"{what} takes {num_bytes:,} bytes; at most {MAX_TENSOR_BYTES:,} were expected: correct"
            " its shape."
        )
    return num_bytes


def _resident_bytes(step: _Facts, members: Sequence[int]) -> int:
    """Return the size of an op's variables in bytes."""
    names = [step.nodes[index].name for index in members]
    sizes = [resident_bytes(step.nodes[index]) for index in members]
    return sum(map(_check_size, map(repr, names), sizes))


def _control_edges(step: _Facts) -> list[tuple[int, int]]:
    """Return the control edges (tail op, head op) between ops.

    The consumers of a constant that was left out inherit its control inputs.
    """
    op_of = step.ops.op_of
    edges: set[tuple[int, int]] = set()
    for index, node in enumerate(step.nodes):
        if op_of[index] != LEFT_OUT:
            constants = [source for source in node.sources if op_of[source] == LEFT_OUT]
            edges.update((op_of[source], op_of[index]) for source in node.controls)
            edges.update((source, op_of[index]) for source in _waited_for(step, constants))
    return sorted((tail, head) for tail, head in edges if tail not in (LEFT_OUT, head))


def _waited_for(step: _Facts, constants: Sequence[int]) -> Iterator[int]:
    """Yield the ops that constants wait for, directly or through other constants left out."""
    waiting, seen = list(constants), set(constants)
    while waiting:
        for source in step.nodes[waiting.pop()].controls:
            if step.ops.op_of[source] != LEFT_OUT:
                yield step.ops.op_of[source]
            elif source not in seen:
                seen.add(source)
                waiting.append(source)


def _alias(step: _Facts, members: Sequence[int]) -> int:
    """Return the op in whose memory the outputs of an op are stored, or -1.

    A reference variable stores its output in its own memory, and so returns itself.
    """
    if len(members) != 1:
        return -1
    node = step.nodes[members[0]]
    if node.type in REFERENCE_VARIABLES:
        return step.ops.op_of[members[0]]
    place = forwarded_input(node, step.wiring.op_defs)
    return -1 if place is None else step.ops.op_of[node.inputs[place][0]]


def _supported(step: _Facts, names: Sequence[str]) -> dict[str, BoolArray]:
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
    step: _Facts, graph: OpGraph, supported: Mapping[str, BoolArray]
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


def _constants(step: _Facts) -> dict[str, int]:
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


def _of_tensors(step: _Facts, holds: Callable[[TensorSize], bool]) -> BoolArray:
    """`[num_tensors]`: whether the tensor has a consumer, and a size for which `holds` is true."""
    outputs = sorted(step.outputs, key=lambda output: step.ops.op_of[output[0]])  # as in OpGraph
    held = [
        output in step.consumers and holds(step.sizes[output[0]][output[1]]) for output in outputs
    ]
    return np.array(held, dtype=bool)
