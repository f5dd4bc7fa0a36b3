"""Bypass IdentityN nodes: connect the consumers of their outputs directly to their inputs.

TensorFlow adds an IdentityN to every function with a custom gradient (`tf.custom_gradient`), and
Keras applies gradients in such a function. Each output of the node waits for all its inputs, on one
device. So all gradients would have to be sent to this device and back before the first variable is
updated.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from pesto_cli.graphdef.branches import SWITCH
from pesto_cli.graphdef.simplify.state import READS, VARIABLES, states, uses
from pesto_cli.graphdef.wiring import Wiring, marks, wiring

TYPE = "IdentityN"


def bypass_identities(meta: Any, kept: Collection[str]) -> None:
    """Bypass the IdentityN nodes of a step, in place, except for those named in `kept`.

    If an IdentityN alone orders two uses of a variable, and at least one of them may change it, a
    control input replaces this order.

    An IdentityN stays if it has control edges, or if its inputs do not all run in the same
    branches. All of them stay if an op with a side effect would no longer run, or if a new control
    input would come from a node in a branch, and its target is not in this branch: a step that
    skips the branch would skip the target, too.
    """
    before = wiring(meta)
    inputs = {node.name: list(node.proto.input) for node in before.nodes}
    bypassed = {name: inputs[name] for name in _unneeded(before, kept)}
    if not bypassed:
        return
    for node in before.nodes:
        node.proto.input[:] = [_origin(text, bypassed) for text in node.proto.input]
    after = wiring(meta)
    lost = {after.nodes[i].name: sources for i, sources in _no_longer_awaited(before, after)}
    if _effects(before) != _effects(after) or not _may_wait(before, lost):
        for node in before.nodes:
            node.proto.input[:] = inputs[node.name]
        return
    for node in after.nodes:
        node.proto.input.extend(f"^{source}" for source in lost.get(node.name, ()))


def _origin(text: str, bypassed: Mapping[str, Sequence[str]]) -> str:
    """Return the tensor that an input refers to once IdentityNs are bypassed, maybe several."""
    name, _, number = text.partition(":")
    while name in bypassed:
        text = bypassed[name][int(number or 0)]
        name, _, number = text.partition(":")
    return text


def _unneeded(step: Wiring, kept: Collection[str]) -> Iterator[str]:
    """Yield the names of the IdentityN nodes that only forward their inputs."""
    ordering = {source for node in step.nodes for source in node.controls}
    for index, node in enumerate(step.nodes):
        if (
            node.type == TYPE
            and node.name not in kept
            and step.frames[index] is None
            and not node.controls
            and index not in ordering
            and all(_runs_with(step, source, index) for source in node.sources)
            and not any(step.signature(s).outputs[number].is_ref for s, number in node.inputs)
        ):
            yield node.name


def _runs_with(step: Wiring, source: int, index: int) -> bool:
    """Return whether all outputs of `source` exist in exactly the steps in which `index` runs."""
    return step.nodes[source].type not in SWITCH and step.branches[source] == step.branches[index]


def _may_wait(step: Wiring, waits_for: Mapping[str, Sequence[str]]) -> bool:
    """Return whether each node runs only in steps in which all nodes that it waits for run.

    waits_for: node name -> names of the nodes that it waits for.
    """
    needed = dict(zip((node.name for node in step.nodes), step.branches, strict=True))
    return all(
        needed[source] <= needed[name] for name, sources in waits_for.items() for source in sources
    )


def _effects(step: Wiring) -> set[str]:
    """Return the names of the nodes that may have side effects."""
    without = READS | VARIABLES
    stateful = (node for node in step.nodes if step.op_defs.of(node.proto).is_stateful)
    return {node.name for node in stateful if node.type not in without}


def _no_longer_awaited(before: Wiring, after: Wiring) -> Iterator[tuple[int, list[str]]]:
    """Yield (node of `after`, names of nodes that it no longer waits for, but has to).

    A node has to wait for another one if it waited for that one in `before`, both use the same
    state, and at least one of them may change this state.
    """
    used = uses(before, states(before)).values()
    bit = marks([index for each in used for index in each.users])
    may_clash: dict[int, int] = defaultdict(int)
    for each in used:
        users, writers = (sum(bit[i] for i in set(row)) for row in (each.users, each.writers))
        for index in each.users:
            may_clash[index] |= users if index in each.writers else writers
    index_after = {node.name: index for index, node in enumerate(after.nodes)}
    place = {index: index_after.get(node.name) for index, node in enumerate(before.nodes)}
    bit_after = {there: bit[index] for index in bit if (there := place[index]) is not None}
    all_before, all_after = before.before(bit), after.before(bit_after)
    for index, others in may_clash.items():
        if (there := place[index]) is not None:
            lost = all_before[index] & ~all_after[there] & others
            sources = [i for i, mark in bit.items() if lost & mark and place[i] is not None]
            if sources:
                yield there, [before.nodes[i].name for i in sources]
