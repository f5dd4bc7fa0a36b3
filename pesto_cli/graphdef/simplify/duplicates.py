"""Merge nodes of a step that compute the same outputs.

TensorFlow's own optimisers merge duplicates, but they do not run on a placed graph. Keras reads the
step counter once for every variable that it trains, and computes the same factors from each read.

Nodes with equal type, attributes, inputs and control inputs are merged if they are

- reads of one variable, and every write of the variable comes before all of them or after all of
  them, so that no write can come between two of them; or
- ops without state or side effects. Ops that are computed from constants alone are not merged: a
  copy on each device with a consumer is cheaper than a transfer.

Merging creates no cycle: there is no path between two nodes with the same inputs.
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
"""Attributes that do not change the outputs of a node."""


def merge_duplicates(meta: Any, kept: Collection[str], *, planned: bool) -> None:
    """Merge the duplicates in the step of a MetaGraphDef, in place.

    kept: names of nodes that are not removed.
    planned: if true, only nodes in `kept` replace others. If false, any node may, and nodes that
        the program has placed on different devices are not merged.
    """
    step = wiring(meta)
    chosen = _substitutes(step, kept, planned=planned)
    for node in step.nodes if chosen else ():
        if node.name not in chosen:
            node.proto.input[:] = _redirected(node.proto.input, chosen)


def _substitutes(step: Wiring, kept: Collection[str], *, planned: bool) -> dict[str, str]:
    """Return {name of a node to remove: name of the node that replaces it}."""
    chosen = {}
    for members in _classes(step, by_device=not planned):
        stay = [node for node in members if node.name in kept] or members[: not planned]
        for node in members if stay else ():
            alike = (each for each in stay if each.proto.device == node.proto.device)
            chosen[node.name] = next(alike, stay[0]).name
    return {name: other for name, other in chosen.items() if name != other and name not in kept}


def _redirected(inputs: Iterable[str], chosen: Mapping[str, str]) -> list[str]:
    """Return a NodeDef's inputs with removed nodes replaced; every control input occurs once."""
    found = []
    for text in inputs:
        control = "^" if text.startswith("^") else ""
        name, colon, number = text.removeprefix("^").partition(":")
        found.append(f"{control}{chosen.get(name, name)}{colon}{number}")
    data = [text for text in found if not text.startswith("^")]
    return data + list(dict.fromkeys(found[len(data) :]))


def _classes(step: Wiring, *, by_device: bool) -> Iterator[list[Node]]:
    """Yield lists of two or more nodes that can be merged, shorter names first."""
    pure = [_is_pure(step, index) for index in range(len(step.nodes))]
    may = [pure[index] or node.type in READS for index, node in enumerate(step.nodes)]
    may = [each and frame is None for each, frame in zip(may, step.frames, strict=True)]
    alike = _members(_numbered(step, may.__getitem__, by_device))
    separated = _separated_by_writes(
        step, [row for row in alike if step.nodes[row[0]].type in READS]
    )
    of_constants = _of_constants(step, pure)
    for row in _members(_numbered(step, lambda i: may[i] and i not in separated, by_device)):
        if row[0] not in of_constants:
            yield sorted((step.nodes[index] for index in row), key=_plainness)


def _plainness(node: Node) -> tuple[int, str]:
    return len(node.name), node.name


def _is_pure(step: Wiring, index: int) -> bool:
    """Return whether a node's outputs depend only on its inputs, and it has no side effects.

    False for a node with a reference as input or output, because its result depends on when it
    runs. False for handles and variants, because merging their users would colocate these.
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


def _separated_by_writes(step: Wiring, reads: Sequence[Sequence[int]]) -> set[int]:
    """Return the indices of the reads that cannot be merged, because a write may come between them.

    reads: lists of equal reads. A write may come between two of them unless the edges of the graph
        put it before both or after both.
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
    """`[num_nodes]`: for each node the first equal one in topological order, maybe itself.

    may: whether the node of an index may be merged. by_device: do not merge across devices.
    """
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
    """Return a digest of the attributes, which is short even for large constants."""
    digest = hashlib.sha256()
    for name in sorted(node.proto.attr.keys() - NO_MEANING):
        value = node.proto.attr[name].SerializeToString(deterministic=True)
        digest.update(f"{name} {len(value)} ".encode() + value)
    return digest.digest()


def _members(number: Sequence[int]) -> list[list[int]]:
    """Return lists of the node indices with an equal number, two or more each."""
    members = defaultdict(list)
    for index, first in enumerate(number):
        members[first].append(index)
    return [indices for indices in members.values() if len(indices) > 1]


def _of_constants(step: Wiring, pure: Sequence[bool]) -> set[int]:
    """Return the indices of the nodes that are computed from constants alone."""
    found: set[int] = set()
    for index in step.order:
        if pure[index] and all(source in found for source, _ in step.nodes[index].inputs):
            found.add(index)
    return found
