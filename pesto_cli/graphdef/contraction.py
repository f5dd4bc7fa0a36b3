"""Map nodes to ops: all nodes of a while loop become one op, small constants become none."""

from collections.abc import Sequence, Set
from dataclasses import dataclass

from pesto_cli.data.specs import SMALL_CONSTANT_ELEMENTS
from pesto_cli.graphdef.devices import Site
from pesto_cli.graphdef.kernels import DEVICE_TYPES
from pesto_cli.graphdef.nodes import Node
from pesto_cli.graphdef.sizes import TensorSize

LEFT_OUT = -1


@dataclass(frozen=True)
class Contraction:
    """The map from nodes to ops; ops are in the order of their first nodes.

    members: `[num_ops]`, node indices of every op.
    op_of: `[num_nodes]`, op index, or LEFT_OUT.
    """

    members: tuple[tuple[int, ...], ...]
    op_of: tuple[int, ...]


def contracted(frames: Sequence[str | None], left_out: Set[int]) -> Contraction:
    """Return one op for every outermost frame and one for every node outside frames.

    Node indices in `left_out` belong to no op. frames: `[num_nodes]`, outermost frame or None.
    """
    members: dict[str | int, list[int]] = {}
    for index, frame in enumerate(frames):
        if index not in left_out:
            members.setdefault(index if frame is None else frame, []).append(index)
    op_of = [LEFT_OUT] * len(frames)
    for op, indices in enumerate(members.values()):
        for index in indices:
            op_of[index] = op
    return Contraction(tuple(map(tuple, members.values())), tuple(op_of))


def small_constants(
    nodes: Sequence[Node],
    frames: Sequence[str | None],
    sites: Sequence[Site],
    sizes: Sequence[Sequence[TensorSize]],
    fetched: Set[str],
) -> frozenset[int]:
    """Return the indices of the constants that TensorFlow copies to the devices of their consumers.

    Left out are constants inside loops, constants that a GPU cannot hold (strings), fetched
    constants, and constants without a consumer of their data.
    """
    taken = {source for node in nodes for source, _ in node.inputs}
    return frozenset(
        index
        for index, node in enumerate(nodes)
        if node.type == "Const"
        and frames[index] is None
        and index in taken
        and node.name not in fetched
        and sizes[index][0].known_elements <= SMALL_CONSTANT_ELEMENTS
        and sites[index].device_types.issuperset(DEVICE_TYPES)
    )
