"""Predicted and measured step times: `python -m benchmarks.fidelity [MODEL]...`.

Each model of `fidelity_models` is profiled by real steps on two workers of this host, placed by
several strategies, and run with all placements alternately. The prediction is the makespan of a
replay in the simulator, plus the step overhead that the profile measured. The results are written
as JSON, and printed as the table of docs/running.md. It also prints
- the errors in quiet steps: those in which both cores had their full speed (`benchmarks.quiet`);
- the errors relative to that of one device. If the machine has changed its speed since the profile,
  all placements of a model have this error;
- the regret of pesto's own placements: by how much their measured steps are longer than the
  shortest of the model.
"""

import argparse
import json
import math
import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from operator import attrgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.fidelity_models import MODELS
from benchmarks.quality import processor
from benchmarks.quiet import probed_steps
from pesto_cli import api as pesto
from pesto_cli.cluster import Cluster
from pesto_cli.data.problem import Problem
from pesto_cli.data.result import Result
from pesto_cli.data.solution import Solution
from pesto_cli.data.steps import speed_up
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.files import CommFit, Profile
from pesto_cli.refine import refine
from pesto_cli.strategies.data_parallel import DataParallel
from pesto_cli.strategies.devices import fastest_device
from pesto_cli.strategies.layers import layers_of_groups
from pesto_cli.strategies.order import ordered
from pesto_cli.strategies.run import judged

MACHINE = "local-workers:2"
# If two measured steps differ by less than this, their ranking is not significant.
TELLING = 0.05
# Pesto's own placements: of whole ops, without and with a robust search; of a batch that is always
# split; and of what the search splits, which may be nothing.
PLAIN, ROBUST, SPLIT, PARTED = "pesto", "pesto --robust", "split", "pesto --parts"
OWN = (PLAIN, ROBUST, SPLIT, PARTED)
PARTS = (2, 4)


@dataclass(frozen=True)
class Row:
    """The result of one placement of one model.

    explained: the sum of op times as a share of the untraced step on one device.
    measured_ms: median over the steps; low_ms and high_ms are the quartiles.
    quiet_ms: median over the quiet steps, NaN without any; num_quiet: their number.
    steps_ms, probes_ms: time of each step, and of the slower one of the probes before and after it.
    times: speed-up relative to the better of single and expert, with its 95 % interval.
    """

    model: str
    num_ops: int
    explained: float
    op_overhead_us: float
    placement: str
    transfers: int
    transferred_mb: float
    predicted_ms: float
    measured_ms: float
    quiet_ms: float
    num_quiet: int
    steps_ms: tuple[float, ...]
    probes_ms: tuple[float, ...]
    low_ms: float
    high_ms: float
    min_ms: float
    times: float
    times_low: float
    times_high: float
    departures: int

    @property
    def error(self) -> float:
        """Relative error of the prediction; positive if the prediction is too long."""
        return self.predicted_ms / self.measured_ms - 1

    @property
    def quiet_error(self) -> float:
        """The error relative to the quiet steps; NaN without any."""
        return self.predicted_ms / self.quiet_ms - 1


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the models, write the results as JSON, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=list(MODELS), metavar="MODEL")
    parser.add_argument("--machine", default=MACHINE)
    parser.add_argument(
        "--comm", type=Path, required=True, help="transfer times, from pesto comm on this machine"
    )
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--time-limit", type=float, default=20.0, help="of pesto's search")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path("build/fidelity.json"))
    options = parser.parse_args(arguments)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    fits = pesto.read_comm(options.comm)
    limits = pesto.Limits(
        time_limit_s=options.time_limit, seed=options.seed, workers=os.cpu_count() or 1
    )
    rows: list[Row] = []
    for model in options.models:
        # Start new workers for each model, as workers do not free memory.
        with pesto.connected(options.machine) as cluster:
            for row in measure(model, cluster, fits, limits, options.steps):
                rows.append(row)
                print(
                    f"{model} {row.placement}: {row.measured_ms:.1f} ms, {row.error:+.1%}",
                    flush=True,
                )
        record = {**conditions(options.machine, options.steps), "rows": list(map(asdict, rows))}
        options.output.write_text(json.dumps(record, indent=1))
    print(markdown(rows))
    print("\n".join(summary(rows)))
    print("\n".join(table_by_model("error beside single", errors_without_single, rows)))
    print("\n".join(table_by_model("regret", regrets, rows)))


