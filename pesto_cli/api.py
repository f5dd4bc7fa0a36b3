"""The verbs of the command line as functions: `from pesto_cli import api as pesto`.

    graph = pesto.export("zoo:RNNLM-2-2048")
    profile = pesto.profile(graph, pesto.read_machine("v100x2-nvlink"))
    result = pesto.solve(profile)
    placed = pesto.apply(graph, pesto.placement(profile, result))

Files are read and written by the `read_*` and `write_*` functions, which are here too.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pesto_cli.apply import apply
from pesto_cli.bounds import critical_path_us, lower_bound_us
from pesto_cli.cluster import Cluster, connected, is_live
from pesto_cli.coarsen import coarsen as coarsen_problem
from pesto_cli.constraints import Constraints
from pesto_cli.errors import BadInputError, InfeasibleError, NoSolutionError
from pesto_cli.files import (
    PlacementFile,
    Profile,
    placement,
    read_comm,
    read_constraints,
    read_machine,
    read_placement,
    read_profile,
    write_comm,
    write_placement,
    write_profile,
)
from pesto_cli.graph import FloatArray
from pesto_cli.graphdef.containers import read_meta_graph, write_meta_graph
from pesto_cli.graphdef.export import export
from pesto_cli.graphdef.programs.capture import capture
from pesto_cli.graphdef.read import read_step
from pesto_cli.limits import Limits
from pesto_cli.machine import Machine
from pesto_cli.memory import unavoidable_shortfall
from pesto_cli.problem import Problem
from pesto_cli.profile import profile
from pesto_cli.profile.source import Live
from pesto_cli.report.memory import memory_text
from pesto_cli.report.tables import shortfall_text
from pesto_cli.result import Result, SolveStatus
from pesto_cli.runtime.comparison import RealRun, compared
from pesto_cli.runtime.interleaved import Turns
from pesto_cli.schedule import violations
from pesto_cli.simulate import Simulator, replay
from pesto_cli.strategies import STRATEGIES, Search, order
from pesto_cli.strategies.run import judged, run
from pesto_cli.strategies.search import Answer
from pesto_cli.strategies.warm_up import warm_up

__all__ = [
    "STRATEGIES",
    "Limits",
    "Search",
    "apply",
    "capture",
    "check_same_machine",
    "coarsen",
    "compare",
    "connected",
    "constrain",
    "critical_path_us",
    "export",
    "is_live",
    "lower_bound_us",
    "placement",
    "predicted_us",
    "profile",
    "profile_by_run",
    "random_orders_us",
    "read_comm",
    "read_constraints",
    "read_machine",
    "read_meta_graph",
    "read_placement",
    "read_profile",
    "run_steps",
    "simulate",
    "solve",
    "violations",
    "warm_up",
    "write_comm",
    "write_meta_graph",
    "write_placement",
    "write_profile",
]


def constrain(profile: Profile, constraints: Constraints) -> Profile:
    """Apply the user's constraints; every verb after this one respects them."""
    return replace(profile, problem=constraints.apply(profile.problem))


def coarsen(profile: Profile, num_nodes: int = 200) -> Profile:
    """Coarsen to a profile whose ops are nodes, with the names of their members."""
    coarsening = coarsen_problem(profile.problem, num_nodes)
    names = profile.problem.graph.names
    members = [
        [names[op] for op in coarsening.members[node].tolist()]
        for node in range(coarsening.num_nodes)
    ]
    provenance = {**profile.provenance, "coarsened_from": profile.file_hash}
    return Profile(coarsening.problem, provenance, members)


def solve(profile: Profile, strategy: str = "pesto", search: Search | None = None) -> Result:
    """Find a schedule that fits into memory.

    Raises:
        InfeasibleError: none exists, or the strategy's only one does not fit.
        NoSolutionError: the search ended before it found one, and none of either is proved.
    """
    problem = profile.problem
    result = run(problem, strategy, search or Search())
    if result.status is not SolveStatus.OUT_OF_MEMORY:
        return result
    reason = unavoidable_shortfall(problem)
    kind = NoSolutionError if reason is None and strategy == "pesto" else InfeasibleError
    error = kind(
        f"no placement that {strategy} found in {result.runtime_s:.1f} s fits into memory: "
        f"{shortfall_text(problem, result)} ({reason or 'more time may find one that fits'}); "
        "reduce the batch size, use devices with more memory, or relax the headroom."
    )
    error.add_note(memory_text(result.memory_peaks))
    raise error


def compare(
    profile: Profile, strategies: Sequence[str] = tuple(STRATEGIES), search: Search | None = None
) -> list[Result]:
    """Every strategy's result on the same problem, also what exceeds the memory."""
    return [run(profile.problem, name, search or Search()) for name in strategies]


def simulate(profile: Profile, placed: PlacementFile) -> Result:
    """Replay a placement: every device strictly in rank order."""
    began = time.perf_counter()
    answer = Answer(replay(profile.problem, placed.match(profile.problem)))
    name = placed.provenance.get("strategy", "placement")
    runtime_s = time.perf_counter() - began
    return judged(profile.problem, name, answer, runtime_s)


def random_orders_us(
    profile: Profile, placed: PlacementFile, count: int = 20, seed: int = 0
) -> FloatArray:
    """Makespans where only the devices of a placement are applied, `[count]`."""
    device = placed.match(profile.problem).device
    return order.random_orders_us(Simulator(profile.problem), device, count, seed)


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
    return profile(meta, cluster.machine, source="run", live=live, **options)


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


def run_steps(
    meta: Any,
    cluster: Cluster,
    placements: Sequence[PlacementFile | None],
    *,
    steps: int = 50,
    warm_up: int = 5,
    feeds: str | None = None,
) -> list[RealRun]:
    """Run a graph under every placement (None: as it stands), by turns: see `runtime.comparison`.

    `with pesto.connected("local-workers:2") as cluster:` gives the devices.
    """
    return compared(meta, cluster, placements, Turns(steps, warm_up), feeds)


def predicted_us(placed: PlacementFile, profile: Profile | None = None) -> float | None:
    """The step time that a placement promises: by a profile, else as its file has it."""
    if profile is not None:
        machine = profile.problem.machine
        return simulate(profile, placed).makespan_us + machine.step_overhead_us
    step_us: float | None = placed.predicted.get("step_us", placed.predicted.get("makespan_us"))
    return step_us


def check_same_machine(profile: Profile, machine: Machine) -> None:
    """Refuse a profile of other devices than a machine's.

    Raises:
        BadInputError: naming both.
    """
    profiled = [(device.name, device.kind) for device in profile.problem.machine.devices]
    present = [(device.name, device.kind) for device in machine.devices]
    if profiled != present:
        found, expected = (
            ", ".join(f"{name} ({kind})" for name, kind in devices)
            for devices in (profiled, present)
        )
        raise BadInputError(
            f"the profile is of another machine: it has {found}; {expected} were expected: profile "
            "the graph on this machine (pesto profile --machine ... --source run)."
        )
