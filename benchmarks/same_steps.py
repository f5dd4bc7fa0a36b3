"""Errors with the op times of the same step: `python -m benchmarks.same_steps --comm FIT`.

Every model of `fidelity_models` is profiled on two workers of this host, placed as in
`benchmarks.fidelity`, and run with traced steps, alternately. The trace has the time of every op in
this step. So the length of each step is predicted with the op times of the profile, which were
measured some minutes before, and with the op times of the step itself, with and without overheads
of transfers. The errors of the last two are those of the rest of the execution model: transfers,
delays, overheads and the order.
"""

import argparse
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path

import numpy as np

from benchmarks.causes import LEFT_OUT, without
from benchmarks.fidelity import MACHINE, PARTS, exported, placements
from benchmarks.fidelity_models import MODELS
from benchmarks.traced_steps import TracedStep, traced_steps
from pesto_cli import api as pesto
from pesto_cli.cluster import Cluster
from pesto_cli.data.problem import Problem
from pesto_cli.data.result import Result
from pesto_cli.evaluation.simulator import replay
from pesto_cli.files import CommFit


@dataclass(frozen=True)
class Errors:
    """Relative errors of predicted lengths, medians over the traced steps of one placement.

    profiled: with the op times of the profile.
    own: with the op times of the step itself.
    own_alone: also without overheads of transfers. An op takes longer in the trace while its core
        also sends or receives, so `own` counts this time twice.
    slower: the sum of the op times of the step, relative to that of the profile, minus 1.
    """

    profiled: float
    own: float
    own_alone: float
    slower: float


COLUMNS = {
    "op times of the profile": attrgetter("profiled"),
    "of the step itself": attrgetter("own"),
    "of the step itself, no overheads of transfers": attrgetter("own_alone"),
    "ops are slower by": attrgetter("slower"),
}


def main() -> None:
    """Measure, and print a table row for each placement, and the means."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=list(MODELS), metavar="MODEL")
    parser.add_argument("--comm", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--time-limit", type=float, default=10.0, help="of pesto's search")
    options = parser.parse_args()
    fits = pesto.read_comm(options.comm)
    limits = pesto.Limits(time_limit_s=options.time_limit, workers=os.cpu_count() or 1)
    print(f"| model | placement | {' | '.join(COLUMNS)} |")
    print(f"|---|---|{'--:|' * len(COLUMNS)}")
    found = defaultdict[str, list[Errors]](list)
    for model in options.models:
        with pesto.connected(MACHINE) as cluster:
            for placement, errors in measure(model, cluster, fits, limits, options.steps):
                found[placement].append(errors)
                cells = (f"{of(errors):+.1%}" for of in COLUMNS.values())
                print(f"| {model} | {placement} | {' | '.join(cells)} |", flush=True)
    for placement, rows in found.items():
        means = (np.mean([abs(of(row)) for row in rows]) for of in COLUMNS.values())
        print(f"| *mean* | {placement} | {' | '.join(f'{mean:.1%}' for mean in means)} |")


def measure(
    model: str, cluster: Cluster, fits: list[CommFit], limits: pesto.Limits, steps: int
) -> Iterator[tuple[str, Errors]]:
    """Yield the name and the errors of each placement of one model."""
    meta = exported(model)
    profile = pesto.profile_by_run(meta, cluster, steps=steps, comm=fits, parts=PARTS)
    results = list(placements(profile, limits))
    placed = [pesto.placement(profile, result) for result in results]
    for result, ran in zip(results, traced_steps(meta, cluster, placed, steps), strict=True):
        errors = np.median([list(errors_in_step(result, step)) for step in ran], axis=0)
        yield result.strategy, Errors(*errors.tolist())


def errors_in_step(result: Result, step: TracedStep) -> Iterator[float]:
    """Yield the errors of one step, as in `Errors`."""
    own = with_op_times(result.problem, step.op_us)
    alone = without(own, LEFT_OUT["no overheads"])
    for problem in (result.problem, own, alone):
        makespan_us = replay(problem, result.schedule.placement).makespan_us
        yield makespan_us / step.length_us - 1
    yield np.nansum(own.time_us) / np.nansum(result.problem.time_us) - 1


def with_op_times(problem: Problem, op_us: Mapping[str, float]) -> Problem:
    """Return the problem with measured op times and without contention, which these include."""
    time_us = problem.time_us.copy()
    for op, name in enumerate(problem.graph.names):
        time_us[op] = op_us.get(name, time_us[op])
    return replace(problem, time_us=time_us, machine=replace(problem.machine, contention={}))


if __name__ == "__main__":
    main()
