"""Conversion of op graphs and problems to networkx graphs and back.

An op is a node with the op's name. A tensor is one edge to each of its consumers. The attributes:

    node  type          op type
          role, phase, compound, forward_op, scope, repetition: as in a profile; absent for the
                        default: role compute, phase forward, the scopes of the op's own name
          time_us       {device kind: us}, without the kinds that cannot run the op; of a problem
          devices       names of the devices that constraints permit; absent if all are permitted
          device, rank  the op's device and its position there; only with a placement
          group         number of its colocation group; absent for a group of one op
          resident_bytes, alias_of (a name or None), num_members
          members       names of the ops that the node stands for; only of a coarse profile
          output_bytes  sizes of its outputs; output_shapes, output_dtypes: those that are known
          num_inputs    number of its input slots; absent if the order of inputs is unknown
    edge  bytes         size of the data
          output        index of the tensor among the producer's outputs
          slots         input slots of the consumer that take the tensor
          on_host       whether the data is in host memory at both endpoints
          control       True for a control edge, which has no other attribute
    graph machine, headroom, kinds; of a problem

All attributes but `time_us` and `bytes` may be absent. Each edge without `output` is a separate
output of its producer.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from pesto_cli.data.graph import OpGraph, Tensor
from pesto_cli.data.inputs import Inputs
from pesto_cli.data.labels import TEXT_LABELS, USUAL, Labels
from pesto_cli.data.machine import Machine
from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import Placement, Schedule
from pesto_cli.errors import BadInputError
from pesto_cli.files import networkx_attributes as checked

_Value = TypeVar("_Value")
Output = tuple[int, object]
"""(index of the producer, key of the output)"""


def to_networkx(what: OpGraph | Problem, placed: Placement | Schedule | None = None) -> Any:
    """Return a `networkx.MultiDiGraph`; of a problem with a placement, nodes have device and rank.

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
            "a placement was given with an OpGraph, which has no devices; give the problem instead."
        )
    return result


def from_networkx(graph: Any) -> OpGraph:
    """Return the op graph of a `networkx.MultiDiGraph` or `DiGraph` with the attributes above.

    Raises:
        BadInputError: the graph is undirected or has a cycle, or an attribute is missing or wrong.
            The message names the node or edge.
    """
    if not graph.is_directed():
        raise BadInputError(
            "the networkx graph is undirected; a DiGraph or MultiDiGraph was expected, with edges "
            "from an op to the ops that wait for it."
        )
    names = [str(node) for node in graph.nodes]
    index_of = {node: index for index, node in enumerate(graph.nodes)}
    nodes = list(graph.nodes.values())
    number, tensors, control = _tensors(graph, index_of)
    aliased = [node.get("alias_of") for node in nodes]
    for name, source in zip(names, aliased, strict=True):
        if source is not None and not _is_node(index_of, source):
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
        colocation_group=[
            checked.group(f"node {name!r}", node.get("group"))
            for name, node in zip(names, nodes, strict=True)
        ],
        resident_bytes=_numbers(names, nodes, "resident_bytes", 0),
        alias_of=[-1 if source is None else index_of[source] for source in aliased],
        num_members=_numbers(names, nodes, "num_members", 1),
        labels=Labels.build(
            names,
            **{
                column: [
                    checked.text(f"node {name!r}", column, node.get(column))
                    for name, node in zip(names, nodes, strict=True)
                ]
                for column in TEXT_LABELS
            },
        ),
        inputs=_inputs(graph, index_of, number),
    )


def problem_from_networkx(graph: Any, machine: Machine | None = None) -> Problem:
    """Return the problem of a networkx graph; `time_us` of a node is a number or {device kind: us}.

    A single number is the time on GPUs, or on all kinds if the machine has no GPU.

    machine: replaces the attribute `machine` of the graph.

    Raises:
        BadInputError: see `from_networkx`; or a time or the machine is missing.
        InfeasibleError: an op or colocation group has no device.
    """
    machine = machine or graph.graph.get("machine")
    if machine is None:
        raise BadInputError(
            "the networkx graph has no attribute machine and none was given; give machine=..., "
            "such as load('v100x2-nvlink')."
        )
    if not isinstance(machine, Machine):
        raise BadInputError(
            f"the attribute machine of the networkx graph is {machine!r}; a Machine was expected, "
            "such as load('v100x2-nvlink')."
        )
    ops = from_networkx(graph)
    present = list(dict.fromkeys(device.kind for device in machine.devices))
    default = [kind for kind in present if machine.device_type(kind) == "GPU"] or present
    times = [_times(name, node, default) for name, node in graph.nodes.items()]
    named = checked.sequence("the networkx graph", "kinds", graph.graph.get("kinds", ()))
    kinds = dict.fromkeys([*named, *(kind for row in times for kind in row)])
    for kind in kinds:
        if not isinstance(kind, str):
            raise BadInputError(
                f"the networkx graph has a time on {kind!r}; the name of a kind was expected."
            )
    headroom = graph.graph.get("headroom")
    if headroom is not None:
        headroom = checked.number("the networkx graph", "headroom", headroom)
    columns = {kind: [row.get(kind, np.nan) for row in times] for kind in kinds}
    problem = Problem.build(ops, columns, machine)
    return problem.constrained(permitted=_permitted(graph, machine), headroom=headroom)


