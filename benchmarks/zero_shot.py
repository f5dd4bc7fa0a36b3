"""How long an untrained policy takes to place a graph once: `python -m benchmarks.zero_shot`.

The policy is that of HeteroG, with random weights. All groups are replicated, and all variables
have copies: of the plans with one action for all groups, this one has most ops. The time counts
from the problem to the schedule, when TensorFlow is loaded and kernels are compiled. Each graph is
placed in a process of its own, in which only a small graph was split before.
"""

import argparse
import time
from collections.abc import Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.quality import profile_of
from pesto_cli import api as pesto
from pesto_cli.bench.heterog import HETEROG
from pesto_cli.bench.heterog.rows import zoo_name
from pesto_cli.data.presets import PRESETS
from pesto_cli.data.problem import Problem
from pesto_cli.garbage import collect_rarely
from pesto_cli.learned.heterog import HeteroG
from pesto_cli.learned.training import State, Trainer
from pesto_cli.report.markdown import markdown_table

MODELS = ("NMT-2-1024", zoo_name("XLNet-large-24", 48), zoo_name("NASNet", 192))
SMALL = "RNNLM-tiny"
# The way with copies of variables, and with parts in proportion to the speeds of devices.
CP_AR = 3
HEADERS = (
    "model",
    "ops",
    "ops of the plan",
    "ways to split ops, s",
    "network, s",
    "split and simulate, s",
    "in all, s",
    "in all for 10,000 ops, s",
)


class Times(NamedTuple):
    """The number of ops of a plan, and the times of the three stages, in s."""

    num_ops: int
    ways_s: float
    network_s: float
    plan_s: float


def main(arguments: Sequence[str] | None = None) -> None:
    """Place the models, and print the table of medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=MODELS, metavar="MODEL")
    parser.add_argument("--machine", choices=[*PRESETS], default="heterog-8")
    parser.add_argument("--runs", type=int, default=5, help="the median counts")
    parser.add_argument("--profiles", type=Path, default=Path("build/profiles"))
    options = parser.parse_args(arguments)
    rows = []
    for model in options.models:
        problems = [
            profile_of(options.profiles, name, parts=HETEROG.parts, machine=options.machine).problem
            for name in (SMALL, model)
        ]
        runs = []
        for _ in range(options.runs):
            with get_context("spawn").Pool(1) as process:
                runs.append(process.apply(placed, problems))
        times = np.median(runs, axis=0)
        total_s, num_ops = times[1:].sum(), problems[1].num_ops
        seconds = [f"{each:.2f}" for each in (*times[1:], total_s, total_s / num_ops * 1e4)]
        rows.append([model, f"{num_ops:,}", f"{int(times[0]):,}", *seconds])
        print(*rows[-1], flush=True)
    print(markdown_table(HEADERS, rows))


def placed(small: Problem, problem: Problem) -> Times:
    """Place a small problem, then a problem, and return the times of the second one."""
    collect_rarely()
    pesto.warm_up()
    _once(small)
    return _once(problem)


def _once(problem: Problem) -> Times:
    policy = HeteroG()
    began_s = time.perf_counter()
    environment = policy.environment(problem)
    ways_s = time.perf_counter()
    state = State.initial(policy, problem.num_devices, seed=0)
    Trainer(policy, state.network).most_probable(state, environment)
    network_s = time.perf_counter()
    action = problem.num_devices + CP_AR
    solution = environment.solution(np.full(environment.num_decisions, action))
    plan_s = time.perf_counter() - network_s
    return Times(solution.problem.num_ops, ways_s - began_s, network_s - ways_s, plan_s)


if __name__ == "__main__":
    main()
