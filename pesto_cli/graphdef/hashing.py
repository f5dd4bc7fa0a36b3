"""What identifies a graph: its nodes, not where they are placed."""

import hashlib
from typing import Any


def graph_hash(graph_def: Any) -> str:
    """Return the SHA-256, in hex, of a GraphDef's nodes and function library.

    Nodes are taken in the order of their names and without `device`, the `_class` attribute and
    the graph's versions, so that neither a placement nor the order of the nodes, nor that of their
    attributes, changes the hash. Control inputs are part of it, and `pesto apply` adds some: a
    placed graph has a hash of its own.
    """
    digest = hashlib.sha256()
    for node in sorted(graph_def.node, key=_name):
        digest.update(_framed(_without_placement(node)))
    for function in sorted(graph_def.library.function, key=lambda f: f.signature.name):
        digest.update(_framed(function))
    return digest.hexdigest()


def _name(node: Any) -> str:
    name: str = node.name
    return name


def _without_placement(node: Any) -> Any:
    bare = type(node)()
    bare.CopyFrom(node)
    bare.ClearField("device")
    if "_class" in bare.attr:
        del bare.attr["_class"]
    return bare


def _framed(message: Any) -> bytes:
    """Serialise with the length in front, so that two messages never read as another two."""
    data: bytes = message.SerializeToString(deterministic=True)
    return len(data).to_bytes(8, "little") + data
