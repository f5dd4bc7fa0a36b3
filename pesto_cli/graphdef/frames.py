"""Find the outermost frame, that is the outermost v1 while loop, in which each node runs."""

from collections.abc import Sequence

from pesto_cli.graphdef.nodes import Node

ENTER = frozenset({"Enter", "RefEnter"})
EXIT = frozenset({"Exit", "RefExit"})


def outermost_frames(nodes: Sequence[Node], order: Sequence[int]) -> list[str | None]:
    """Return for every node the outermost frame that it runs in, or None: `[num_nodes]`.

    An Enter starts the frame in its `frame_name`, and an Exit returns to the enclosing frame. Every
    other node runs in the frame of its sources (`BuildControlFlowInfo` in TensorFlow's
    control_flow.cc). Enter and Exit count as part of their frame. A strongly connected component
    would not do: it lacks nodes in the loop whose results no later iteration needs.

    `order` is topological.
    """
    # For each node, the nested frames of its outputs, outermost first.
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