def measure(
    model: str, cluster: Cluster, fits: list[CommFit], limits: pesto.Limits, steps: int
) -> Iterator[Row]:
    """Yield the results of all placements of one model."""
    meta = exported(model)
    profile = pesto.profile_by_run(meta, cluster, steps=steps, comm=fits, parts=PARTS)
    results = list(placements(profile, limits))
    placed = [pesto.placement(profile, result) for result in results]
    runs = probed_steps(meta, cluster, placed, steps)
    machine, account = profile.problem.machine, profile.provenance["reconciled"][0]
    by_hand = min(runs[:2], key=lambda run: run.times.median_us)
    for result, run in zip(results, runs, strict=True):
        transfers = result.schedule.transfers
        sent = result.problem.graph.tensor_bytes[transfers.tensor]
        low_us, high_us = run.times.quartiles_us
        faster = speed_up(by_hand.times, run.times)
        yield Row(
            model=model,
            num_ops=profile.problem.num_ops,
            explained=account["ops_us"] / account["step_us"],
            op_overhead_us=machine.devices[0].op_overhead_us,
            placement=result.strategy,
            transfers=len(transfers),
            transferred_mb=float(sent.sum()) / 1e6,
            predicted_ms=(result.makespan_us + machine.step_overhead_us) / 1e3,
            measured_ms=run.times.median_us / 1e3,
            quiet_ms=run.quiet_us / 1e3,
            num_quiet=int(run.is_quiet.sum()),
            steps_ms=tuple((run.us / 1e3).tolist()),
            probes_ms=tuple((run.probe_us / 1e3).tolist()),
            low_ms=low_us / 1e3,
            high_ms=high_us / 1e3,
            min_ms=run.times.min_us / 1e3,
            times=faster.times,
            times_low=faster.low,
            times_high=faster.high,
            departures=run.num_departures,
        )


def exported(model: str) -> Any:
    """Return the model's training step as a MetaGraphDef."""
    with TemporaryDirectory() as folder:
        script = Path(folder) / "model.py"
        script.write_text(
            "from benchmarks.fidelity_models import MODELS\n"
            f"def build():\n    return MODELS[{model!r}]()\n"
        )
        return pesto.export(f"{script}:build")


def placements(profile: Profile, limits: pesto.Limits) -> Iterator[Result]:
    """Yield the placements: of whole ops by several strategies, and of a split batch."""
    whole, context = pesto.limit_parts(profile, 1), pesto.Context(limits)
    yield from pesto.compare(whole, ["single", "expert"])
    yield random_by_layer(whole.problem, limits.seed)
    yield pesto.solve(whole, PLAIN, context)
    yield replace(pesto.solve(whole, PLAIN, context, robust=True), strategy=ROBUST)
    yield split_by_batch(profile.problem, limits)
    yield replace(pesto.solve(profile, PLAIN, context), strategy=PARTED)


def split_by_batch(problem: Problem, limits: pesto.Limits) -> Result:
    """Split the batch, part i on device i, and refine; also if whole ops are faster."""
    found = DataParallel()(problem, pesto.Context(limits))
    simulator = Simulator(found.problem)
    schedule = refine(simulator, [found.schedule], limits, lower_bound_us=found.lower_bound_us)
    return judged(SPLIT, replace(found, schedule=schedule), 0.0)


def random_by_layer(problem: Problem, seed: int) -> Result:
    """Put each layer on a random device; ops that may not run there go to their fastest device."""
    layers = layers_of_groups(problem.graph, problem.min_duration_us)
    random = np.random.default_rng(seed)
    device_of_layer = random.integers(problem.num_devices, size=len(layers.names))
    device = device_of_layer[layers.of_group]
    allowed = problem.group_allowed[np.arange(len(device)), device]
    device = np.where(allowed, device, fastest_device(problem))
    schedule = ordered(Simulator(problem), device[problem.graph.colocation_group])
    return judged("random by layer", Solution.of(problem, schedule), 0.0)


def conditions(machine: str, steps: int) -> dict[str, object]:
    """Return the conditions that the figures depend on."""
    return {
        "machine": machine,
        "steps": steps,
        "processor": processor(),
        "cores": os.cpu_count(),
        "load": os.getloadavg(),
        "system": platform.platform(),
    }


