"""While loops of v1 graphs: which nodes run inside which outermost frame."""

from collections.abc import Sequence

from pesto_cli.graphdef.nodes import Node

ENTER = frozenset({"Enter", "RefEnter"})
EXIT = frozenset({"Exit", "RefExit"})


def outermost_frames(nodes: Sequence[Node], order: Sequence[int]) -> list[str | None]:
    """Return for every node the outermost frame that it runs in, or None.

    An Enter opens the frame in its `frame_name`, an Exit leaves it for the one around; every other
    node runs where its sources do (`BuildControlFlowInfo` in TensorFlow's control_flow.cc). Enter
    and Exit count as part of their frame. A strongly connected component would be only a fragment:
    it lacks what is computed in the loop but feeds no further iteration.

    `order` is topological.
    """
    # The stack of frames that a node's outputs are in, outermost first.
    stacks: list[tuple[str, ...]] = [()] * len(nodes)
    frames: list[str | None] = [None] * len(nodes)
    for index in order:
        node = nodes[index]
        stack = max((stacks[source] for source in node.sources), key=len, default=())
        if node.type in ENTER:
            stack = (*stack, node.proto.attr["frame_name"].s.decode())
        frames[index] = stack[0] if stack else None
        stacks[index] = stack[:-1] if node.type in EXIT else stack
    return frames
