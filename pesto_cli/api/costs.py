"""Making profiles, which hold the times of ops and transfers, and adding the user's constraints."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pesto_cli.api.arguments import MetaGraph, checked
from pesto_cli.api.placing import compare, placement, solve
from pesto_cli.cluster import Cluster
from pesto_cli.data.constraints import Constraints
from pesto_cli.data.constraints import keep_devices as kept
from pesto_cli.data.machine import Machine
from pesto_cli.data.plan import Local
from pesto_cli.data.problem import Problem
from pesto_cli.data.result import SolveStatus
from pesto_cli.errors import BadInputError
from pesto_cli.files import CommFit, PlacementFile, Profile, read_machine
from pesto_cli.graphdef.read import read_step
from pesto_cli.profile import profile as profile_graph
from pesto_cli.profile.source import Live
from pesto_cli.strategies.chosen_plan import with_chosen


@checked
def profile(
    meta: MetaGraph,
    machine: Machine | str = "v100x2-nvlink",
    *,
    source: str = "analytic",
    cpu_offload: bool = False,
    comm: list[CommFit] | None = None,
    parts: Sequence[int] = (),
    what: str = "the graph",
) -> Profile:
    """Return a profile: the time of every op of a graph on every device kind.

    Args:
        meta: a MetaGraphDef, as `export` and `load` return it.
        machine: a machine, or the name of one: a preset or a TOML file.
        source: the source of op times: "analytic", "csv:FILE" or "trace:FILE". To measure them, use
            `profile_by_run`.
        cpu_offload: let ops that a GPU can run also run on the CPU.
        comm: communication fits for the links of the machine, as `load` reads them.
        parts: the numbers of parts whose prices are added, such as (2, 4, 8), so that ops can be
            split; by default ops stay whole.
        what: the name of the graph in errors.

    Raises:
        BadInputError: the source is unknown, or graph, machine and times do not fit together.
        InfeasibleError: an op or colocation group has no device.

    Example:
        >>> profile(export("zoo:RNNLM-tiny"), "v100x2-pcie")
    """
    known = read_machine(machine) if isinstance(machine, str) else machine
    return profile_graph(
        meta, known, source=source, cpu_offload=cpu_offload, comm=comm, parts=parts, what=what
    )


@checked
def constrain(profile: Profile, constraints: Constraints) -> Profile:
    """Return the profile with the user's constraints, which all functions then respect.

    Raises:
        BadInputError: a pattern matches no op, a device is unknown, or ops cannot be split so.
        InfeasibleError: no device remains for an op or a colocation group.
    """
    problem = with_chosen(constraints.apply(profile.problem), constraints.split)
    return replace(profile, problem=problem)


@checked
def limit_parts(profile: Profile, max_parts: int) -> Profile:
    """Return the profile with prices of at most `max_parts` parts; 1 keeps all ops whole.

    Raises:
        BadInputError: `max_parts` is above 1, and the profile has no prices of so few parts.

    Example:
        >>> solve(limit_parts(profile, 1))
    """
    parts, limited = profile.problem.parts, profile.problem.limited(max_parts)
    if max_parts > 1 and limited.parts is None:
        known = "no prices of parts" if parts is None else f"only prices of {parts.numbers} parts"
        raise BadInputError(
            f"ops may be split into at most {max_parts} parts, but the profile has {known}; prices "
            f"of {max_parts} or fewer parts were expected: profile the graph with --parts 2,4,8."
        )
    return replace(profile, problem=limited)


@checked
def whole_variables(profile: Profile) -> Profile:
    """Return the profile with variables that no plan splits or mirrors.

    Keras models and functions of TensorFlow 2 (`place_function`) need such a plan. Exported graphs
    and programs with v1 sessions do not.

    Example:
        >>> solve(whole_variables(profile))
    """
    return replace(profile, problem=profile.problem.with_whole_variables())


@checked
def allow_local(profile: Profile, *, batch_norm: bool = False, random: bool = False) -> Profile:
    """Return the profile with a step whose parts may compute something else than whole ops.

    Args:
        profile: a profile with prices of parts.
        batch_norm: parts of fused batch normalisation use the mean and variance of their own rows.
        random: parts of random ops without a state draw with seeds of their own.

    Example:
        >>> solve(allow_local(profile, batch_norm=True))
    """
    allowed = ((Local.BATCH_NORM, batch_norm), (Local.RANDOM, random))
    local = frozenset(each for each, is_allowed in allowed if is_allowed)
    return replace(profile, problem=replace(profile.problem, local=local))


@checked
def keep_devices(profile: Profile) -> Profile:
    """Return the profile with ops bound to the devices that the program sets by `tf.device`.

    See `Profile.program_device`.

    Raises:
        BadInputError: the profile has no such devices, or the machine lacks one of them.
        InfeasibleError: an op has no time on its device, or the program puts a colocation group on
            several devices.
    """
    if profile.program_device is None:
        raise BadInputError(
            "the profile does not store the devices that the program sets; a profile of an "
            "exported graph was expected, not a coarse one: profile the graph again."
        )
    return replace(profile, problem=kept(profile.problem, profile.program_device))


def profile_by_run(
    meta: Any,
    cluster: Cluster,
    *,
    steps: int = 100,
    warm_up: int = 5,
    feeds: str | None = None,
    limit_s: float = math.inf,
    **options: Any,
) -> Profile:
    """Profile a graph by running real steps on a cluster; `options` are those of `profile`.

    The steps run on one device of each kind. If the graph does not fit into the memory of that
    device, its layers are spread over all devices. feeds: the data of the feeds, `FILE.npz` or
    `script.py:function`. limit_s: seconds after which there are no more steps, except for the
    fewest, see `Live`.

    Raises:
        InfeasibleError: the layers do not fit on all devices either.
    """
    spread = _spread_to_fit(meta, cluster.machine, options.get("what", "the graph"))
    live = Live(cluster, steps, warm_up, feeds, spread, limit_s)
    return profile_graph(meta, cluster.machine, source="run", live=live, **options)


def _spread_to_fit(meta: Any, machine: Machine, what: str) -> PlacementFile | None:
    """Return a placement of a graph's layers over all devices; None if one device holds the graph.

    Op times are not known yet, so all ops get the same time.
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
