"""The file format of placements: a device and a rank for every op, by name."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pesto_cli import __version__
from pesto_cli.data.graph import IntArray, OpGraph
from pesto_cli.data.load import Load, whole_load
from pesto_cli.data.machine import Machine, short_list
from pesto_cli.data.plan import WHOLE_OPS, Plan
from pesto_cli.data.problem import Problem
from pesto_cli.data.result import Result
from pesto_cli.data.schedule import Placement, sent_bytes
from pesto_cli.errors import BadInputError, about
from pesto_cli.files.placement_schema import PlacementSchema
from pesto_cli.files.plan import (
    PlacedParts,
    parts_json,
    parts_of,
    plan_json,
    plan_of,
)
from pesto_cli.files.profile import Profile
from pesto_cli.files.reading import read_bytes
from pesto_cli.files.storage import parse_json, sha256, write_json
from pesto_cli.printable import logger

log = logger(__name__)


NEWEST = 2
OF_A_COARSE_PROFILE = "expand it (pesto_cli.api.expand) if it was made from a coarse profile"


@dataclass(frozen=True)
class PlacementFile:
    """A placement by op names, as in a file; `match` maps it to the ops of a problem.

    names, device, rank: one entry for each op; `device` has indices into `devices`.
    fingerprint: see `fingerprints`; one for each of `graph_ops`, or empty.
    provenance: hashes of the profile and the graph, the strategy and its parameters.
    predicted: figures of the predicted schedule.
    plan: how ops are split before they are placed.
    parts: of which ops of the graph the placed ops are parts; None without a plan.
    file_hash: SHA-256 of the uncompressed file, empty unless it was read from one.
    """

    devices: list[str]
    names: list[str]
    device: list[int]
    rank: list[int]
    fingerprint: list[str]
    provenance: Mapping[str, Any]
    predicted: Mapping[str, Any]
    file_hash: str = ""
    plan: Plan = WHOLE_OPS
    parts: PlacedParts | None = None

    def __repr__(self) -> str:
        makespan_us = self.predicted.get("makespan_us")
        predicted = "" if makespan_us is None else f", makespan {makespan_us:,.1f} us"
        split = f" ({len(self.plan.choices):,} ops split)" if self.plan else ""
        size = f"{len(self.names):,} ops{split} on {short_list(self.devices)}"
        return f"<PlacementFile: {size}{predicted}>"

    @property
    def graph_hash(self) -> str | None:
        """The hash of the placed graph, or None if it is unknown."""
        return self.provenance.get("graph_hash")

    @property
    def whole_load(self) -> Load | None:
        """The load of the best schedule with whole ops, if ops are split and it is known."""
        stored = self.predicted.get("whole_ops")
        return None if stored is None else Load(**stored)

    @property
    def graph_ops(self) -> Sequence[str]:
        """The names of the ops of the graph, before ops were split."""
        return self.names if self.parts is None else self.parts.ops

    def origin_of(self, row: int) -> str | None:
        """Return the name of the graph's op that a placed op is, or is a part of; None if added."""
        if self.parts is None:
            return self.names[row]
        origin = self.parts.origin[row]
        return None if origin < 0 else self.parts.ops[origin]

    def match(self, problem: Problem) -> Placement:
        """Return the placement in the problem's order of ops and devices.

        If the placement has a plan, the problem must be split by this plan.

        Raises:
            BadInputError: the ops are others; the machine lacks a device; a device may not run its
                ops; or a colocation group is split.
        """
        placed = self.on_machine(problem.graph, problem.machine)
        _check_devices(problem, placed.device)
        return placed

    def on_machine(self, graph: OpGraph, machine: Machine) -> Placement:
        """Return the placement in a graph's order of ops, with device indices of a machine.

        Raises:
            BadInputError: the ops are others, or the machine lacks a device.
        """
        known = machine.index_of
        for name in self.devices:
            if name not in known:
                raise BadInputError(
                    f"the placement uses device {name!r}; one of {', '.join(known)} was expected."
                )
        placed = self.of_graph(graph)
        index = np.array([known[name] for name in self.devices], dtype=np.int64)
        return Placement(index[placed.device], placed.rank)

    def of_graph(self, graph: OpGraph) -> Placement:
        """Return the placement in a graph's order of ops, with indices into `devices`.

        Raises:
            BadInputError: the placement has other ops than the graph.
        """
        self.check_same_ops(graph.names)
        row_of = {name: row for row, name in enumerate(self.names)}
        rows = np.array([row_of[name] for name in graph.names], dtype=np.int64)
        device, rank = (np.array(column, dtype=np.int64) for column in (self.device, self.rank))
        return Placement(device[rows], rank[rows])

    def check_graph_ops(self, names: Sequence[str]) -> None:
        """Raise BadInputError if the placement is not of a graph with ops of these names."""
        _check_names("is of another graph", self.graph_ops, names, can_be_coarse=not self.plan)

    def check_same_ops(self, names: Sequence[str]) -> None:
        """Raise BadInputError if the placed ops do not have these names."""
        what = "is of another graph" if self.parts is None else "has other ops than its plan makes"
        _check_names(what, self.names, names, can_be_coarse=not self.plan)


