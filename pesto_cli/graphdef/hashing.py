"""Compute a hash that identifies a graph by its nodes, without their devices."""

import hashlib
from typing import Any


def graph_hash(graph_def: Any) -> str:
    """Return the SHA-256, in hex, of a GraphDef's nodes and function library.

    Nodes are sorted by name. Their `device`, their `_class` attribute and the graph's versions are
    left out. So the hash does not depend on devices, on the order of nodes, or on the order of
    their attributes. It does depend on control inputs. `pesto apply` adds control inputs, so the
    hash of its output differs from the hash of the original graph.
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
    """Serialise with the length as prefix, so that a sequence of messages is unambiguous."""
    data: bytes = message.SerializeToString(deterministic=True)
    return len(data).to_bytes(8, "little") + data
