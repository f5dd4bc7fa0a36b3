"""Quality of placements on the paper's models: `python -m benchmarks.quality [MODEL]...`.

Each model on `v100x2-nvlink`, with devices of 80 GB, so that every expert fits, and with the real
16 GB: single, expert, pesto, and pesto that starts from `single` alone. Writes JSON, and the table
of docs/results.md. Profiles are made once, and kept in the folder of `--profiles`.
"""

import argparse
import json
import os
import platform
import subprocess
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pesto_cli
from pesto_cli import api as pesto
from pesto_cli.files import Profile
from pesto_cli.schedule import Schedule, shortfall_bytes

MODELS = (
    "RNNLM-2-2048",
    "RNNLM-4-2048",
    "RNNLM-16-1024",
    "NMT-2-1024",
    "NMT-4-1024",
    "Transformer-10-8-1024",
    "Transformer-12-8-1024",
    "Transformer-6-16-2048",
    "NASNet-4-212",
    "NASNet-6-148",
    "NASNet-6-168",
)
MACHINE = "v100x2-nvlink"
GPU_GIB = (80, 16)


@dataclass(frozen=True)
class Row:
    """One strategy on one model; `within_1_percent_s`: when it was that close to its answer."""

    model: str
    num_ops: int
    gpu_gib: int
    strategy: str
    makespan_ms: float
    lower_bound_ms: float
    gap: float
    peak_gib: float
    fits: bool
    within_1_percent_s: float


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, write, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=MODELS, metavar="MODEL")
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("--gpu-gib", type=int, nargs="+", default=GPU_GIB)
    parser.add_argument("--profiles", type=Path, default=Path("build/profiles"))
    parser.add_argument("--output", type=Path, default=Path("build/quality.json"))
    options = parser.parse_args(arguments)
    rows: list[Row] = []
    for model in options.models:
        for gpu_gib in options.gpu_gib:
            rows += measure(options.profiles, model, gpu_gib, options.time_limit)
            options.output.parent.mkdir(parents=True, exist_ok=True)
            record = {**conditions(options.time_limit), "rows": [asdict(row) for row in rows]}
            options.output.write_text(json.dumps(record, indent=1))
    print(markdown(rows))


def profile_of(folder: Path, model: str) -> Profile:
    """The model's profile, made if the folder does not have it."""
    path = folder / f"{model}.profile.json"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        graph = pesto.export(f"zoo:{model}")
        pesto.write_profile(path, pesto.profile(graph, pesto.read_machine(MACHINE)))
    return pesto.read_profile(path)


def with_memory(profile: Profile, gpu_gib: int) -> Profile:
    """The same on GPUs of another size."""
    machine = profile.problem.machine
    devices = tuple(
        replace(device, memory_bytes=gpu_gib * 2**30) if device.kind == "GPU" else device
        for device in machine.devices
    )
    problem = replace(profile.problem, machine=replace(machine, devices=devices))
    return replace(profile, problem=problem)


def measure(folder: Path, model: str, gpu_gib: int, time_limit_s: float) -> list[Row]:
    """Every strategy on one model."""
    profile = with_memory(profile_of(folder, model), gpu_gib)
    limits = pesto.Limits(time_limit_s=time_limit_s, workers=os.cpu_count() or 1)
    single = pesto.compare(profile, ["single"])[0].schedule.placement
    searches = {
        "single": ("single", pesto.Search(limits)),
        "expert": ("expert", pesto.Search(limits)),
        "pesto": ("pesto", pesto.Search(limits)),
        "pesto, from single": ("pesto", pesto.Search(limits, warm_start=single)),
    }
    rows = []
    for title, (strategy, search) in searches.items():
        told: list[tuple[float, float]] = []
        began = time.monotonic()

        def tell(
            source: str,
            schedule: Schedule,
            told: list[tuple[float, float]] = told,
            began: float = began,
        ) -> None:
            told.append((time.monotonic() - began, schedule.makespan_us))

        result = pesto.compare(profile, [strategy], replace(search, on_incumbent=tell))[0]
        near = [seconds for seconds, us in told if us <= 1.01 * result.makespan_us]
        rows.append(
            Row(
                model=model,
                num_ops=profile.problem.num_ops,
                gpu_gib=gpu_gib,
                strategy=title,
                makespan_ms=result.makespan_us / 1e3,
                lower_bound_ms=result.lower_bound_us / 1e3,
                gap=result.gap,
                peak_gib=float(result.schedule.peak_bytes.max()) / 2**30,
                fits=not shortfall_bytes(profile.problem, result.schedule).any(),
                within_1_percent_s=min(near, default=result.runtime_s),
            )
        )
        print(f"{model} {gpu_gib} GB {title}: {rows[-1].makespan_ms:.2f} ms", flush=True)
    return rows


def conditions(time_limit_s: float) -> dict[str, object]:
    """What the figures depend on."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return {
        "time_limit_s": time_limit_s,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "pesto": pesto_cli.__version__,
        "commit": commit.stdout.strip(),
    }


def markdown(rows: Sequence[Row]) -> str:
    """One line a model and size of device."""
    lines = [
        "| model | ops | GPU | bound | single | expert | pesto | gap | less than expert | "
        "from single | peak | within 1 % |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for model, gpu_gib in dict.fromkeys((row.model, row.gpu_gib) for row in rows):
        of = {r.strategy: r for r in rows if (r.model, r.gpu_gib) == (model, gpu_gib)}
        best, expert = of["pesto"], of["expert"]
        lines.append(
            f"| {model} | {best.num_ops:,} | {gpu_gib} GB | {best.lower_bound_ms:.1f} | "
            f"{_time(of['single'])} | {_time(expert)} | {_time(best)} | {best.gap:.1%} | "
            f"{1 - best.makespan_ms / expert.makespan_ms:.1%} | "
            f"{_time(of['pesto, from single'])} | {best.peak_gib:.1f} GiB | "
            f"{best.within_1_percent_s:.0f} s |"
        )
    return "\n".join(lines)


def _time(row: Row) -> str:
    return f"{row.makespan_ms:.1f}" if row.fits else f"OOM ({row.makespan_ms:.1f})"


if __name__ == "__main__":
    main()
