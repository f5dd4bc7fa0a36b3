"""The error of the contracted graph: makespans of the same placement, by op and by node.

    python -m benchmarks.contraction [MODEL]...

The models are those of `benchmarks.quality` and the deep one of `benchmarks.large`. The table has
the number of nodes of the contracted graph, and for several placements of nodes the makespan by op
and by node in ms, with the difference. Ops have the device of their node, and both
graphs are dispatched by upward rank. `single` and `expert` are projected to nodes as in the
refinement; *expert itself* is the op-level schedule before that.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.large import DEEP
from benchmarks.quality import profile_of, with_memory
from pesto_cli.data.graph import IntArray
from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import Schedule
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.refine.levels import Level
from pesto_cli.strategies import STRATEGIES, Context
from pesto_cli.strategies.warm_up import warm_up
from pesto_cli.zoo import PAPER_MODELS

GPU_GIB = 80
STARTS = ("single", "expert")
RANDOM = ("random 0", "random 1", "random 2")


def main(arguments: Sequence[str] = ()) -> None:
    """Print the table, row by row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=[*PAPER_MODELS, DEEP], metavar="MODEL")
    parser.add_argument("--profiles", type=Path, default=Path("build/profiles"))
    options = parser.parse_args(arguments)
    warm_up()
    columns = ("model", "ops", "nodes", "expert itself", *STARTS, *RANDOM)
    print(f"| {' | '.join(columns)} |")
    print(f"|---|{'--:|' * (len(columns) - 1)}")
    for model in options.models:
        problem = with_memory(profile_of(options.profiles, model), GPU_GIB).problem
        simulator = Simulator(problem)
        starts = {name: STRATEGIES[name](problem, Context()).schedule for name in STARTS}
        level = Level.contracted(simulator)
        cells = (
            model,
            f"{problem.num_ops:,}",
            f"{level.simulator.problem.num_ops:,}",
            f"{starts['expert'].makespan_us / 1e3:.1f}",
            *(both(level, device) for device in placements(level, starts)),
        )
        print(f"| {' | '.join(cells)} |", flush=True)


def placements(level: Level, starts: Mapping[str, Schedule]) -> Iterator[IntArray]:
    """Yield the placements of nodes, `[num_nodes]` each, in the order of the columns."""
    for schedule in starts.values():
        yield level.projected(schedule)[0]
    for seed, _ in enumerate(RANDOM):
        yield random_by_node(level.simulator.problem, seed)


def both(level: Level, device: IntArray) -> str:
    """Return a cell with the makespans of a placement of nodes, by op and by node."""
    by_op_us = ranked_us(level.full, level.coarsening.expand(device))
    by_node_us = ranked_us(level.simulator, device)
    return f"{by_op_us / 1e3:.1f}, {by_node_us / 1e3:.1f} ({by_node_us / by_op_us - 1:+.1%})"


def random_by_node(problem: Problem, seed: int) -> IntArray:
    """Put each colocation group on a random one of its fastest devices; return `[num_ops]`."""
    random, group_us = np.random.default_rng(seed), problem.group_time_us
    fastest = group_us == group_us.min(axis=1, keepdims=True)
    chosen: IntArray = np.where(fastest, random.random(fastest.shape), -1.0).argmax(axis=1)
    return chosen[problem.graph.colocation_group]


def ranked_us(simulator: Simulator, device: IntArray) -> float:
    """Return the makespan of the list schedule by upward rank, in us."""
    return simulator.makespan_us(device, simulator.upward_rank(device))


if __name__ == "__main__":
    main(sys.argv[1:])
