"""Measure the models, and print the tables."""

import argparse
import json
import os
import platform
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import benchmarks.fidelity
from benchmarks.fidelity.causes import causes, times_by_type
from benchmarks.fidelity.models import MODELS
from benchmarks.fidelity.placements import OWN, PARTED, SPLIT, exported, placements
from benchmarks.fidelity.probed_steps import probed_steps
from benchmarks.fidelity.tables import (
    Row,
    errors_without_single,
    in_quiet_steps,
    markdown,
    regrets,
    summary,
    table_by_model,
    table_by_type,
    table_of_causes,
)
from benchmarks.fidelity.traced_steps import traced_steps
from benchmarks.quality import processor
from pesto_cli import api as pesto
from pesto_cli.cluster import Cluster
from pesto_cli.data.steps import speed_up
from pesto_cli.files import CommFit

PARTS = (2, 4)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the models, write the results as JSON, and print the table."""
    parser = argparse.ArgumentParser(description=benchmarks.fidelity.__doc__)
    parser.add_argument("models", nargs="*", default=list(MODELS), metavar="MODEL")
    parser.add_argument("--machine", default=benchmarks.fidelity.MACHINE)
    parser.add_argument(
        "--comm", type=Path, required=True, help="transfer times, from pesto comm on this machine"
    )
    parser.add_argument("--steps", type=int, default=50, help="quiet ones of each placement")
    parser.add_argument("--traced-steps", type=int, default=5)
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
            for row in measure(model, cluster, fits, limits, options):
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
    print("\n".join(table_by_model("regret in quiet steps", regrets, in_quiet_steps(rows))))
    for placement in OWN:
        print("\n".join(table_of_causes(rows, placement)))
    for placement in (SPLIT, PARTED):
        print("\n".join(table_by_type(rows, placement)))


def measure(
    model: str,
    cluster: Cluster,
    fits: list[CommFit],
    limits: pesto.Limits,
    options: argparse.Namespace,
) -> Iterator[Row]:
    """Yield the results of all placements of one model."""
    meta = exported(model)
    profile = pesto.profile_by_run(meta, cluster, steps=options.steps, comm=fits, parts=PARTS)
    results = list(placements(profile, limits))
    placed = [pesto.placement(profile, result) for result in results]
    runs = probed_steps(meta, cluster, placed, options.steps)
    traced = traced_steps(meta, cluster, placed, options.traced_steps)
    machine, account = profile.problem.machine, profile.provenance["reconciled"][0]
    by_hand = min(runs[:2], key=lambda run: run.times.median_us)
    for result, run, ran in zip(results, runs, traced, strict=True):
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
            causes=causes(profile, result, run.times.median_us, ran),
            by_type=times_by_type(result, ran),
        )


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


if __name__ == "__main__":
    main()
