"""Nodes of a step that give what another one gives: one of them stands for all.

TensorFlow's own optimisers merge these when they run, but not in a placed graph. Keras reads the
count of steps once for every variable that it trains, and computes the same factors from each.

Merged are, where type, attributes, inputs and control inputs are the same,

- reads of one variable, if every write of it comes before all of them or after all of them, so
  that no write can come between two of them; and
- ops without state or side effects. Not those that are computed from constants alone: a copy on
  each device that takes it is cheaper than a transfer.

As two nodes with the same inputs have no path between them, merging closes no cycle.
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from operator import and_, or_
from typing import Any

from pesto_cli.graphdef.devices import DT_RESOURCE, DT_VARIANT
from pesto_cli.graphdef.fetches import SHAPED_TYPES
from pesto_cli.graphdef.frames import ENTER, EXIT
from pesto_cli.graphdef.nodes import MERGE, NEXT_ITERATION, Node
from pesto_cli.graphdef.simplify.state import READS, states, uses
from pesto_cli.graphdef.wiring import Wiring, marks, wiring

CONTROL_FLOW = frozenset({"Switch", "RefSwitch", "_SwitchN", "LoopCond", "ControlTrigger"}).union(
    MERGE, NEXT_ITERATION, ENTER, EXIT
)
NO_MEANING = frozenset(
    {
        "_class",
        "_gradient_op_type",
        "_has_manual_control_dependencies",
        "_output_shapes",
        "_user_specified_name",
    }
)
"""Attributes that do not change what a node gives."""


def merge_duplicates(meta: Any, kept: Collection[str], *, planned: bool) -> None:
    """Have the step of a MetaGraphDef take what duplicates give from one node each, in place.

    kept: names of nodes that stay. Without `planned`, nodes that the program has put on different
        devices stay apart, too.
    planned: only what is kept stands for others.
    """
    step = wiring(meta)
    chosen = _stand_ins(step, kept, planned=planned)
    for node in step.nodes if chosen else ():
        if node.name not in chosen:
            node.proto.input[:] = _redirected(node.proto.input, chosen)


def _stand_ins(step: Wiring, kept: Collection[str], *, planned: bool) -> dict[str, str]:
    """Return the nodes to be dropped, and which one stands for each."""
    chosen = {}
    for members in _classes(step, by_device=not planned):
        stay = [node for node in members if node.name in kept] or members[: not planned]
        for node in members if stay else ():
            alike = (each for each in stay if each.proto.device == node.proto.device)
            chosen[node.name] = next(alike, stay[0]).name
    return {name: other for name, other in chosen.items() if name != other and name not in kept}


def _redirected(inputs: Iterable[str], chosen: Mapping[str, str]) -> list[str]:
    """Return the inputs of a NodeDef from those that stand in, every control input once."""
    found = []
    for text in inputs:
        control = "^" if text.startswith("^") else ""
        name, colon, number = text.removeprefix("^").partition(":")
        found.append(f"{control}{chosen.get(name, name)}{colon}{number}")
    data = [text for text in found if not text.startswith("^")]
    return data + list(dict.fromkeys(found[len(data) :]))


def _classes(step: Wiring, *, by_device: bool) -> Iterator[list[Node]]:
    """Yield the nodes that may be merged, two or more at a time, `Cast` before `Cast_1`."""
    pure = [_is_pure(step, index) for index in range(len(step.nodes))]
    may = [pure[index] or node.type in READS for index, node in enumerate(step.nodes)]
    may = [each and frame is None for each, frame in zip(may, step.frames, strict=True)]
    alike = _members(_numbered(step, may.__getitem__, by_device))
    apart = _apart(step, [row for row in alike if step.nodes[row[0]].type in READS])
    of_constants = _of_constants(step, pure)
    for row in _members(_numbered(step, lambda i: may[i] and i not in apart, by_device)):
        if row[0] not in of_constants:
            yield sorted((step.nodes[index] for index in row), key=_plainness)


def _plainness(node: Node) -> tuple[int, str]:
    return len(node.name), node.name


def _is_pure(step: Wiring, index: int) -> bool:
    """Whether what a node gives depends on its inputs alone, and it does nothing else.

    What takes a reference depends on when it runs. Variants hold their users together.
    """
    node, signature = step.nodes[index], step.signature(index)
    op_def = step.op_defs.of(node.proto)
    if node.type in CONTROL_FLOW or node.type in SHAPED_TYPES or op_def.is_stateful:
        return False
    if any(attr.type in ("func", "list(func)") for attr in op_def.attr):
        return False
    sources = [step.signature(source).outputs[number] for source, number in node.inputs]
    return not any(
        tensor.is_ref or tensor.dtype in (DT_RESOURCE, DT_VARIANT)
        for tensor in (*sources, *signature.inputs, *signature.outputs)
    )


def _apart(step: Wiring, reads: Sequence[Sequence[int]]) -> set[int]:
    """Return the reads between which a write may come.

    reads: nodes that are alike, row by row. A write comes between two of them unless, by the edges
        of the graph, it comes before both or after both.
    """
    state_of = states(step)
    used = uses(step, state_of)
    read = [state_of[step.nodes[row[0]].inputs[0][0]] for row in reads]
    writers = {state: used[state].writers for state in read if state is not None}
    bit = marks([index for row in (*reads, *writers.values()) for index in row])
    before = step.before(bit)
    found: set[int] = set()
    for row, state in zip(reads, read, strict=True):
        ahead = reduce(and_, (before[index] for index in row))
        own = reduce(or_, (bit[index] for index in row))
        if state is None or not all(
            ahead & bit[write] or before[write] & own == own for write in writers[state]
        ):
            found.update(row)
    return found


def _numbered(step: Wiring, may: Callable[[int], bool], by_device: bool) -> list[int]:
    """`[num_nodes]`: the first node, sources first, that gives what a node gives."""
    first: dict[object, int] = {}
    number = list(range(len(step.nodes)))
    for index in filter(may, step.order):
        node = step.nodes[index]
        inputs = tuple((number[source], output) for source, output in node.inputs)
        device = node.proto.device if by_device else ""
        key = (node.type, _attributes(node), inputs, frozenset(node.controls), device)
        number[index] = first.setdefault(key, index)
    return number


def _attributes(node: Node) -> bytes:
    """A digest of the attributes: constants may be large."""
    digest = hashlib.sha256()
    for name in sorted(node.proto.attr.keys() - NO_MEANING):
        value = node.proto.attr[name].SerializeToString(deterministic=True)
        digest.update(f"{name} {len(value)} ".encode() + value)
    return digest.digest()


def _members(number: Sequence[int]) -> list[list[int]]:
    """Indices of the nodes of one number, where there are several."""
    members = defaultdict(list)
    for index, first in enumerate(number):
        members[first].append(index)
    return [indices for indices in members.values() if len(indices) > 1]


def _of_constants(step: Wiring, pure: Sequence[bool]) -> set[int]:
    """Nodes that can be computed from constants alone."""
    found: set[int] = set()
    for index in step.order:
        if pure[index] and all(source in found for source, _ in step.nodes[index].inputs):
            found.add(index)
    return found
