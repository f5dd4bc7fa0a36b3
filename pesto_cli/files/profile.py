"""The file format of profiles: a problem in one self-contained file."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from pesto_cli.data.graph import FloatArray, IntArray, OpGraph, Tensor
from pesto_cli.data.inputs import Inputs
from pesto_cli.data.labels import TEXT_LABELS, USUAL, Labels
from pesto_cli.data.machine import short_list
from pesto_cli.data.parts import Parts
from pesto_cli.data.problem import Problem
from pesto_cli.errors import BadInputError, about
from pesto_cli.files.machine import machine_json
from pesto_cli.files.parts import check_dtypes, check_specs, parts_json, parts_value
from pesto_cli.files.profile_schema import NEWEST, Cost, OpsSchema, ProfileSchema, TensorsSchema
from pesto_cli.files.reading import read_bytes
from pesto_cli.files.repeated import entries, repeated_json
from pesto_cli.files.storage import parse_json, sha256, write_json
from pesto_cli.files.tensorflow_names import labelled


@dataclass(frozen=True, eq=False)
class Spread:
    """The spread of measured op times.

    runs: `[num_ops]`, the number of measured steps in which an op ran.
    min_us, mean_us, std_us: device kind -> `[num_ops]`, statistics over these steps; NaN where the
        op was not measured on this kind. `std_us` is the standard deviation of the population.
    """

    runs: IntArray
    min_us: Mapping[str, FloatArray] = field(default_factory=dict)
    mean_us: Mapping[str, FloatArray] = field(default_factory=dict)
    std_us: Mapping[str, FloatArray] = field(default_factory=dict)


@dataclass(frozen=True)
class Profile:
    """A problem and its origin.

    provenance: for the record: graph hash, versions, source of the op times.
    members: of a coarse problem, the names of the ops in every node; else None.
    spread: the spread of measured op times; None if they were not measured.
    program_device: `[num_ops]`, the device that the program assigned, as a shell pattern of device
        names, such as `GPU:0` or `worker:1/CPU:*`; "" if it assigned none.
    file_hash: SHA-256 of the uncompressed file, empty until it is written or read.
    """

    problem: Problem
    provenance: Mapping[str, Any] = field(default_factory=dict)
    members: list[list[str]] | None = None
    spread: Spread | None = None
    program_device: Sequence[str] | None = None
    file_hash: str = ""

    def __repr__(self) -> str:
        problem = self.problem
        size = f"{problem.num_ops:,} ops"
        if self.members is not None:
            size = f"{problem.num_ops:,} nodes for {sum(map(len, self.members)):,} ops"
        return f"<Profile: {size} on {short_list(problem.machine.index_of)}>"

    @property
    def graph_hash(self) -> str | None:
        """The hash of the profiled graph, or None if it is unknown."""
        return self.provenance.get("graph_hash")


SPREAD_TABLES = ("min_us", "mean_us", "std_us")


def read_profile(path: Path | str) -> Profile:
    """Read a profile.

    Raises:
        BadInputError: the file is missing or damaged, or the graph, times or machine break a rule.
        InfeasibleError: an op or colocation group has no device.
    """
    data = read_bytes(path)
    what = "profile (pesto profile GRAPH -o PROFILE)"
    parsed = parse_json(path, data, "pesto-profile", what, ProfileSchema, NEWEST)
    return replace(profile_of(parsed, path), file_hash=sha256(data))


def profile_of(parsed: ProfileSchema, path: Path | str) -> Profile:
    """Return a parsed profile; path: the file that contains it, for messages.

    Raises:
        BadInputError: the graph, times or machine break a rule.
        InfeasibleError: an op or colocation group has no device.
    """
    with about(path):
        return Profile(
            _problem(parsed),
            parsed.provenance,
            parsed.ops.members,
            _spread(parsed.ops),
            _program_device(parsed.ops),
        )


def _problem(parsed: ProfileSchema) -> Problem:
    ops, tensors = parsed.ops, parsed.tensors
    if not ops.name:
        raise BadInputError("the graph has no op; at least one was expected.")
    if ops.inputs is not None and tensors.producer != sorted(tensors.producer):
        raise BadInputError(
            "tensors.producer is not ascending; the tensors in the order of their producers were "
            "expected, since ops.inputs refers to their positions."
        )
    graph = OpGraph.build(
        ops.name,
        _tensors(tensors),
        types=ops.type,
        control_edges=parsed.control_edges,
        colocation_group=ops.colocation_group,
        resident_bytes=ops.resident_bytes,
        alias_of=None if ops.alias_of is None else [-1 if a is None else a for a in ops.alias_of],
        num_members=None if ops.members is None else [len(names) for names in ops.members],
        labels=_labels(ops),
        inputs=None if ops.inputs is None else Inputs.build(ops.inputs),
    )
    if parsed.version == 1:
        graph = labelled(graph)
    times, parts = _columns(ops.time_us), _parts(parsed)
    if parts is not None:
        check_specs(parts, graph)
        check_dtypes("tensors.dtype", graph.tensor_dtype)
    return Problem.build(graph, times, parsed.machine.value(), parts)


def _parts(parsed: ProfileSchema) -> Parts | None:
    if parsed.parts is None:
        return None
    if parsed.ops.members is not None:
        raise BadInputError(
            "the profile is coarse and has prices of parts; parts were expected in profiles of "
            "whole graphs only: coarsen the profile again."
        )
    return parts_value(parsed.parts, parsed.ops.name, tuple(parsed.ops.time_us))


def _tensors(tensors: TensorsSchema) -> list[Tensor]:
    num_tensors = len(tensors.producer)
    on_host = tensors.consumer_on_host or [[False] * len(row) for row in tensors.consumers]
    columns = (tensors.producer, tensors.bytes, tensors.consumers, on_host)
    if len({len(column) for column in columns}) > 1 or any(
        len(flags) != len(row) for flags, row in zip(on_host, tensors.consumers, strict=False)
    ):
        raise BadInputError(
            "tensors.producer, bytes, consumers and consumer_on_host have "
            f"{', '.join(str(len(column)) for column in columns)} entries; one entry for each "
            "tensor in all four, and one flag for each consumer, were expected."
        )
    # Tensors of equal shape share one tuple.
    shapes = entries("tensors.shape", tensors.shape, num_tensors)
    shape_of = {id(sizes): None if sizes is None else tuple(sizes) for sizes in shapes}
    shape = [shape_of[id(sizes)] for sizes in shapes]
    dtype = entries("tensors.dtype", tensors.dtype, num_tensors)
    return [Tensor(*row) for row in zip(*columns, shape, dtype, strict=True)]


def _labels(ops: OpsSchema) -> Labels:
    num_ops = len(ops.name)
    texts = {name: entries(f"ops.{name}", getattr(ops, name), num_ops) for name in TEXT_LABELS}
    return Labels.build(ops.name, **texts)


def _spread(ops: OpsSchema) -> Spread | None:
    tables = {name: getattr(ops, name) for name in SPREAD_TABLES}
    if ops.runs is None:
        for name, table in tables.items():
            if table:
                raise BadInputError(
                    f"there is ops.{name} without ops.runs; ops.runs, the number of runs of each "
                    "op, was expected with it."
                )
        return None
    columns = {
        f"{name}.{kind}": row for name, table in tables.items() for kind, row in table.items()
    }
    for name, column in {"runs": ops.runs, **columns}.items():
        if len(column) != len(ops.name):
            raise BadInputError(
                f"ops.{name} has {len(column)} entries, {len(ops.name)} were expected: one for "
                "each op."
            )
    runs = np.array(ops.runs, dtype=np.int64)
    return Spread(runs, **{name: _columns(table) for name, table in tables.items()})


def _program_device(ops: OpsSchema) -> list[str] | None:
    if ops.program_device is None:
        return None
    if len(ops.program_device) != len(ops.name):
        raise BadInputError(
            f"ops.program_device has {len(ops.program_device)} entries, {len(ops.name)} were "
            "expected: one for each op."
        )
    return [name or "" for name in ops.program_device]


def _columns(table: Mapping[str, Sequence[Cost]]) -> dict[str, FloatArray]:
    return {
        kind: np.array([math.nan if cost is None else cost for cost in column])
        for kind, column in table.items()
    }


def write_profile(path: Path | str, profile: Profile) -> None:
    """Write a profile; it is compressed if the path ends in `.gz`."""
    write_json(path, profile_json(profile))


def profile_json(profile: Profile) -> dict[str, Any]:
    """Return a profile as it is stored."""
    problem, graph = profile.problem, profile.problem.graph
    offsets = graph.consumer_offsets.tolist()
    consumers, on_host = graph.consumers.tolist(), graph.consumer_on_host.tolist()
    spans = list(pairwise(offsets))
    times = {kind: problem.time_us[:, column] for column, kind in enumerate(problem.kinds)}
    ops = {
        "name": list(graph.names),
        "type": list(graph.types),
        **_labels_json(graph.labels),
        **({} if graph.inputs is None else {"inputs": list(graph.inputs.rows())}),
        "colocation_group": graph.colocation_group.tolist(),
        "resident_bytes": graph.resident_bytes.tolist(),
        "alias_of": [None if source < 0 else source for source in graph.alias_of.tolist()],
        "time_us": _column_json(times),
    }
    if profile.members is not None:
        ops["members"] = profile.members
    if profile.program_device is not None:
        ops["program_device"] = [name or None for name in profile.program_device]
    if profile.spread is not None:
        ops["runs"] = profile.spread.runs.tolist()
        ops |= {name: _column_json(getattr(profile.spread, name)) for name in SPREAD_TABLES}
    return {
        "format": "pesto-profile",
        "version": NEWEST,
        "provenance": dict(profile.provenance),
        "machine": machine_json(problem.machine),
        "ops": ops,
        "tensors": {
            "producer": graph.tensor_producer.tolist(),
            "bytes": graph.tensor_bytes.tolist(),
            "consumers": [consumers[start:stop] for start, stop in spans],
            "consumer_on_host": [on_host[start:stop] for start, stop in spans],
            **({"shape": repeated_json(graph.tensor_shape)} if graph.tensor_shape else {}),
            **({"dtype": repeated_json(graph.tensor_dtype)} if graph.tensor_dtype else {}),
        },
        "control_edges": graph.control_edges.tolist(),
        **({} if problem.parts is None else {"parts": parts_json(problem.parts, problem.kinds)}),
    }


def _labels_json(labels: Labels) -> dict[str, Any]:
    """Return the columns that have a value other than a default."""
    return {
        name: repeated_json(column)
        for name, column in labels.texts().items()
        if len(set(column)) > 1 or column[0] not in USUAL
    }


def _column_json(table: Mapping[str, FloatArray]) -> dict[str, list[Cost]]:
    return {
        kind: [None if math.isnan(cost) else cost for cost in column.tolist()]
        for kind, column in table.items()
    }
