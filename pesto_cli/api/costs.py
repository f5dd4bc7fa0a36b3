"""Profiles: what ops and transfers take, and what a user demands."""

from dataclasses import replace
from typing import Any

import numpy as np

from pesto_cli.api.arguments import MetaGraph, checked
from pesto_cli.api.placing import compare, placement, solve
from pesto_cli.cluster import Cluster
from pesto_cli.data.constraints import Constraints
from pesto_cli.data.constraints import keep_devices as kept
from pesto_cli.data.machine import Machine
from pesto_cli.data.problem import Problem
from pesto_cli.data.result import SolveStatus
from pesto_cli.errors import BadInputError
from pesto_cli.files import CommFit, PlacementFile, Profile, read_machine
from pesto_cli.graphdef.read import read_step
from pesto_cli.profile import profile as profile_graph
from pesto_cli.profile.source import Live


@checked
def profile(
    meta: MetaGraph,
    machine: Machine | str = "v100x2-nvlink",
    *,
    source: str = "analytic",
    cpu_offload: bool = False,
    comm: list[CommFit] | None = None,
    what: str = "the graph",
) -> Profile:
    """Give every op of a graph its time on every kind of device.

    Args:
        meta: a MetaGraphDef, as of `export` and `load`.
        machine: or the name of one: a preset, or a TOML file.
        source: of op times: "analytic", "csv:FILE" or "trace:FILE"; `profile_by_run` measures.
        cpu_offload: give ops that a GPU can run a time on the CPU too.
        comm: fits to put on the machine's links, as `load` reads them.
        what: names the graph in errors.

    Raises:
        BadInputError: the source is unknown, or graph, machine and costs do not fit each other.
        InfeasibleError: an op or colocation group has no device.

    Example:
        >>> profile(export("zoo:RNNLM-tiny"), "v100x2-pcie")
    """
    known = read_machine(machine) if isinstance(machine, str) else machine
    return profile_graph(meta, known, source=source, cpu_offload=cpu_offload, comm=comm, what=what)


@checked
def constrain(profile: Profile, constraints: Constraints) -> Profile:
    """Apply the user's constraints; every verb after this one respects them."""
    return replace(profile, problem=constraints.apply(profile.problem))


@checked
def keep_devices(profile: Profile) -> Profile:
    """Leave ops where the program itself puts them, by `tf.device`; see `Profile.program_device`.

    Raises:
        BadInputError: the profile does not know them, or the machine lacks one of them.
        InfeasibleError: an op has no time there, or a colocation group is put on several.
    """
    if profile.program_device is None:
        raise BadInputError(
            "the profile does not say where the program puts its ops; one of an exported graph was "
            "expected, not a coarse one: profile the graph again."
        )
    return replace(profile, problem=kept(profile.problem, profile.program_device))


def profile_by_run(
    meta: Any,
    cluster: Cluster,
    *,
    steps: int = 100,
    warm_up: int = 5,
    feeds: str | None = None,
    **options: Any,
) -> Profile:
    """Profile a graph by steps that are really run; `options` as of `profile`.

    They run on one device of each kind, or spread over all by layers if they do not fit there.

    Raises:
        InfeasibleError: they do not fit so either.
    """
    spread = _spread_to_fit(meta, cluster.machine, options.get("what", "the graph"))
    live = Live(cluster, steps, warm_up, feeds, spread)
    return profile_graph(meta, cluster.machine, source="run", live=live, **options)


def _spread_to_fit(meta: Any, machine: Machine, what: str) -> PlacementFile | None:
    """None if a graph fits on one device, else its layers over all of them.

    Nothing is known of the times yet: all ops are taken to be equal.
    """
    step = read_step(meta, what)
    most_bytes = int(step.graph.resident_bytes.sum() + step.graph.tensor_bytes.sum())
    if most_bytes <= min(device.memory_bytes for device in machine.devices):
        return None
    time_us = {
        device.kind: np.where(step.supported[machine.device_type(device.kind)], 1.0, np.nan)
        for device in machine.devices
    }
    unpriced = Profile(Problem.build(step.graph, time_us, machine))
    (alone,) = compare(unpriced, ["single"])
    if alone.status is not SolveStatus.OUT_OF_MEMORY:
        return None
    return placement(unpriced, solve(unpriced, "expert"))