def _nodes(graph: OpGraph) -> list[dict[str, Any]]:
    sizes = np.split(graph.tensor_bytes, graph.op_tensors[1:-1])
    group_size = graph.groups.degree[graph.colocation_group]
    labels = graph.labels.texts()
    return [
        {
            "type": graph.types[op],
            **{name: column[op] for name, column in labels.items() if column[op] not in USUAL},
            "resident_bytes": int(graph.resident_bytes[op]),
            "alias_of": None if graph.alias_of[op] < 0 else graph.names[graph.alias_of[op]],
            "num_members": int(graph.num_members[op]),
            "output_bytes": tuple(sizes[op].tolist()),
            **_outputs(graph, op),
            **({"group": int(graph.colocation_group[op])} if group_size[op] > 1 else {}),
            **({} if graph.inputs is None else {"num_inputs": len(graph.inputs[op])}),
        }
        for op in range(graph.num_ops)
    ]


def _outputs(graph: OpGraph, op: int) -> dict[str, Any]:
    """Return the attributes for shapes and element types that the graph has."""
    own = slice(graph.op_tensors[op], graph.op_tensors[op + 1])
    known = {"output_shapes": graph.tensor_shape, "output_dtypes": graph.tensor_dtype}
    return {name: column[own] for name, column in known.items() if column}


def _add_tensors(result: Any, graph: OpGraph) -> None:
    slots = _slots(graph)
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
            **({"slots": tuple(slots[tensor, consumer])} if slots else {}),
        )


def _slots(graph: OpGraph) -> Mapping[tuple[int, int], list[int]]:
    """Return (tensor, op) -> input slots of the op; empty if the order of inputs is unknown."""
    slots: dict[tuple[int, int], list[int]] = defaultdict(list)
    if graph.inputs is not None:
        rows = (graph.inputs.tensors, graph.inputs.op, graph.inputs.slot)
        for tensor, op, slot in zip(*(row.tolist() for row in rows), strict=True):
            slots[tensor, op].append(slot)
    return slots


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


def _tensors(
    graph: Any, index_of: Mapping[Any, int]
) -> tuple[dict[Output, int], list[Tensor], list[tuple[int, int]]]:
    """Return the tensor index of every output, the tensors, and the control edges.

    Outputs with numbers come first, in the order of their numbers, and then those without.
    """
    sizes = _of_outputs(graph, "output_bytes", checked.size)
    shapes = _of_outputs(graph, "output_shapes", checked.shape)
    dtypes = _of_outputs(graph, "output_dtypes", checked.text)
    consumers: dict[Output, dict[int, bool]] = {key: {} for key in sizes}
    control = []
    for number, (tail, head, edge) in enumerate(graph.edges(data=True)):
        producer, consumer = index_of[tail], index_of[head]
        if edge.get("control"):
            control.append((producer, consumer))
            continue
        key = _output(producer, number, edge)
        if "output" in edge and not checked.is_whole(key[1]):
            raise BadInputError(
                f"edge {tail!r} -> {head!r} has output {key[1]!r}; the number of an output of "
                f"{tail!r}, or no attribute output, was expected."
            )
        size = sizes.setdefault(key, _edge_bytes(tail, head, edge))
        if size != edge.get("bytes", size):
            raise BadInputError(
                f"edge {tail!r} -> {head!r} has {edge['bytes']} bytes of output {key[1]}; {size} "
                f"were expected, as given elsewhere for this output: give each output of {tail!r} "
                "one size."
            )
        takers = consumers.setdefault(key, {})
        takers[consumer] = takers.get(consumer, True) and bool(edge.get("on_host", False))
    sizes = dict(sorted(sizes.items(), key=lambda item: _place(item[0])))
    tensors = [
        Tensor(
            key[0],
            size,
            list(consumers[key]),
            list(consumers[key].values()),
            shapes.get(key),
            dtypes.get(key),
        )
        for key, size in sizes.items()
    ]
    return {key: place for place, key in enumerate(sizes)}, tensors, control


