"""Graphs of 100,000 ops, solved in a fresh process: `python -m benchmarks.large`.

The Transformer of Pesto, Section 5.2, with GPUs of 80 GB, which the expert's placement needs: with
153 layers in encoder and decoder, on two GPUs; and with 32 layers, whose ops can be split for eight
GPUs in two servers. Profiles are made once (some minutes, 3 GiB), and cached.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.quality import profile_of
from benchmarks.scaling import MACHINES, on_large_gpus
from pesto_cli import api as pesto
from pesto_cli.files import Profile
from pesto_cli.report.markdown import markdown_table

DEEP = "Transformer-153-8-1024"
TIME_LIMIT_S = 240.0


@dataclass(frozen=True)
class Case:
    """A model, the number of GPUs, and the numbers of parts that the profile prices."""

    model: str
    num_gpus: int
    parts: Sequence[int] = ()


CASES = (Case(DEEP, 2), Case("Transformer-32-8-1024", 8, (2, 4, 8)))


@dataclass(frozen=True)
class Solved:
    """The result of `pesto solve`, and the time and memory of its process.

    num_ops: of the answer, in which parts of ops are ops.
    """

    num_ops: int
    makespan_ms: float
    lower_bound_ms: float
    gap: float
    seconds: float
    peak_gib: float


def main(arguments: Sequence[str] = ()) -> None:
    """Solve the problems, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--time-limit", type=float, default=TIME_LIMIT_S)
    parser.add_argument("--profiles", type=Path, default=Path("build/profiles"))
    options = parser.parse_args(arguments)
    sizes = ("GPUs", "ops", "edges", "ops of the answer")
    times = ("bound", "expert", "pesto", "less", "gap", "seconds", "memory, GiB")
    rows = [row(case, options.profiles, options.time_limit) for case in CASES]
    print(markdown_table(("model", *sizes, *times), rows))


def row(case: Case, profiles: Path, time_limit_s: float) -> Sequence[str]:
    """Solve a problem, and return its row of the table."""
    profile = profile_of(profiles, case.model, parts=case.parts)
    profile = on_large_gpus(profile, MACHINES[case.num_gpus])
    graph = profile.problem.graph
    expert_ms = pesto.compare(profile, ["expert"])[0].makespan_us / 1e3
    solved = solve(profile, time_limit_s)
    return (
        case.model,
        str(case.num_gpus),
        f"{graph.num_ops:,}",
        f"{len(graph.edges):,}",
        f"{solved.num_ops:,}",
        f"{solved.lower_bound_ms:.1f}",
        f"{expert_ms:.1f}",
        f"{solved.makespan_ms:.1f}",
        f"{1 - solved.makespan_ms / expert_ms:.1%}",
        f"{solved.gap:.1%}",
        f"{solved.seconds:.0f}",
        f"{solved.peak_gib:.2f}",
    )


def solve(profile: Profile, time_limit_s: float) -> Solved:
    """Run `pesto solve`, and measure time and memory of the whole process."""
    with tempfile.TemporaryDirectory() as folder:
        path, answer = Path(folder, "profile.json"), Path(folder, "answer.json")
        pesto.write_profile(path, profile)
        program = "from pesto_cli.cli import main; main()"
        command = [sys.executable, "-c", program, "solve", str(path), "--json"]
        placement = Path(folder, "placement.json")
        command += ["-o", str(placement), "--time-limit", str(time_limit_s)]
        began = time.perf_counter()
        with answer.open("wb") as stdout:
            process = subprocess.Popen(command, stdout=stdout)
            # Unlike `getrusage`, this measures only this process.
            _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            raise RuntimeError(f"pesto solve ended with exit code {process.returncode}")
        result = json.loads(answer.read_text())
        num_ops = len(json.loads(placement.read_text())["ops"]["name"])
    return Solved(
        num_ops=num_ops,
        makespan_ms=result["makespan_us"] / 1e3,
        lower_bound_ms=result["lower_bound_us"] / 1e3,
        gap=result["gap"],
        seconds=seconds,
        peak_gib=usage.ru_maxrss / 2**20,
    )


if __name__ == "__main__":
    main(sys.argv[1:])
