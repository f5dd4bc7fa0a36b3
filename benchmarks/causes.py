"""What parts of the execution model explain: `python -m benchmarks.causes --comm FIT [MODEL]...`.

Every model of `fidelity_models` is profiled on two workers of this host, placed by pesto, and run.
The table has the error of the prediction, of predictions without the overheads or the delays of
transfers, and of the median of samples with random op times and delays.
"""

import argparse
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.fidelity import MACHINE, exported
from benchmarks.fidelity_models import MODELS
from pesto_cli import api as pesto
from pesto_cli.data.problem import Problem
from pesto_cli.evaluation.simulator import replay

LEFT_OUT = {
    "all": {},
    "no overheads": dict.fromkeys(
        ("sender_us", "sender_us_per_byte", "receiver_us", "receiver_us_per_byte"), 0.0
    ),
    "no delays": {"wait_us": 0.0},
}


def without(problem: Problem, left_out: dict[str, float]) -> Problem:
    """Return the problem with other values of `CommModel` on every link."""
    machine = problem.machine
    links = tuple(replace(link, comm=replace(link.comm, **left_out)) for link in machine.links)
    return replace(problem, machine=replace(machine, links=links))


def errors(model: str, options: argparse.Namespace) -> Iterator[tuple[str, float]]:
    """Profile, place and run a model; yield (name of a prediction, its relative error)."""
    limits = pesto.Limits(time_limit_s=options.time_limit, workers=os.cpu_count() or 1)
    with pesto.connected(MACHINE) as cluster:
        meta, fits = exported(model), pesto.read_comm(options.comm)
        profile = pesto.profile_by_run(meta, cluster, steps=options.steps, comm=fits)
        result = pesto.solve(profile, "pesto", pesto.Context(limits))
        placed = pesto.placement(profile, result)
        (ran,) = pesto.run_steps(meta, cluster, [placed], steps=options.steps)
    overhead_us = profile.problem.machine.step_overhead_us
    for name, left_out in LEFT_OUT.items():
        problem = without(profile.problem, left_out)
        schedule = replay(problem, result.schedule.placement)
        yield name, (schedule.makespan_us + overhead_us) / ran.times.median_us - 1
    sampled_us = float(np.median(pesto.sampled_makespans_us(profile, result)))
    yield "median of samples", (sampled_us + overhead_us) / ran.times.median_us - 1


def main() -> None:
    """Measure, and print a table row for each model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=list(MODELS), metavar="MODEL")
    parser.add_argument("--comm", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--time-limit", type=float, default=15.0)
    options = parser.parse_args()
    for number, model in enumerate(options.models):
        found = dict(errors(model, options))
        if number == 0:
            print(f"| model | {' | '.join(found)} |\n|---|{'--:|' * len(found)}")
        cells = [f"{error:+.1%}" for error in found.values()]
        print(f"| {model} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
