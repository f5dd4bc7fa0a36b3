"""IdentityN: what takes one of its outputs may take the input instead, and waits for no other.

TensorFlow puts one around every function with a gradient of its own (`tf.custom_gradient`); Keras
applies gradients in such a function. Each of its outputs waits for all of its inputs, on its one
device, so all gradients would have to go there and back before the first variable is updated.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from pesto_cli.graphdef.branches import SWITCH
from pesto_cli.graphdef.simplify.state import READS, VARIABLES, states, uses
from pesto_cli.graphdef.wiring import Wiring, marks, wiring

TYPE = "IdentityN"


def bypass_identities(meta: Any, kept: Collection[str]) -> None:
    """Have the step of a MetaGraphDef do without IdentityN nodes, in place, save for those kept.

    Where one is all that orders two uses of a variable, at least one of which may change it, a
    control input takes its place. An IdentityN remains if it takes part in control edges, or if one
    of its inputs may be skipped without the others. All remain if something that has an effect
    would no longer run, or if such a control input would come from a branch that its node is not
    in: a step that skips the branch would skip the node, too.
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
    """What the input of a node stands for: the input of an IdentityN, maybe of another one."""
    name, _, number = text.partition(":")
    while name in bypassed:
        text = bypassed[name][int(number or 0)]
        name, _, number = text.partition(":")
    return text


def _unneeded(step: Wiring, kept: Collection[str]) -> Iterator[str]:
    """Yield the names of the IdentityN nodes whose outputs are their inputs, and nothing else."""
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
    """Whether all outputs of one node are there in the very steps in which the other runs."""
    return step.nodes[source].type not in SWITCH and step.branches[source] == step.branches[index]


def _may_wait(step: Wiring, waits_for: Mapping[str, Sequence[str]]) -> bool:
    """Whether each node, by name, runs only in steps in which all that it waits for does."""
    needed = dict(zip((node.name for node in step.nodes), step.branches, strict=True))
    return all(
        needed[source] <= needed[name] for name, sources in waits_for.items() for source in sources
    )


def _effects(step: Wiring) -> set[str]:
    """Names of the nodes that may do more than give their outputs."""
    without = READS | VARIABLES
    stateful = (node for node in step.nodes if step.op_defs.of(node.proto).is_stateful)
    return {node.name for node in stateful if node.type not in without}


def _no_longer_awaited(before: Wiring, after: Wiring) -> Iterator[tuple[int, list[str]]]:
    """Yield the nodes `after` that do not wait for all that they waited for and share state with.

    Two uses of which neither changes the state need no order.
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
