"""Sums once per host against flat ones: run on several hosts, as `benchmarks.hosts` makes them.

    python -m benchmarks.hosts --tasks 2 -- python -m benchmarks.host_sums CLUSTER

A flat sum sends the partial sum of every worker over the network; a sum by host first adds those of
each host. Both plans are data-parallel steps of the two towers, and run by turns.
"""

import sys

from pesto_cli import api as pesto
from pesto_cli.strategies.data_parallel import DataParallel
from pesto_cli.strategies.run import run

MODEL, STEPS = "examples/two_towers.py:build", 10


def main(spec: str) -> None:
    """Run steps with flat sums and with sums by host, and print their times."""
    meta = pesto.export(MODEL)
    with pesto.connected(spec) as cluster:
        num_devices = cluster.machine.num_devices
        parts = (num_devices, 2 * num_devices)  # unequal parts of a split may be smaller than 1/N
        profile = pesto.profile_by_run(meta, cluster, steps=3, parts=parts)
        forms = {"flat": DataParallel(), "by host": DataParallel(by_host=True)}
        context = pesto.Context(limits=pesto.Limits())
        placed = [
            pesto.placement(profile, run(profile.problem, form, context)) for form in forms.values()
        ]
        runs = pesto.run_steps(meta, cluster, placed, steps=STEPS, warm_up=2)
    print("| sums | measured ms | middle half ms |\n|---|--:|--:|")
    for name, real in zip(forms, runs, strict=True):
        low, high = (us / 1e3 for us in real.times.quartiles_us)
        print(f"| {name} | {real.times.median_us / 1e3:.1f} | {low:.1f} - {high:.1f} |")


if __name__ == "__main__":
    main(sys.argv[1])