def _check_names(
    what: str, found: Sequence[str], expected: Sequence[str], *, can_be_coarse: bool
) -> None:
    missing, unknown = sorted(set(expected) - set(found)), sorted(set(found) - set(expected))
    if missing or unknown:
        raise BadInputError(
            f"the placement {what}: "
            + (f"it lacks {len(missing)} ops such as {missing[0]!r}" if missing else "")
            + ("; " if missing and unknown else "")
            + (f"it has {len(unknown)} other ops such as {unknown[0]!r}" if unknown else "")
            + "; profile and solve this graph to get a placement for it"
            + (f", or {OF_A_COARSE_PROFILE}." if can_be_coarse and not unknown else ".")
        )


def _check_devices(problem: Problem, device: IntArray) -> None:
    graph, ops = problem.graph, np.arange(problem.num_ops)
    names = [row.name for row in problem.machine.devices]
    forbidden = ~problem.allowed[ops, device]
    if forbidden.any():
        op = int(np.argmax(forbidden))
        able = [names[index] for index in np.flatnonzero(problem.allowed[op])]
        raise BadInputError(
            f"the placement puts op {graph.names[op]!r} on {names[device[op]]}, where the op or "
            f"its colocation group may not run; one of {', '.join(able)} was expected: solve this "
            "profile with these constraints."
        )
    leader = graph.groups.indices[graph.groups.offsets[:-1]][graph.colocation_group]
    split = device != device[leader]
    if split.any():
        op = int(np.argmax(split))
        raise BadInputError(
            f"the placement splits a colocation group: {graph.names[leader[op]]!r} is on "
            f"{names[device[leader[op]]]}, {graph.names[op]!r} on {names[device[op]]}; one device "
            "was expected: solve this profile."
        )


def read_placement(path: Path | str) -> PlacementFile:
    """Read a placement.

    Raises:
        BadInputError: the file is missing or damaged, or its columns do not match each other.
    """
    data = read_bytes(path)
    parsed = parse_json(
        path,
        data,
        "pesto-placement",
        "placement (pesto solve PROFILE -o PLACEMENT)",
        PlacementSchema,
        NEWEST,
    )
    return replace(placement_of(parsed, path), file_hash=sha256(data))


def placement_of(parsed: PlacementSchema, path: Path | str) -> PlacementFile:
    """Return a parsed placement; path: the file that contains it, for messages.

    Raises:
        BadInputError: its columns do not match each other.
    """
    ops = parsed.ops
    if not len(ops.name) == len(ops.device) == len(ops.rank) == len(set(ops.name)):
        raise BadInputError(
            f"{path}: ops.name, device and rank have {len(ops.name)}, {len(ops.device)} and "
            f"{len(ops.rank)} entries; one entry for each op in all three, and unique names, were "
            "expected."
        )
    if len(set(parsed.devices)) < len(parsed.devices):
        raise BadInputError(
            f"{path}: devices are {', '.join(parsed.devices)}; unique names were expected."
        )
    with about(path):
        plan = plan_of(parsed.plan)
        parts = parts_of(parsed.parts, plan, len(ops.name))
    if plan.num_local:
        log.warning(
            "%s: %s split ops compute something else than whole ops, as --batch-norm local or"
            " --random local allowed.",
            path,
            f"{plan.num_local:,}",
        )
    _check_lengths(path, parsed)
    ranks: dict[int, list[int]] = {}
    for device, rank in zip(ops.device, ops.rank, strict=True):
        if not 0 <= device < len(parsed.devices):
            raise BadInputError(
                f"{path}: an op is on device {device}; an index into the "
                f"{len(parsed.devices)} devices was expected."
            )
        ranks.setdefault(device, []).append(rank)
    for device, row in ranks.items():
        if sorted(row) != list(range(len(row))):
            raise BadInputError(
                f"{path}: the ranks on {parsed.devices[device]} are not 0 to {len(row) - 1}, each "
                "once, as expected."
            )
    return PlacementFile(
        devices=parsed.devices,
        names=ops.name,
        device=ops.device,
        rank=ops.rank,
        fingerprint=parsed.fingerprint,
        provenance=parsed.provenance,
        predicted=parsed.predicted.model_dump(exclude_unset=True),
        plan=plan,
        parts=parts,
    )


