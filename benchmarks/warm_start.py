"""What a warm start saves once a model has changed: `python -m benchmarks.warm_start`.

A model is solved, then changed (a layer more, a smaller batch), and the changed one solved from
nothing and from the old placement. In deterministic mode, so that time is work: a unit is about a
second on a server of 2020. A search cools down over the whole of its limit and is near its answer
only at the end. So what counts is the limit that it needs: the least of `--units` with which the
makespan is within 1 % of what the cold search has with the largest.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.quality import profile_of
from pesto_cli import api as pesto
from pesto_cli.data.result import Result
from pesto_cli.evaluation.simulator import replay
from pesto_cli.files import Profile
from pesto_cli.zoo.nmt import nmt
from pesto_cli.zoo.rnnlm import rnnlm

UNITS = (0.5, 1.0, 2.0, 4.0)
# What a cold search begins with at best.
CHEAP = ("single", "expert", "metis")
NEAR = 1.01


def rnnlm_96() -> Mapping[str, Any]:
    """RNNLM-2-2048 with a batch of 96 in place of 128."""
    return rnnlm(layers=2, hidden=2048, batch=96)


def nmt_96() -> Mapping[str, Any]:
    """NMT-2-1024 likewise."""
    return nmt(layers=2, hidden=1024, batch=96)


# The model before, what changes, and the model after: of the zoo, or built here.
CHANGES = (
    ("RNNLM-2-2048", "a layer more", "RNNLM-3-2048"),
    ("RNNLM-2-2048", "batch 128 to 96", "rnnlm_96"),
    ("NMT-2-1024", "a layer more", "NMT-3-1024"),
    ("NMT-2-1024", "batch 128 to 96", "nmt_96"),
)


def main(arguments: Sequence[str] = ()) -> None:
    """Print a row for every change, as it is done."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--change", default="", help="only changes that begin so")
    parser.add_argument("--model", default="", help="only models whose name begins so")
    parser.add_argument("--profiles", type=Path, default=Path("build/profiles"))
    parser.add_argument("--units", type=float, nargs="+", default=UNITS, help="ascending")
    options = parser.parse_args(arguments)
    units: Sequence[float] = options.units
    columns = [f"{limit:g}" for limit in units]
    print(f"| model | change | start | begins at | {' | '.join(columns)} | units to 1 % |")
    print("|---|---|---|" + "--:|" * (len(units) + 2))
    for before, change, after in CHANGES:
        if before.startswith(options.model) and change.startswith(options.change):
            old, new = (changed_profile(options.profiles, name) for name in (before, after))
            for line in compared(old, new, range(options.seeds), units):
                print(f"| {before} | {change} | {line}", flush=True)


def changed_profile(folder: Path, name: str) -> Profile:
    """The profile of a model of the zoo, or of one built here, made if the folder lacks it."""
    return profile_of(folder, name, f"{__file__}:{name}" if name in globals() else "")


def compared(old: Profile, new: Profile, seeds: Sequence[int], units: Sequence[float]) -> list[str]:
    """Rows of the cold and the warm runs: medians of makespans, and the units that suffice."""
    cold: list[list[float]] = []
    warm: list[list[float]] = []
    begins_ms: list[float] = []
    for seed in seeds:
        placed = pesto.placement(old, solved(old, pesto.Context(), seed, units[-1]))
        carried = pesto.carry_over(new, placed)
        started = pesto.Context(warm_start=carried.placement)
        begins_ms.append(replay(new.problem, carried.placement).makespan_us / 1e3)
        for runs, start in ((cold, pesto.Context()), (warm, started)):
            runs.append([solved(new, start, seed, limit).makespan_us / 1e3 for limit in units])
    others_ms = [result.makespan_us / 1e3 for result in pesto.compare(new, CHEAP)]
    goals_ms = [NEAR * run[-1] for run in cold]
    return [
        row("cold", min(others_ms), units, cold, goals_ms),
        row("warm", median(begins_ms), units, warm, goals_ms),
    ]


def row(
    name: str,
    begins_ms: float,
    units: Sequence[float],
    runs: Sequence[Sequence[float]],
    goals_ms: Sequence[float],
) -> str:
    """What is reached with every limit, and for every seed the least that reaches its goal."""
    reached = [f"{median(column):.2f}" for column in zip(*runs, strict=True)]
    needed = []
    for makespans_ms, goal_ms in zip(runs, goals_ms, strict=True):
        enough = [limit for limit, ms in zip(units, makespans_ms, strict=True) if ms <= goal_ms]
        needed.append(f"{enough[0]:g}" if enough else "more")
    return f"{name} | {begins_ms:.2f} | {' | '.join(reached)} | {', '.join(needed)} |"


def solved(profile: Profile, context: pesto.Context, seed: int, units: float) -> Result:
    """Solve in deterministic mode."""
    limits = pesto.Limits(time_limit_s=units, seed=seed, deterministic=True)
    return pesto.solve(profile, "pesto", replace(context, limits=limits))


if __name__ == "__main__":
    main(sys.argv[1:])
