"""Which results of an earlier run still hold for a graph: what `pesto place` does not do again."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pesto_cli.api.checking import check
from pesto_cli.api.placing import solution_of, strategy_of
from pesto_cli.data.machine import Machine
from pesto_cli.data.result import Result
from pesto_cli.data.solution import PlanSet
from pesto_cli.diff import Freshness
from pesto_cli.errors import BadInputError
from pesto_cli.files import PlacementFile, Profile, read_placement, read_profile
from pesto_cli.files.machine import machine_json
from pesto_cli.graphdef.hashing import graph_hash
from pesto_cli.strategies.run import judged

# These parameters say how long a search ran and where it started, not which results it may return.
EFFORT = ("time_limit", "warm_start", "workers")


def fresh_profile(
    path: Path, meta: Any, machine: Machine, source: str, parts: Sequence[int] = ()
) -> Profile | None:
    """Return the profile in a file if it was made for these arguments; else None.

    None if it is of others, or if the file does not exist or is damaged.

    Args:
        path: the path of the file, which need not exist.
        meta: a MetaGraphDef.
        machine: the machine, with fitted links if there are any.
        source: the source of op times, as in `profile`.
        parts: the numbers of parts that are priced.
    """
    try:
        found = read_profile(path)
    except BadInputError:
        return None
    priced = found.problem.parts
    is_fresh = (
        found.graph_hash == graph_hash(meta.graph_def)
        and found.provenance.get("source") == source
        and ([] if priced is None else list(priced.numbers)) == sorted(set(parts))
        and _described(found.problem.machine, source) == _described(machine, source)
    )
    return found if is_fresh else None


def _described(machine: Machine, source: str) -> dict[str, Any]:
    """Return a machine as JSON; with source `run`, without what its steps have shown."""
    if source == "run":
        devices = tuple(replace(device, op_overhead_us=0.0) for device in machine.devices)
        machine = replace(machine, devices=devices, step_overhead_us=0.0, contention={})
    return machine_json(machine)


def earlier_placement(path: Path) -> PlacementFile | None:
    """Return the placement in a file; None if the file is missing or damaged."""
    try:
        return read_placement(path)
    except BadInputError:
        return None


def as_recorded(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters in the form that files have: a tuple becomes a list."""
    recorded: dict[str, Any] = json.loads(json.dumps(dict(parameters)))
    return recorded


def is_fresh_placement(
    placed: PlacementFile, meta: Any, profile: Profile, wanted: Mapping[str, Any]
) -> bool:
    """Return whether a placement can be used in place of a new search with these parameters.

    It can if `check` calls it fresh, and a search with the same parameters and at least the
    same time limit has found it.

    Args:
        placed: the placement of an earlier run.
        meta: a MetaGraphDef.
        profile: a profile of this graph.
        wanted: parameters of the search, as a placement file records them.
    """
    recorded = dict(placed.provenance.get("parameters", {}))
    wanted = as_recorded(wanted)
    if float(recorded.get("time_limit", 0.0)) < float(wanted["time_limit"]):
        return False
    if {**recorded, **dict.fromkeys(EFFORT)} != {**wanted, **dict.fromkeys(EFFORT)}:
        return False
    return check(meta, placed, profile).freshness is Freshness.FRESH


def earlier_result(placed: PlacementFile, profile: Profile) -> Result:
    """Return the result of a fresh placement, with the lower bound that its search has proved."""
    has_parts = profile.problem.parts is not None
    solution = replace(
        solution_of(profile, placed),
        lower_bound_us=float(placed.predicted.get("lower_bound_us", 0.0)),
        bound_holds_for=PlanSet.ALL_PLANS if has_parts else PlanSet.ASKED_GRAPH,
    )
    return judged(strategy_of(placed), solution, runtime_s=0.0)
