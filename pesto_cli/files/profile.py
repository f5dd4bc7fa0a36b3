"""Profiles: a problem in one self-contained file."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from pesto_cli.errors import BadInputError, about
from pesto_cli.files.machine import MachineSchema, machine_json
from pesto_cli.files.storage import Extensible, parse_json, read_bytes, sha256, write_json
from pesto_cli.graph import OpGraph, Tensor
from pesto_cli.problem import Problem


@dataclass(frozen=True)
class Profile:
    """A problem and where it comes from.

    provenance: graph hash, versions, source of the op times.
    members: of a coarse problem, the names of the ops in every node.
    file_hash: SHA-256 of the unpacked file, empty until it is written or read.
    """

    problem: Problem
    provenance: Mapping[str, Any] = field(default_factory=dict)
    members: list[list[str]] | None = None
    file_hash: str = ""

    @property
    def graph_hash(self) -> str | None:
        """Hash of the graph that was profiled, if it is known."""
        return self.provenance.get("graph_hash")


_Cost = float | None
# Far above any tensor, and low enough that the sum over a graph stays an int64.
MAX_TENSOR_BYTES = 2**45
_Bytes = Annotated[int, Field(le=MAX_TENSOR_BYTES)]
_Index = Annotated[int, Field(lt=2**31)]


class _OpsSchema(Extensible):
    name: list[str]
    time_us: dict[str, list[_Cost]]
    type: list[str] | None = None
    colocation_group: list[int | str | None] | None = None
    resident_bytes: list[_Bytes] | None = None
    alias_of: list[_Index | None] | None = None
    members: list[list[str]] | None = None


class _TensorsSchema(Extensible):
    producer: list[_Index]
    bytes: list[_Bytes]
    consumers: list[list[_Index]]
    consumer_on_host: list[list[bool]] | None = None


class _ProfileSchema(Extensible):
    provenance: dict[str, Any] = {}
    machine: MachineSchema
    ops: _OpsSchema
    tensors: _TensorsSchema
    control_edges: list[Annotated[list[_Index], Field(min_length=2, max_length=2)]] = []


def read_profile(path: Path | str) -> Profile:
    """Read a profile.

    Raises:
        BadInputError: the file is missing, damaged, or breaks a rule of graph, costs or machine.
        InfeasibleError: an op or colocation group has no device.
    """
    data = read_bytes(path)
    parsed = parse_json(
        path, data, "pesto-profile", "profile (pesto profile GRAPH -o PROFILE)", _ProfileSchema
    )
    with about(path):
        problem = _problem(parsed)
    return Profile(problem, parsed.provenance, parsed.ops.members, sha256(data))


def _problem(parsed: _ProfileSchema) -> Problem:
    ops, tensors = parsed.ops, parsed.tensors
    if not ops.name:
        raise BadInputError("the graph has no op; at least one was expected.")
    on_host = tensors.consumer_on_host or [[False] * len(row) for row in tensors.consumers]
    columns = (tensors.producer, tensors.bytes, tensors.consumers, on_host)
    if len({len(column) for column in columns}) > 1 or any(
        len(flags) != len(row) for flags, row in zip(on_host, tensors.consumers, strict=False)
    ):
        raise BadInputError(
            "tensors.producer, bytes, consumers and consumer_on_host have "
            f"{', '.join(str(len(column)) for column in columns)} entries; one entry for each "
            "tensor, and one flag for each consumer, was expected."
        )
    graph = OpGraph.build(
        ops.name,
        [Tensor(*row) for row in zip(*columns, strict=True)],
        types=ops.type,
        control_edges=parsed.control_edges,
        colocation_group=ops.colocation_group,
        resident_bytes=ops.resident_bytes,
        alias_of=None if ops.alias_of is None else [-1 if a is None else a for a in ops.alias_of],
        num_members=None if ops.members is None else [len(names) for names in ops.members],
    )
    time_us = {
        kind: np.array([math.nan if cost is None else cost for cost in column])
        for kind, column in ops.time_us.items()
    }
    return Problem.build(graph, time_us, parsed.machine.value())


def write_profile(path: Path | str, profile: Profile) -> None:
    """Write a profile; `.gz` packs it."""
    problem, graph = profile.problem, profile.problem.graph
    offsets = graph.consumer_offsets.tolist()
    consumers, on_host = graph.consumers.tolist(), graph.consumer_on_host.tolist()
    spans = list(pairwise(offsets))
    times = {
        kind: [None if math.isnan(cost) else cost for cost in problem.time_us[:, column].tolist()]
        for column, kind in enumerate(problem.kinds)
    }
    ops = {
        "name": list(graph.names),
        "type": list(graph.types),
        "colocation_group": graph.colocation_group.tolist(),
        "resident_bytes": graph.resident_bytes.tolist(),
        "alias_of": [None if source < 0 else source for source in graph.alias_of.tolist()],
        "time_us": times,
    }
    if profile.members is not None:
        ops["members"] = profile.members
    value = {
        "format": "pesto-profile",
        "version": 1,
        "provenance": dict(profile.provenance),
        "machine": machine_json(problem.machine),
        "ops": ops,
        "tensors": {
            "producer": graph.tensor_producer.tolist(),
            "bytes": graph.tensor_bytes.tolist(),
            "consumers": [consumers[start:stop] for start, stop in spans],
            "consumer_on_host": [on_host[start:stop] for start, stop in spans],
        },
        "control_edges": graph.control_edges.tolist(),
    }
    write_json(path, value)