def markdown(rows: Sequence[Row]) -> str:
    """Return the table, with one line for each placement."""
    columns = ["model", "ops", "explained", "placement", "sent", "predicted", "measured"]
    columns += ["middle half", "error", "quiet", "error", "times by hand", "95 %"]
    lines = [f"| {' | '.join(columns)} |", f"|---|--:|--:|---|{'--:|' * 9}"]
    for row in rows:
        cells = [
            row.model,
            f"{row.num_ops:,}",
            f"{row.explained:.1%}",
            row.placement,
            f"{row.transfers} of {row.transferred_mb:.1f} MB",
            f"{row.predicted_ms:.1f}",
            f"{row.measured_ms:.1f}",
            f"{row.low_ms:.1f} - {row.high_ms:.1f}",
            f"{row.error:+.1%}",
            f"{row.quiet_ms:.1f}",
            f"{row.quiet_error:+.1%}",
            f"{row.times:.2f}",
            f"{row.times_low:.2f} - {row.times_high:.2f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def summary(rows: Sequence[Row]) -> Iterator[str]:
    """Yield lines with the mean and worst error, and the share of correctly ranked pairs."""
    num_quiet = sum(row.num_quiet for row in rows)
    yield f"{num_quiet / sum(len(row.steps_ms) for row in rows):.0%} of the steps are quiet"
    yield f"errors of all steps: {'; '.join(mean_and_worst(rows, attrgetter('error')))}"
    yield f"errors of quiet steps: {'; '.join(mean_and_worst(rows, attrgetter('quiet_error')))}"
    pairs = [pair for pair in combinations(rows, 2) if pair[0].model == pair[1].model]
    telling = [
        (one, other)
        for one, other in pairs
        if abs(math.log(one.measured_ms / other.measured_ms)) > math.log(1 + TELLING)
    ]
    right = [
        (one, other)
        for one, other in telling
        if (one.measured_ms < other.measured_ms) == (one.predicted_ms < other.predicted_ms)
    ]
    yield (
        f"ranking right in {len(right)} of {len(telling)} pairs that measure more than "
        f"{TELLING:.0%} apart"
    )
    for one, other in telling:
        if (one, other) not in right:
            yield f"  wrong: {one.model}, {one.placement} and {other.placement}"


def mean_and_worst(rows: Sequence[Row], error: Callable[[Row], float]) -> Iterator[str]:
    """Yield the mean and worst absolute errors: by hand, and of pesto's own placements."""
    groups = {row.placement: row.placement if row.placement in OWN else "by hand" for row in rows}
    for group in dict.fromkeys(groups.values()):
        found = [row for row in rows if groups[row.placement] == group]
        found = [row for row in found if not math.isnan(error(row))]
        if found:
            worst = max(found, key=lambda row: abs(error(row)))
            mean = np.mean([abs(error(row)) for row in found])
            yield f"{group} {mean:.1%}, worst {error(worst):+.1%} ({worst.model})"


def errors_without_single(rows: Sequence[Row], placement: str) -> dict[str, float]:
    """Return the absolute error of a placement of each model, by name of the model.

    The error is that of the ratio of its step and the step on one device, which ran by turns.
    """
    single = {row.model: 1 + row.error for row in rows if row.placement == "single"}
    return {
        row.model: abs((1 + row.error) / single[row.model] - 1)
        for row in rows
        if row.placement == placement
    }


def regrets(rows: Sequence[Row], placement: str) -> dict[str, float]:
    """Return the regret of a placement of each model, by name of the model.

    The regret is the measured step divided by the shortest measured step of all placements of the
    model, minus 1.
    """
    best_ms: dict[str, float] = {}
    for row in rows:
        best_ms[row.model] = min(row.measured_ms, best_ms.get(row.model, math.inf))
    return {
        row.model: row.measured_ms / best_ms[row.model] - 1
        for row in rows
        if row.placement == placement
    }


def table_by_model(
    title: str,
    of: Callable[[Sequence[Row], str], Mapping[str, float]],
    rows: Sequence[Row],
) -> Iterator[str]:
    """Yield the lines of a table of a figure of pesto's own placements, and of its means."""
    found = [of(rows, placement) for placement in OWN]
    yield f"| {title} | {' | '.join(OWN)} |"
    yield f"|---|{'--:|' * len(OWN)}"
    for model in found[0]:
        yield f"| {model} | {' | '.join(f'{values[model]:.1%}' for values in found)} |"
    means = [float(np.mean([*values.values()])) for values in found]
    yield f"| mean | {' | '.join(f'{mean:.1%}' for mean in means)} |"


if __name__ == "__main__":
    main()
