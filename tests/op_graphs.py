"""Describes an op graph by names instead of numbers, so that two graphs can be compared."""

from collections.abc import Hashable, Mapping
from typing import Any

from pesto_cli.data.graph import OpGraph

Description = Mapping[str, Mapping[Hashable, Any]]
"""For each property of a graph: op, tensor or edge -> value."""


def described(graph: OpGraph) -> Description:
    """Return all that a graph says, by names of ops and tensors."""
    names, labels = graph.names, graph.labels
    columns = {
        "type": graph.types,
        "resident bytes": graph.resident_bytes.tolist(),
        "members": graph.num_members.tolist(),
        "alias": [None if at < 0 else names[at] for at in graph.alias_of.tolist()],
        "role": labels.role.tolist(),
        "phase": labels.phase.tolist(),
        "compound": labels.compound.tolist(),
        "scope": labels.scope,
        "repetition": labels.repetition,
    }
    return {
        **{name: dict(zip(names, column, strict=True)) for name, column in columns.items()},
        "group": _groups(graph),
        "inputs": _inputs(graph),
        "tensor": dict(_tensor(graph, tensor) for tensor in range(graph.num_tensors)),
        "control edge": {
            (names[before], names[after]): True for before, after in graph.control_edges.tolist()
        },
    }


def difference(first: Description, second: Description) -> list[str]:
    """Return a line for each value in which two descriptions differ."""
    missing = object()
    return [
        f"{what} of {key}: {one} and {other}"
        for what in first
        for key in first[what].keys() | second[what].keys()
        if (one := first[what].get(key, missing)) != (other := second[what].get(key, missing))
    ]


def _groups(graph: OpGraph) -> dict[Hashable, Any]:
    """Return for each op the first of the ops that share a device with it."""
    first: dict[int, str] = {}
    pairs = sorted(zip(graph.names, graph.colocation_group.tolist(), strict=True))
    return {name: first.setdefault(group, name) for name, group in pairs}


def _inputs(graph: OpGraph) -> dict[Hashable, Any]:
    rows = [] if graph.inputs is None else graph.inputs.rows()
    return {
        name: [None if tensor is None else _name(graph, tensor) for tensor in row]
        for name, row in zip(graph.names, rows, strict=True)
    }


def _tensor(graph: OpGraph, tensor: int) -> tuple[Hashable, Any]:
    first, last = graph.consumer_offsets[tensor : tensor + 2].tolist()
    consumers = zip(graph.consumers[first:last], graph.consumer_on_host[first:last], strict=True)
    return _name(graph, tensor), (
        int(graph.tensor_bytes[tensor]),
        graph.tensor_shape[tensor],
        graph.tensor_dtype[tensor],
        {graph.names[op]: bool(on_host) for op, on_host in consumers},
    )


def _name(graph: OpGraph, tensor: int) -> tuple[str, int]:
    op = int(graph.tensor_producer[tensor])
    return graph.names[op], tensor - int(graph.op_tensors[op])
