"""Make the op graph of a step from the facts about its nodes."""

from collections.abc import Iterator, Sequence

from pesto_cli.data.graph import OpGraph, Tensor
from pesto_cli.data.inputs import Inputs
from pesto_cli.errors import BadInputError
from pesto_cli.files import MAX_TENSOR_BYTES
from pesto_cli.files.tensorflow_names import labelled
from pesto_cli.graphdef.contraction import LEFT_OUT
from pesto_cli.graphdef.facts import Facts
from pesto_cli.graphdef.memory import REFERENCE_VARIABLES, forwarded_input, resident_bytes
from pesto_cli.graphdef.outside_step import first_handles
from pesto_cli.graphdef.sizes import unbounded


def op_graph(step: Facts, members: Sequence[Sequence[int]], open_shapes: bool) -> OpGraph:
    """Return the op graph; members: `[num_ops]`, the nodes that each op stands for.

    Raises:
        BadInputError: a tensor is too large, or its size is unknown and not `open_shapes`.
    """
    graph = OpGraph.build(
        names=_names(step),
        types=_types(step),
        tensors=_tensors(step, open_shapes),
        control_edges=_control_edges(step),
        colocation_group=[
            *(step.group[members[0]] for members in step.ops.members),
            *[None] * len(step.returns),
        ],
        resident_bytes=_resident_bytes(step, members),
        alias_of=[_alias(step, op) for op in members],
        inputs=Inputs.build(_inputs(step)),
    )
    return labelled(graph)


def _names(step: Facts) -> list[str]:
    """Return the name of each op: that of its node; for a while loop, of its first LoopCond."""
    names = []
    for members in step.ops.members:
        conditions = (index for index in members if step.nodes[index].type == "LoopCond")
        names.append(step.nodes[next(conditions, members[0])].name)
    return names + [f"_retval_{step.nodes[index].name}_{number}" for index, number in step.returns]


def _types(step: Facts) -> list[str]:
    types = [
        step.nodes[members[0]].type if len(members) == 1 else "While"
        for members in step.ops.members
    ]
    return types + ["_Retval"] * len(step.returns)


def _tensors(step: Facts, open_shapes: bool) -> list[Tensor]:
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


def _inputs(step: Facts) -> list[list[int | None]]:
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


def _resident_bytes(step: Facts, members: Sequence[Sequence[int]]) -> list[int]:
    """Return the size of each op's variables in bytes; one with several handles counts once."""
    first = first_handles(step.nodes)
    sizes = [0] * len(step.nodes)
    for index, node in enumerate(step.nodes):
        if first.get(index, index) == index:
            sizes[index] = _check_size(repr(node.name), resident_bytes(node))
    return [sum(sizes[index] for index in op) for op in members]


def _control_edges(step: Facts) -> list[tuple[int, int]]:
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


def _waited_for(step: Facts, constants: Sequence[int]) -> Iterator[int]:
    """Yield the ops that constants wait for, directly or through other constants left out."""
    waiting, seen = list(constants), set(constants)
    while waiting:
        for source in step.nodes[waiting.pop()].controls:
            if step.ops.op_of[source] != LEFT_OUT:
                yield step.ops.op_of[source]
            elif source not in seen:
                seen.add(source)
                waiting.append(source)


def _alias(step: Facts, members: Sequence[int]) -> int:
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
