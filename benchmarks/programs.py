"""What each integer program adds to the search: `python -m benchmarks.programs [MODEL]...`.

The search of `pesto` uses two integer programs: that of placement and order on the coarse graph
(Pesto, Section 3), and that of the layouts of split ops (Alpa, Section 4.2). The table has the step
times of searches with both, without one of them, and without both. All have the same limit, so a
search without a program has more time for other starts and for the refinement. GPUs have 80 GB.
"""

import argparse
import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from benchmarks.quality import profile_of
from benchmarks.scaling import MACHINES, PARTS, on_large_gpus
from pesto_cli import api as pesto
from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import Schedule
from pesto_cli.data.solution import Solution
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.files import Profile
from pesto_cli.report.markdown import markdown_table
from pesto_cli.strategies.intra_op import IntraOp
from pesto_cli.strategies.pesto import CoarseSolution, Pesto
from pesto_cli.strategies.split_search import ways_in_time
from pesto_cli.strategies.split_search.forms import every_way
from pesto_cli.strategies.split_search.ways import AsStrategy, Way
from pesto_cli.strategies.split_search.whole import Placer

MODELS = ("RNNLM-2-2048", "RNNLM-4-2048", "NMT-2-1024", "Transformer-10-8-1024", "NASNet-4-212")


@dataclass(frozen=True)
class WithoutCoarseProgram(Pesto):
    """The search without the program on the coarse graph."""

    def solve_coarsely(
        self, simulator: Simulator, limits: pesto.Limits, starts: list[Schedule]
    ) -> CoarseSolution:
        """Return no schedule and no bound."""
        return CoarseSolution([], 0.0)


# Whether a search uses the program on the coarse graph, and that of layouts.
VARIANTS = ((True, True), (False, True), (True, False), (False, False))
HEADERS = ("model", "GPUs", "both programs", "no coarse one", "no layouts", "none")


def ways_without_layouts(problem: Problem, placer: Placer | None = None) -> Iterator[Way]:
    """Yield the ways to split, without the program of layouts."""
    for way in every_way(problem, placer):
        if not (isinstance(way, AsStrategy) and isinstance(way.strategy, IntraOp)):
            yield way


def no_ways(whole: Solution) -> Iterator[Way]:
    """Yield no way: the ops that are split beside whole ops are chosen by the program."""
    yield from ()


def main(arguments: Sequence[str] | None = None) -> None:
    """Place the models with each variant of the search, and print a row for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=MODELS, metavar="MODEL")
    parser.add_argument("--gpus", type=int, nargs="+", choices=[*MACHINES], default=[4])
    parser.add_argument("--time-limit", type=float, default=40.0, help="units of work")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--profiles", type=Path, default=Path("build/profiles"))
    options = parser.parse_args(arguments)
    limits = pesto.Limits(
        options.time_limit, seed=options.seed, workers=os.cpu_count() or 1, deterministic=True
    )
    rows = []
    for model in options.models:
        profile = profile_of(options.profiles, model, parts=PARTS)
        for count in options.gpus:
            placed = on_large_gpus(profile, MACHINES[count])
            steps = [step_ms(placed, *variant, limits) for variant in VARIANTS]
            rows.append([model, str(count), *(f"{step:.1f}" for step in steps)])
            print(*rows[-1], flush=True)
    print(markdown_table(HEADERS, rows))


def step_ms(profile: Profile, with_coarse: bool, with_layouts: bool, limits: pesto.Limits) -> float:
    """Return the step time of a search with or without each program."""
    strategy = Pesto() if with_coarse else WithoutCoarseProgram()
    ways: AbstractContextManager[object] = nullcontext()
    if not with_layouts:
        ways = patch.multiple(ways_in_time, every_way=ways_without_layouts, beside_whole=no_ways)
    with ways:
        return pesto.solve(profile, strategy, pesto.Context(limits)).makespan_us / 1e3


if __name__ == "__main__":
    main()
