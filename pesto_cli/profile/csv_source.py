"""Op times of any origin, from a CSV file: `--source csv:FILE`.

Columns:
    name: an op of the step, or a node of its graph. A while loop is one op, whose time is the sum
        of its nodes. Small constants may be listed, but their rows are ignored: TensorFlow copies
        these constants to every device.
    kind: a device kind of the machine. An op can run on the kinds that it has rows for.
    us: time of the op in one step on a device of this kind and of speed 1, all iterations together.
    bytes (optional): total size of the op's outputs, in place of the sizes from static shapes. It
        is divided among several outputs in proportion to their static sizes.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pesto_cli.data.graph import FloatArray, IntArray, OpGraph
from pesto_cli.data.labels import Role
from pesto_cli.errors import BadInputError
from pesto_cli.printable import first_of
from pesto_cli.profile.source import CostRequest, Costs
from pesto_cli.profile.table import TableRow, read_rows

SHOWN_OPS = 3


def costs(request: CostRequest) -> Costs:
    """Read op times and sizes from the file that the source's argument names.

    Raises:
        BadInputError: no file is named, the file cannot be read, a row does not fit the step or
            the machine (the message names its line), or an op has no row.
    """
    if not request.argument:
        raise BadInputError("cost source csv names no file; give one: --source csv:FILE.")
    if request.cpu_offload:
        raise BadInputError(
            "--cpu-offload has no effect with --source csv, where an op can run on the kinds that "
            "it has rows for; leave the option out."
        )
    path = Path(request.argument)
    graph = request.step.graph
    timings = list(_timings(path, request))
    time_us = _time_us(graph.num_ops, timings)
    _check_every_op_is_timed(path, graph, time_us)
    return Costs(time_us, tensor_bytes=_tensor_bytes(graph, timings))


@dataclass(frozen=True)
class _Timing:
    """One row of the file, with the index of its op."""

    row: TableRow
    op: int
    kind: str
    us: float
    num_bytes: int | None


def _timings(path: Path, request: CostRequest) -> Iterator[_Timing]:
    step, machine = request.step, request.machine
    kinds = {device.kind for device in machine.devices}
    op_of_node = {node: op for op, nodes in enumerate(step.nodes) for node in nodes}
    seen: dict[tuple[str, str], str] = {}
    for row in read_rows(path, ("name", "kind", "us"), optional=("bytes",)):
        name, kind = row.text("name"), row.text("kind")
        if kind not in kinds:
            raise BadInputError(
                f"{row.where}: kind {kind!r} is not in the machine; "
                f"one of {', '.join(sorted(kinds))} was expected."
            )
        if (name, kind) in seen:
            raise BadInputError(
                f"{row.where}: op {name!r} has a time on {kind} already in {seen[name, kind]}; one "
                "row for each op and kind was expected: drop or average the others."
            )
        seen[name, kind] = row.where
        us = row.amount("us")
        num_bytes = row.num_bytes("bytes") if row.cells.get("bytes") else None
        if name in step.constants:
            continue
        op = step.graph.index_of.get(name, op_of_node.get(name))
        if op is None:
            raise BadInputError(
                f"{row.where}: the step has no op {name!r}; the name of an op that the fetches "
                "need was expected: take the times of this very graph."
            )
        _check_kernel(row, request, op, kind)
        # Outputs of nodes within a loop are not outputs of the loop, so their sizes are not used.
        is_loop = len(step.nodes[op]) > 1
        yield _Timing(row, op, kind, us, None if is_loop else num_bytes)


def _check_kernel(row: TableRow, request: CostRequest, op: int, kind: str) -> None:
    graph, supported = request.step.graph, request.step.supported
    device_type = request.machine.device_type(kind)
    if device_type in supported and not supported[device_type][op]:
        able = [name for name, ops in supported.items() if ops[op]]
        raise BadInputError(
            f"{row.where}: TensorFlow cannot run op {graph.names[op]!r} ({graph.types[op]}) on a "
            f"{device_type}; a time on a {' or '.join(able)} was expected."
        )


def _time_us(num_ops: int, timings: Iterable[_Timing]) -> dict[str, FloatArray]:
    """Return kind -> `[num_ops]`, the sum of the rows of each op; NaN if the kind cannot run it.

    A loop can only run on kinds where all its timed nodes have a time. On any other kind the sum
    would lack a part of the loop.
    """
    us_of: dict[str, dict[int, dict[str, float]]] = {}  # kind -> op -> node -> us
    nodes_of: dict[int, set[str]] = {}
    for timing in timings:
        name = timing.row.text("name")
        us_of.setdefault(timing.kind, {}).setdefault(timing.op, {})[name] = timing.us
        nodes_of.setdefault(timing.op, set()).add(name)
    time_us = {kind: np.full(num_ops, np.nan) for kind in us_of}
    for kind, of_ops in us_of.items():
        for op, of_nodes in of_ops.items():
            if of_nodes.keys() == nodes_of[op]:
                time_us[kind][op] = sum(of_nodes.values())
    return time_us


def _check_every_op_is_timed(path: Path, graph: OpGraph, time_us: Mapping[str, FloatArray]) -> None:
    is_timed = graph.labels.has_role(Role.FEED, Role.FETCH)
    for column in time_us.values():
        is_timed |= ~np.isnan(column)
    missing = np.flatnonzero(~is_timed)
    if len(missing):
        names = first_of([repr(graph.names[op]) for op in missing], SHOWN_OPS)
        raise BadInputError(
            f"{path} has no time for {len(missing)} of {graph.num_ops} ops: {names}; at "
            "least one row for every op was expected (0 for what takes no time)."
        )


def _tensor_bytes(graph: OpGraph, timings: Iterable[_Timing]) -> IntArray:
    """`[num_tensors]`: sizes in bytes, from the column `bytes` where given, else static ones."""
    stated: dict[int, _Timing] = {}
    for timing in timings:
        if timing.num_bytes is None:
            continue
        before = stated.setdefault(timing.op, timing)
        if before.num_bytes != timing.num_bytes:
            raise BadInputError(
                f"{timing.row.where}: op {graph.names[timing.op]!r} has {timing.num_bytes} bytes "
                f"here and {before.num_bytes} in {before.row.where}; the same size on every kind "
                "was expected."
            )
    tensor_bytes = graph.tensor_bytes.copy()
    for op, timing in stated.items():
        outputs = slice(graph.op_tensors[op], graph.op_tensors[op + 1])
        static = tensor_bytes[outputs].astype(np.float64)
        weights = static if static.any() else np.ones_like(static)
        if len(weights):
            shares = np.rint((timing.num_bytes or 0) * weights / weights.sum())
            tensor_bytes[outputs] = shares.astype(np.int64)
    return tensor_bytes
