"""The fetches and feeds of a step, by name."""

import difflib
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from typing import Any

from pesto_cli.errors import BadInputError
from pesto_cli.graphdef.structure import ancestors

TRAIN_OP = "train_op"
"""Collection of the fetches, the train op first: names of ops (`train`) or tensors (`loss:0`)."""
FEEDS = "feeds"
"""Collection of the placeholders that the fetches need, by node name."""
INIT_OP = "init_op"
"""Collection of the op that initialises the graph, by node name."""

FED_TYPES = ("Placeholder", "PlaceholderV2")
SHAPED_TYPES = (*FED_TYPES, "PlaceholderWithDefault")

Shape = Sequence[int]


def fetch_names(meta: Any) -> tuple[str, ...]:
    """Return the fetches of an exported graph, the train op first; empty if it names none."""
    return _node_list(meta, TRAIN_OP)


def feed_names(meta: Any) -> tuple[str, ...]:
    """Return the names of the placeholders that an exported graph's step needs."""
    return _node_list(meta, FEEDS)


def init_names(meta: Any) -> tuple[str, ...]:
    """Return the name of the op that initialises an exported graph; empty if it names none."""
    return _node_list(meta, INIT_OP)


def node_name(name: str) -> str:
    """Return the node name in a fetch or tensor name: `loss` for `loss:0`."""
    return name.split(":")[0]


def parse_feed(text: str) -> tuple[str, tuple[int, ...]]:
    """Return the name and shape in a `--feed` of the form NAME=SHAPE; a scalar is `NAME=`.

    Example: `images=32,224,224,3`. Raises BadInputError for any other form.
    """
    name, equals, sizes = text.partition("=")
    sizes = sizes.strip().strip("()[]")
    try:
        shape = tuple(map(int, sizes.removesuffix(",").split(","))) if sizes.strip() else ()
    except ValueError:
        shape = (-1,)
    if not name or not equals or any(size < 0 for size in shape):
        raise BadInputError(
            f"--feed {text!r}: not of the form NAME=SHAPE, such as images=32,224,224,3"
            " (a scalar: NAME=)."
        )
    return name, shape


def choose_fetches(meta: Any, requested: Sequence[str], what: str) -> tuple[str, ...]:
    """Return the requested fetches, else those that the graph names, else its only sink.

    requested: names of fetches; may be empty. Raises BadInputError when a fetch is not in the
    graph, or when neither `requested` nor the graph names fetches and the graph does
    not have exactly one sink.
    """
    fetches = tuple(requested) or fetch_names(meta) or _only_sink(meta.graph_def, what)
    nodes = {node.name: node for node in meta.graph_def.node}
    for fetch in fetches:
        name = node_name(fetch)
        if name not in nodes:
            raise BadInputError(f"{what}: no node {name!r} to fetch.{suggestion(name, nodes)}")
    return fetches


def set_feed_shapes(meta: Any, feeds: Mapping[str, Shape], what: str) -> None:
    """Set the static shapes in `feeds` (node name -> shape) on the graph's placeholders, in place.

    Some sources need the shape of a variable, so a name may also be that of a variable's handle.
    Raises BadInputError when a name is neither, or its given shape contradicts the graph's shape.
    """
    nodes = {node.name: node for node in meta.graph_def.node}
    placeholders = [name for name, node in nodes.items() if node.op in SHAPED_TYPES]
    for name, shape in feeds.items():
        node = nodes.get(node_name(name))
        if node is None or node.op not in (*SHAPED_TYPES, "VarHandleOp"):
            found = "no such node" if node is None else f"a {node.op}, not a placeholder"
            raise BadInputError(f"{what}: --feed {name}: {found}.{suggestion(name, placeholders)}")
        _set_shape(node, shape, what)
    if feeds:
        forget_inferred_shapes(meta.graph_def)


def needed_protos(graph_def: Any, fetches: Sequence[str]) -> list[Any]:
    """Return the NodeDefs that the fetches need, in graph order; raise errors of `ancestors`."""
    needed = ancestors(graph_def, map(node_name, fetches))
    return [node for node in graph_def.node if node.name in needed]


def step_protos(meta: Any) -> list[Any]:
    """Return the NodeDefs that the fetches of a MetaGraphDef need; see `needed_protos`."""
    return needed_protos(meta.graph_def, fetch_names(meta))


def fed_protos(step: Sequence[Any]) -> list[Any]:
    """Return the placeholders among the NodeDefs of a step."""
    return [node for node in step if node.op in FED_TYPES]


def require_static_feeds(fed: Sequence[Any], what: str) -> None:
    """Raise BadInputError when a placeholder that is fed has an open dimension.

    An open dimension would count as 1 in every cost.
    """
    require_static({node.name: declared_shape(node) for node in fed}, what)