def _of_outputs(
    graph: Any, attribute: str, check: Callable[[str, str, Any], _Value]
) -> dict[Output, _Value]:
    return {
        (producer, output): check(f"node {name!r}", attribute, value)
        for producer, (name, node) in enumerate(graph.nodes.items())
        for output, value in enumerate(
            checked.sequence(f"node {name!r}", attribute, node.get(attribute, ()))
        )
    }


def _output(producer: int, edge_number: int, edge: Mapping[str, Any]) -> Output:
    """Return the output of an edge; an edge without `output` is a separate output."""
    return producer, edge.get("output", ("edge", edge_number))


def _place(output: Output) -> tuple[bool, int]:
    """Return a key that sorts outputs with numbers by these, before outputs without one."""
    number = output[1]
    return (True, 0) if isinstance(number, tuple) else (False, int(number))  # type: ignore[call-overload]


def _inputs(
    graph: Any, index_of: Mapping[Any, int], tensor_of: Mapping[Output, int]
) -> Inputs | None:
    """Return the inputs by slot; None if a node has no `num_inputs` or a data edge no `slots`."""
    edges = list(graph.edges(data=True))
    data = [edge for _, _, edge in edges if not edge.get("control")]
    if not all("num_inputs" in node for node in graph.nodes.values()) or not all(
        "slots" in edge for edge in data
    ):
        return None
    names, nodes = [str(node) for node in graph.nodes], list(graph.nodes.values())
    rows: list[list[int | None]] = [
        [None] * count for count in _numbers(names, nodes, "num_inputs", 0)
    ]
    for number, (tail, head, edge) in enumerate(edges):
        row = rows[index_of[head]]
        for slot in () if edge.get("control") else _slots_of(tail, head, edge):
            fits = checked.is_whole(slot) and slot in range(len(row))
            if not fits or row[slot] is not None:
                raise BadInputError(
                    f"edge {tail!r} -> {head!r} has slot {slot!r}; a number below {len(row)} (the "
                    f"num_inputs of {head!r}) that no other edge uses was expected."
                )
            row[slot] = tensor_of[_output(index_of[tail], number, edge)]
    return Inputs.build(rows)


def _slots_of(tail: Any, head: Any, edge: Mapping[str, Any]) -> Sequence[Any]:
    return checked.sequence(f"edge {tail!r} -> {head!r}", "slots", edge["slots"])


def _edge_bytes(tail: Any, head: Any, edge: Mapping[str, Any]) -> int:
    if "bytes" not in edge:
        raise BadInputError(
            f"edge {tail!r} -> {head!r} has no attribute bytes; the size of the data was expected, "
            "or control=True for an edge without data."
        )
    return checked.size(f"edge {tail!r} -> {head!r}", "bytes", edge["bytes"])


def _times(name: Any, node: Mapping[str, Any], default: list[str]) -> Mapping[str, float]:
    if "time_us" not in node:
        raise BadInputError(
            f"node {name!r} has no attribute time_us; its duration in us was expected, as a number "
            "or as {device kind: us}."
        )
    given = node["time_us"]
    by_kind = given if isinstance(given, Mapping) else dict.fromkeys(default, given)
    return {kind: checked.number(f"node {name!r}", "time_us", us) for kind, us in by_kind.items()}


def _numbers(
    names: Sequence[str], nodes: Sequence[Mapping[str, Any]], attribute: str, default: int
) -> list[int]:
    return [
        checked.size(f"node {name!r}", attribute, node.get(attribute, default))
        for name, node in zip(names, nodes, strict=True)
    ]


def _is_node(index_of: Mapping[Any, int], value: object) -> bool:
    try:
        return value in index_of
    except TypeError:  # it has no hash
        return False


def _permitted(graph: Any, machine: Machine) -> np.ndarray[Any, np.dtype[np.bool_]]:
    names = [device.name for device in machine.devices]
    permitted = np.ones((len(graph), len(names)), dtype=np.bool_)
    for op, (name, node) in enumerate(graph.nodes.items()):
        if "devices" in node:
            devices = checked.sequence(f"node {name!r}", "devices", node["devices"])
            unknown = [device for device in devices if device not in names]
            if unknown:
                raise BadInputError(
                    f"node {name!r} has {unknown[0]!r} in its attribute devices; one of "
                    f"{', '.join(names)} was expected."
                )
            permitted[op] = [device in devices for device in names]
    return permitted
