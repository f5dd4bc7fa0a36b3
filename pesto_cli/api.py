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

from pesto_cli.apply import apply
from pesto_cli.bounds import critical_path_us, lower_bound_us
from pesto_cli.coarsen import coarsen as coarsen_problem
from pesto_cli.constraints import Constraints
from pesto_cli.errors import InfeasibleError, NoSolutionError
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
from pesto_cli.limits import Limits
from pesto_cli.memory import unavoidable_shortfall
from pesto_cli.profile import profile
from pesto_cli.report.memory import memory_text
from pesto_cli.report.tables import shortfall_text
from pesto_cli.result import Result, SolveStatus
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
    "coarsen",
    "compare",
    "constrain",
    "critical_path_us",
    "export",
    "lower_bound_us",
    "placement",
    "profile",
    "random_orders_us",
    "read_comm",
    "read_constraints",
    "read_machine",
    "read_meta_graph",
    "read_placement",
    "read_profile",
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