def _check_lengths(path: Path | str, parsed: PlacementSchema) -> None:
    num_ops = len(parsed.parts.ops or parsed.ops.name)
    num_devices = len(parsed.devices)
    if len(parsed.fingerprint) not in (0, num_ops):
        raise BadInputError(
            f"{path}: fingerprint has {len(parsed.fingerprint)} entries; one for each of the "
            f"{num_ops} ops, or none, was expected."
        )
    predicted = parsed.predicted
    rows: list[Sequence[object]] = [
        predicted.peak_bytes,
        predicted.sent_bytes,
        *predicted.sent_bytes,
    ]
    for row in rows:
        if len(row) not in (0, num_devices):
            raise BadInputError(
                f"{path}: a row of predicted.peak_bytes or sent_bytes has {len(row)} entries; one "
                f"for each of the {num_devices} devices was expected."
            )


def placement(
    profile: Profile, result: Result, parameters: Mapping[str, Any] | None = None
) -> PlacementFile:
    """Return the placement file of a result; `parameters` of the strategy go into `provenance`.

    Raises:
        BadInputError: the result is for a graph that was rewritten, but not by a plan.
    """
    solution, schedule = result.solution, result.schedule
    graph, placed = profile.problem.graph, result.problem.graph
    parts, whole = None, whole_load(solution)
    if solution.is_rewritten:
        if not solution.plan or solution.part is None:
            raise BadInputError(
                f"{result.strategy} has placed {result.problem.num_ops:,} ops of a rewritten graph "
                "without a plan, which a placement file cannot hold; a plan, or a result for the "
                "original graph, was expected: use another strategy."
            )
        parts = PlacedParts(graph.names, solution.origin.tolist(), solution.part.tolist())
    return PlacementFile(
        devices=[device.name for device in profile.problem.machine.devices],
        names=list(placed.names),
        device=schedule.device.tolist(),
        rank=schedule.rank.tolist(),
        fingerprint=fingerprints(graph),
        provenance={
            "profile_hash": profile.file_hash,
            "graph_hash": profile.graph_hash,
            "pesto_version": __version__,
            "strategy": result.strategy,
            "parameters": dict(parameters or {}),
        },
        predicted={
            "makespan_us": result.makespan_us,
            "step_us": result.makespan_us + profile.problem.machine.step_overhead_us,
            "lower_bound_us": result.lower_bound_us,
            "peak_bytes": schedule.peak_bytes.tolist(),
            "sent_bytes": sent_bytes(result.problem, schedule).tolist(),
            **({} if whole is None else {"whole_ops": asdict(whole)}),
        },
        plan=solution.plan or WHOLE_OPS,
        parts=parts,
    )


def write_placement(path: Path | str, placed: PlacementFile) -> None:
    """Write a placement; the same value gives the same bytes."""
    write_json(path, placement_json(placed))


def placement_json(placed: PlacementFile) -> dict[str, Any]:
    """Return a placement as it is stored."""
    return {
        "format": "pesto-placement",
        "version": NEWEST,
        "provenance": dict(placed.provenance),
        "devices": placed.devices,
        "ops": {"name": placed.names, "device": placed.device, "rank": placed.rank},
        "plan": plan_json(placed.plan),
        "parts": parts_json(placed.parts),
        "fingerprint": placed.fingerprint,
        "predicted": dict(placed.predicted),
    }


def fingerprints(graph: OpGraph) -> list[str]:
    """Return a short digest of every op: of its type, its inputs' producers and their bytes."""
    inputs: list[list[str]] = [[] for _ in range(graph.num_ops)]
    for tensor, consumer in zip(
        graph.consumer_tensor.tolist(), graph.consumers.tolist(), strict=True
    ):
        producer = graph.names[graph.tensor_producer[tensor]]
        inputs[consumer].append(f"{producer}:{graph.tensor_bytes[tensor]}")
    for before, after in graph.control_edges.tolist():
        inputs[after].append(f"^{graph.names[before]}")
    return [
        hashlib.blake2b(json.dumps([kind, *sorted(row)]).encode(), digest_size=4).hexdigest()
        for kind, row in zip(graph.types, inputs, strict=True)
    ]
