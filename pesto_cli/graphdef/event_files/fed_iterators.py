"""Replace the elements of a traced function's iterators by placeholders."""

from typing import Any

from pesto_cli.graphdef.event_files.handles import handles
from pesto_cli.graphdef.fetches import node_name

_NEXT_ELEMENT = "IteratorGetNext"


def feed_iterators(graph_def: Any) -> None:
    """Replace the ops that get elements from captured iterators by placeholders, in place.

    The placeholder of the first element has the name of the replaced op; the others have a number
    as suffix.
    """
    handle_of = handles(graph_def)
    taken = {node.name for node in graph_def.node}
    takers = [
        node
        for node in graph_def.node
        if node.op == _NEXT_ELEMENT and node_name(node.input[0]) in handle_of
    ]
    for taker in takers:
        names = _feed_elements(graph_def, taker, taken)
        _redirect(graph_def, names)
        graph_def.node.remove(taker)


def _feed_elements(graph_def: Any, taker: Any, taken: set[str]) -> dict[str, str]:
    """Add the placeholders; return {tensor of the replaced op: name of its placeholder}."""
    names = {}
    types, shapes = taker.attr["output_types"].list.type, taker.attr["output_shapes"].list.shape
    for place, (dtype, shape) in enumerate(zip(types, shapes, strict=True)):
        name = taker.name if place == 0 else f"{taker.name}_{place}"
        while place and name in taken:
            name = f"{name}_element"
        taken.add(name)
        names[f"{taker.name}:{place}" if place else taker.name] = name
        element = graph_def.node.add(name=name, op="Placeholder")
        element.attr["dtype"].type = dtype
        element.attr["shape"].shape.CopyFrom(shape)
    return names


def _redirect(graph_def: Any, names: dict[str, str]) -> None:
    for node in graph_def.node:
        for place, source in enumerate(node.input):
            node.input[place] = names.get(source, source)