def declared_shape(node: Any) -> list[int | None] | None:
    """Return the shape that a placeholder declares; None without a rank. An open size is None."""
    if "shape" not in node.attr or node.attr["shape"].shape.unknown_rank:
        return None
    return [None if dim.size < 0 else dim.size for dim in node.attr["shape"].shape.dim]


def require_static(shapes: Mapping[str, Sequence[int | None] | None], what: str) -> None:
    """Raise BadInputError if inputs have an open dimension (None or -1) or rank; it names them."""
    open_ = {
        name: shape
        for name, shape in shapes.items()
        if shape is None or any(size in (None, -1) for size in shape)
    }
    if not open_:
        return
    found = {
        name: "unknown" if shape is None else f"[{_sizes(shape)}]" for name, shape in open_.items()
    }
    if len(open_) == 1:
        (name,) = open_
        raise BadInputError(f"{what}: {dynamic_shape(name, found[name], open_[name] or ())}")
    listed = ", ".join(f"{name!r} {shape}" for name, shape in found.items())
    options = " ".join(_feed_option(name, shape or ()) for name, shape in open_.items())
    raise BadInputError(
        f"{what}: {len(open_)} inputs have open shapes ({listed}), where static ones were expected."
        f" Give `pesto export` or `pesto place` their shapes: {options}"
    )


def dynamic_shape(name: str, found: str, sizes: Sequence[int | None]) -> str:
    """Return the error message for an input whose shape is not static."""
    return (
        f"input {name!r} has the shape {found}, where a static one was expected."
        f" Give `pesto export` or `pesto place` its shape: {_feed_option(name, sizes)}"
    )


def _feed_option(name: str, sizes: Sequence[int | None]) -> str:
    example = ",".join("32" if size in (None, -1) else str(size) for size in sizes)
    return f"--feed {name}={example or '32,224,224,3'}"


def suggestion(name: str, known: Collection[str]) -> str:
    """Return a space and a sentence that lists known names similar to `name`, else some names."""
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.6)
    if near:
        return f" Did you mean {' or '.join(near)}?"
    shown = sorted(known)[:5]
    if not shown:
        return " The graph has none."
    more = f", ... ({len(known)} in all)" if len(known) > len(shown) else ""
    return f" Possible names: {', '.join(shown)}{more}."


def _node_list(meta: Any, collection: str) -> tuple[str, ...]:
    if collection not in meta.collection_def:
        return ()
    return tuple(meta.collection_def[collection].node_list.value)


def _only_sink(graph_def: Any, what: str) -> tuple[str, ...]:
    """Return the only node without consumers, such as the output of a frozen graph."""
    consumed = {node_name(name.lstrip("^")) for node in graph_def.node for name in node.input}
    sinks = [node for node in graph_def.node if node.name not in consumed]
    if len(sinks) != 1:
        names = [node.name for node in sinks]
        shown = ", ".join(["...", *names[-8:]] if len(names) > 8 else names)
        raise BadInputError(
            f"{what}: the graph names no fetches and has {len(sinks)} nodes without consumers"
            f" ({shown}), where one was expected. Name the train op: --fetch NAME"
        )
    return (sinks[0].name,)


def _set_shape(node: Any, shape: Shape, what: str) -> None:
    declared = node.attr["shape"].shape
    sizes = [dim.size for dim in declared.dim]
    # The shape is unknown if a placeholder lacks the attribute, or if it is a scalar: old files
    # write that for unknown shapes.
    known = "shape" in node.attr and not declared.unknown_rank and bool(sizes)
    fits = len(sizes) == len(shape) and all(
        size in (-1, given) for size, given in zip(sizes, shape, strict=False)
    )
    if known and not fits:
        raise BadInputError(
            f"{what}: --feed {node.name}={_sizes(shape)}: the shape in the graph is"
            f" [{_sizes(sizes)}]. Replace only open dimensions ('?')."
        )
    declared.Clear()
    for size in shape:
        declared.dim.add(size=size)
    declared.SetInParent()


def _sizes(sizes: Sequence[int | None]) -> str:
    return ",".join("?" if size in (None, -1) else str(size) for size in sizes)


def drop_colocation(nodes: Iterable[Any], names: Container[str]) -> None:
    """Remove requests for colocation with nodes of these names from NodeDefs, in place."""
    for node in nodes:
        if "_class" in node.attr:
            requests = node.attr["_class"].list.s
            left = [
                each
                for each in requests
                if each.decode("utf-8", "replace").removeprefix("loc:@") not in names
            ]
            if len(left) < len(requests):
                del node.attr["_class"]
                if left:
                    node.attr["_class"].list.s.extend(left)


def forget_inferred_shapes(graph_def: Any) -> None:
    """Remove recorded output shapes, in place: TensorFlow would use them instead of inferring."""
    functions = (node for function in graph_def.library.function for node in function.node_def)
    for node in (*graph_def.node, *functions):
        if "_output_shapes" in node.attr:
            del node.attr["_output_shapes"]
