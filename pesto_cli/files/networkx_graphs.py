"""Op graphs and problems as networkx graphs, and back.

An op is a node under its name, a tensor an edge to each of its consumers:

    node  type          op type
          time_us       {kind of device: us}, without the kinds that cannot run it; of a problem
          devices       names of the devices that constraints leave it; absent if they leave all
          device, rank  where and when it runs; if a placement is given
          group         number of its colocation group; absent if it moves alone
          resident_bytes, alias_of (a name or None), num_members
          members       names of the ops that it stands for; of a coarse profile
          output_bytes  sizes of its outputs
    edge  bytes         size of the data
          output          which of the producer's outputs it is
          on_host       whether it lies in host memory at both ends
          control       True for an order without data, which has no other attribute
    graph machine, headroom, kinds; of a problem

All but `time_us` and `bytes` may be missing: an edge without `output` is an output of its own.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pesto_cli.data.graph import OpGraph, Tensor
from pesto_cli.data.machine import Machine
from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import Placement, Schedule
from pesto_cli.errors import BadInputError
from pesto_cli.files import MAX_TENSOR_BYTES


def to_networkx(what: OpGraph | Problem, placed: Placement | Schedule | None = None) -> Any:
    """A `networkx.MultiDiGraph`; with a placement, of a problem, nodes say where they run.

    Example:
        >>> nx.dag_longest_path_length(to_networkx(problem))
    """
    import networkx as nx

    graph = what if isinstance(what, OpGraph) else what.graph
    result = nx.MultiDiGraph()
    result.add_nodes_from(zip(graph.names, _nodes(graph), strict=True))
    _add_tensors(result, graph)
    for before, after in graph.control_edges.tolist():
        result.add_edge(graph.names[before], graph.names[after], control=True)
    if isinstance(what, Problem):
        _add_costs(result, what)
        if placed is not None:
            _add_placement(result, what, placed)
    elif placed is not None:
        raise BadInputError(
            "a placement was given with an OpGraph, which knows no devices; give the problem."
        )
    return result


def from_networkx(graph: Any) -> OpGraph:
    """The op graph of a `networkx.MultiDiGraph` or `DiGraph` with the attributes above.

    Raises:
        BadInputError: the graph is undirected or has a cycle, or an attribute is missing or does
            not fit; it names the node or edge.
    """
    if not graph.is_directed():
        raise BadInputError(
            "the networkx graph is undirected; a DiGraph or MultiDiGraph was expected: its edges "
            "run from an op to those that wait for it."
        )
    names = [str(node) for node in graph.nodes]
    index_of = {node: index for index, node in enumerate(graph.nodes)}
    nodes = list(graph.nodes.values())
    tensors, control = _tensors(graph, index_of)
    aliased = [node.get("alias_of") for node in nodes]
    for name, source in zip(names, aliased, strict=True):
        if source is not None and source not in index_of:
            raise BadInputError(
                f"node {name!r} has alias_of {source!r}, which is not in the graph (removed or "
                "renamed?); the name of another node, or None, was expected: set it to the new "
                "name, or to None."
            )
    return OpGraph.build(
        names,
        tensors,
        types=[str(node.get("type", "")) for node in nodes],
        control_edges=control,
        colocation_group=[node.get("group") for node in nodes],
        resident_bytes=_numbers(names, nodes, "resident_bytes", 0),
        alias_of=[-1 if source is None else index_of[source] for source in aliased],
        num_members=_numbers(names, nodes, "num_members", 1),
    )


def problem_from_networkx(graph: Any, machine: Machine | None = None) -> Problem:
    """The problem of a networkx graph whose nodes have `time_us`, a number or one for each kind.

    machine: in place of the one that the graph carries. A single number is the time on its GPUs,
        or where it has none on all of its kinds.

    Raises:
        BadInputError: as `from_networkx`; or a time or the machine is missing.
        InfeasibleError: an op or colocation group has no device.
    """
    machine = machine or graph.graph.get("machine")
    if machine is None:
        raise BadInputError(
            "the networkx graph carries no machine and none was given; give machine=..., such as "
            "load('v100x2-nvlink')."
        )
    ops = from_networkx(graph)
    present = list(dict.fromkeys(device.kind for device in machine.devices))
    default = [kind for kind in present if machine.device_type(kind) == "GPU"] or present
    times = [_times(name, node, default) for name, node in graph.nodes.items()]
    kinds = dict.fromkeys([*graph.graph.get("kinds", ()), *(kind for row in times for kind in row)])
    columns = {kind: [row.get(kind, np.nan) for row in times] for kind in kinds}
    problem = Problem.build(ops, columns, machine)
    return problem.constrained(
        permitted=_permitted(graph, machine), headroom=graph.graph.get("headroom")
    )


def _nodes(graph: OpGraph) -> list[dict[str, Any]]:
    sizes = np.split(graph.tensor_bytes, graph.op_tensors[1:-1])
    group_size = graph.groups.degree[graph.colocation_group]
    return [
        {
            "type": graph.types[op],
            "resident_bytes": int(graph.resident_bytes[op]),
            "alias_of": None if graph.alias_of[op] < 0 else graph.names[graph.alias_of[op]],
            "num_members": int(graph.num_members[op]),
            "output_bytes": tuple(sizes[op].tolist()),
            **({"group": int(graph.colocation_group[op])} if group_size[op] > 1 else {}),
        }
        for op in range(graph.num_ops)
    ]


def _add_tensors(result: Any, graph: OpGraph) -> None:
    output = np.arange(graph.num_tensors) - graph.op_tensors[graph.tensor_producer]
    for tensor, consumer, on_host in zip(
        graph.consumer_tensor.tolist(),
        graph.consumers.tolist(),
        graph.consumer_on_host.tolist(),
        strict=True,
    ):
        result.add_edge(
            graph.names[graph.tensor_producer[tensor]],
            graph.names[consumer],
            bytes=int(graph.tensor_bytes[tensor]),
            output=int(output[tensor]),
            on_host=on_host,
        )


def _add_costs(result: Any, problem: Problem) -> None:
    names = [device.name for device in problem.machine.devices]
    result.graph.update(
        machine=problem.machine, headroom=problem.headroom, kinds=list(problem.kinds)
    )
    for op, node in enumerate(result.nodes.values()):
        node["time_us"] = {
            kind: time_us
            for kind, time_us in zip(problem.kinds, problem.time_us[op].tolist(), strict=True)
            if not np.isnan(time_us)
        }
        if not problem.permitted[op].all():
            node["devices"] = [names[device] for device in np.flatnonzero(problem.permitted[op])]


def _add_placement(result: Any, problem: Problem, placed: Placement | Schedule) -> None:
    for op, node in enumerate(result.nodes.values()):
        node["device"] = problem.machine.devices[placed.device[op]].name
        node["rank"] = int(placed.rank[op])


def _tensors(graph: Any, index_of: Mapping[Any, int]) -> tuple[list[Tensor], list[tuple[int, int]]]:
    """Tensors by producer and output, and control edges."""
    sizes: dict[tuple[int, object], int] = {}
    for producer, (node_name, node) in enumerate(graph.nodes.items()):
        where = f"node {node_name!r}"
        for output, size in enumerate(node.get("output_bytes", ())):
            sizes[producer, output] = _size(where, "output_bytes", size)
    consumers: dict[tuple[int, object], dict[int, bool]] = {key: {} for key in sizes}
    control = []
    for number, (tail, head, edge) in enumerate(graph.edges(data=True)):
        producer, consumer = index_of[tail], index_of[head]
        if edge.get("control"):
            control.append((producer, consumer))
            continue
        key = (producer, edge.get("output", ("edge", number)))
        size = sizes.setdefault(key, _edge_bytes(tail, head, edge))
        if size != edge.get("bytes", size):
            raise BadInputError(
                f"edge {tail!r} -> {head!r} has {edge['bytes']} bytes of output {key[1]}; {size} "
                f"were expected, as elsewhere: give the outputs of {tail!r} one size each."
            )
        takers = consumers.setdefault(key, {})
        takers[consumer] = takers.get(consumer, True) and bool(edge.get("on_host", False))
    tensors = [
        Tensor(key[0], size, list(consumers[key]), list(consumers[key].values()))
        for key, size in sizes.items()
    ]
    return tensors, control


def _edge_bytes(tail: Any, head: Any, edge: Mapping[str, Any]) -> int:
    if "bytes" not in edge:
        raise BadInputError(
            f"edge {tail!r} -> {head!r} has no attribute bytes; the size of the data was expected, "
            "or control=True if it carries none."
        )
    return _size(f"edge {tail!r} -> {head!r}", "bytes", edge["bytes"])


def _times(name: Any, node: Mapping[str, Any], default: list[str]) -> Mapping[str, float]:
    if "time_us" not in node:
        raise BadInputError(
            f"node {name!r} has no attribute time_us; how long it runs was expected, as a number "
            "or as {kind of device: us}."
        )
    given = node["time_us"]
    by_kind = given if isinstance(given, Mapping) else dict.fromkeys(default, given)
    return {kind: _number(f"node {name!r}", "time_us", us) for kind, us in by_kind.items()}


def _numbers(
    names: Sequence[str], nodes: Sequence[Mapping[str, Any]], attribute: str, default: int
) -> list[int]:
    return [
        _size(f"node {name!r}", attribute, node.get(attribute, default))
        for name, node in zip(names, nodes, strict=True)
    ]


def _number(where: str, attribute: str, value: object) -> float:
    if not isinstance(value, int | float | np.number):
        raise BadInputError(f"{where} has {attribute} {value!r}; a number was expected.")
    return value if isinstance(value, int) else float(value)


def _size(where: str, attribute: str, value: object) -> int:
    number = _number(where, attribute, value)
    if not 0 <= number <= MAX_TENSOR_BYTES:
        raise BadInputError(
            f"{where} has {attribute} {value!r}; a number from 0 to {MAX_TENSOR_BYTES:,} was "
            "expected."
        )
    return int(number)


def _permitted(graph: Any, machine: Machine) -> np.ndarray[Any, np.dtype[np.bool_]]:
    names = [device.name for device in machine.devices]
    permitted = np.ones((len(graph), len(names)), dtype=np.bool_)
    for op, (name, node) in enumerate(graph.nodes.items()):
        if "devices" in node:
            unknown = [device for device in node["devices"] if device not in names]
            if unknown:
                raise BadInputError(
                    f"node {name!r} may run on {unknown[0]!r}; one of {', '.join(names)} was "
                    "expected."
                )
            permitted[op] = [device in node["devices"] for device in names]
    return permitted
