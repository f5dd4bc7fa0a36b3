"""The time that a warm start saves after a model has changed: `python -m benchmarks.warm_start`.

A model is solved, then changed (one more layer, a smaller batch). The changed model is solved
without a warm start (cold), and from the old placement (warm). Deterministic mode counts work
instead of time; a unit is about a second on a server from 2020. A search cools down over its whole
limit, and is near its final result only at the end. So the measure is the limit that it needs: the
smallest of `--units` with a makespan within 1 % of the cold search with the largest limit.
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
# The cheap strategies; a cold search starts from the best of them.
CHEAP = ("single", "expert", "metis")
NEAR = 1.01


def rnnlm_96() -> Mapping[str, Any]:
    """RNNLM-2-2048 with a batch of 96 instead of 128."""
    return rnnlm(layers=2, hidden=2048, batch=96)


def nmt_96() -> Mapping[str, Any]:
    """NMT-2-1024 with a batch of 96 instead of 128."""
    return nmt(layers=2, hidden=1024, batch=96)


# The model before, the change, and the model after; models are from the zoo or built here.
CHANGES = (
    ("RNNLM-2-2048", "a layer more", "RNNLM-3-2048"),
    ("RNNLM-2-2048", "batch 128 to 96", "rnnlm_96"),
    ("NMT-2-1024", "a layer more", "NMT-3-1024"),
    ("NMT-2-1024", "batch 128 to 96", "nmt_96"),
)


def main(arguments: Sequence[str] = ()) -> None:
    """Print two rows for each change, as soon as it is measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--change", default="", help="only changes that begin with this text")
    parser.add_argument("--model", default="", help="only models that begin with this text")
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
    """Return the cached or new profile of a model of the zoo, or of one built here."""
    return profile_of(folder, name, f"{__file__}:{name}" if name in globals() else "")


def compared(old: Profile, new: Profile, seeds: Sequence[int], units: Sequence[float]) -> list[str]:
    """Return the rows of the cold and the warm runs: median makespans, and the units needed."""
    cold: list[list[float]] = []
    warm: list[list[float]] = []
    begins_ms: list[float] = []
    for seed in seeds:
        placed = pesto.placement(old, solved(old, pesto.Context(), seed, units[-1]))
        mapped = pesto.carry_over(new, placed)
        started = pesto.Context(warm_start=mapped.placement)
        begins_ms.append(replay(new.problem, mapped.placement).makespan_us / 1e3)
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
    """Return a row: the median makespan of each limit, and the smallest good limit of each seed."""
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
