"""What sending first is worth: `python -m benchmarks.sends [MODEL]...`.

Each model of `benchmarks.fidelity.models` is profiled on two workers of this host. Pesto's
placements run by turns with and without the NoOps that let a worker send before it computes
(`pesto_cli.apply.sends`). Run it on an idle machine.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from benchmarks.fidelity import MACHINE
from benchmarks.fidelity.models import MODELS
from benchmarks.fidelity.placements import exported, split_by_batch
from pesto_cli import api as pesto
from pesto_cli.apply import with_changes
from pesto_cli.cluster import Cluster
from pesto_cli.data.result import Result
from pesto_cli.data.steps import StepTimes, speed_up
from pesto_cli.report.markdown import markdown_table
from pesto_cli.runtime.comparison import device_names, planned_run
from pesto_cli.runtime.interleaved import Turns, interleaved

SEARCH_S, TURNS = 10.0, Turns(num_steps=30, most_in_a_row=1)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run all placements in both ways, and print their steps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=list(MODELS), metavar="MODEL")
    parser.add_argument("--comm", required=True, help="transfer times, from pesto comm")
    options = parser.parse_args(arguments)
    lines = []
    with pesto.connected(MACHINE) as cluster:
        comm = pesto.read_comm(options.comm)
        for model in options.models:
            lines += measured(model, cluster, comm)
    columns = ["model", "placement", "predicted ms", "ops that send first"]
    columns += ["ms without", "ms with", "times", "95 %"]
    print(markdown_table(columns, lines, num_text=2))


def measured(model: str, cluster: Cluster, comm: Any) -> list[list[str]]:
    """Return the rows of a model."""
    meta = exported(model)
    profile = pesto.profile_by_run(meta, cluster, steps=16, comm=comm, parts=(2, 4))
    context = pesto.Context(pesto.Limits(SEARCH_S))
    results: dict[str, Result] = {
        "pesto, whole ops": pesto.solve(pesto.limit_parts(profile, 1), context=context),
        "batch split": split_by_batch(profile.problem, context.limits),
        "pesto": pesto.solve(profile, context=context),
    }
    devices, metas, numbers = cluster.call(device_names), [], []
    for result in results.values():
        plan = planned_run(meta, pesto.placement(profile, result), devices)
        without = with_changes(meta, replace(plan.changes, sent_first=()))
        metas += [without, plan.meta]
        numbers.append(len(plan.changes.sent_first))
    runs = cluster.call(interleaved, metas, TURNS)
    overhead_us = profile.problem.machine.step_overhead_us
    lines = []
    for index, (name, result) in enumerate(results.items()):
        before, after = (StepTimes(run.us, (), {}) for run in runs[2 * index : 2 * index + 2])
        faster = speed_up(before, after)
        lines.append(
            [
                model,
                name,
                f"{(result.makespan_us + overhead_us) / 1e3:.1f}",
                str(numbers[index]),
                *(f"{each.median_us / 1e3:.1f}" for each in (before, after)),
                f"{faster.times:.3f}",
                f"{faster.low:.3f} - {faster.high:.3f}",
            ]
        )
        print(*lines[-1], flush=True)
    return lines


if __name__ == "__main__":
    main()
