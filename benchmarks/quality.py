"""Quality of placements on the paper's models: `python -m benchmarks.quality [MODEL]...`.

The models are placed on `v100x2-nvlink` with devices of 80 GB, so that all placements of the expert
fit, and with the real 16 GB. The strategies are single, expert, pesto, and pesto started only from
`single`. Each placement is simulated in its own order, and in TensorFlow's order. The results are
written as JSON, and printed as the table of docs/results.md. Profiles are made once, and cached in
the folder of `--profiles`.
"""

import argparse
import json
import math
import os
import platform
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path

from pesto_cli import api as pesto
from pesto_cli.data.result import Progress, Result
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.files import Profile
from pesto_cli.report.random_orders import RandomOrderFigures, random_order_figures
from pesto_cli.strategies import Strategy
from pesto_cli.strategies.order import first_ready_first, random_orders_us
from pesto_cli.zoo import PAPER_MODELS

MACHINE = "v100x2-nvlink"
GPU_GIB = (80, 16)


LIBRARIES = ("pesto-cli", "numpy", "numba", "ortools", "tensorflow")
NUM_RANDOM_ORDERS = 20
EARLY_S = 20


@dataclass(frozen=True)
class Row:
    """The result of one strategy on one model.

    incumbents: (seconds, makespan in ms) of each better schedule that fits in memory.
    random_orders: makespans of random orders with the same devices.
    fifo_ms: makespan with the same devices if a device runs the op that was ready first.
    """

    model: str
    num_ops: int
    gpu_gib: int
    strategy: str
    makespan_ms: float
    lower_bound_ms: float
    gap: float
    peak_gib: float
    fits: bool
    took_s: float
    incumbents: list[tuple[float, float]]
    random_orders: RandomOrderFigures
    fifo_ms: float

    @property
    def within_1_percent_s(self) -> float:
        """Time in s after which the best schedule was within 1 % of the final one."""
        near = [seconds for seconds, ms in self.incumbents if ms <= 1.01 * self.makespan_ms]
        return min(near, default=self.took_s)

    @property
    def above_final_early(self) -> float:
        """How much longer the incumbent after `EARLY_S` seconds was than the final schedule."""
        early = [ms for seconds, ms in self.incumbents if seconds <= EARLY_S]
        return min(early, default=math.inf) / self.makespan_ms - 1


def main(arguments: Sequence[str] | None = None) -> None:
    """Place the models, write the results as JSON, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=PAPER_MODELS, metavar="MODEL")
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--deterministic", action="store_true", help="one worker; count work, not time"
    )
    parser.add_argument("--gpu-gib", type=int, nargs="+", default=GPU_GIB)
    parser.add_argument("--profiles", type=Path, default=Path("build/profiles"))
    parser.add_argument("--output", type=Path, default=Path("build/quality.json"))
    options = parser.parse_args(arguments)
    limits = pesto.Limits(
        time_limit_s=options.time_limit,
        seed=options.seed,
        workers=1 if options.deterministic else os.cpu_count() or 1,
        deterministic=options.deterministic,
    )
    options.output.parent.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    for model in options.models:
        profile = profile_of(options.profiles, model)
        for gpu_gib in options.gpu_gib:
            for row in measure(with_memory(profile, gpu_gib), model, gpu_gib, limits):
                rows.append(row)
                print(f"{model} {gpu_gib} GB {row.strategy}: {row.makespan_ms:.2f} ms", flush=True)
            record = {**conditions(limits), "rows": [asdict(row) for row in rows]}
            options.output.write_text(json.dumps(record, indent=1))
    print(markdown(rows))


def profile_of(
    folder: Path,
    model: str,
    source: str = "",
    parts: Sequence[int] = (),
    machine: str = MACHINE,
) -> Profile:
    """Return a model's profile from the folder, or make it from the zoo or another source."""
    with_parts = f".parts-{'-'.join(map(str, parts))}" if parts else ""
    on_machine = "" if machine == MACHINE else f".{machine}"
    path = folder / f"{model}{with_parts}{on_machine}.profile.json"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        graph = pesto.export(source or f"zoo:{model}")
        pesto.write_profile(path, pesto.profile(graph, pesto.read_machine(machine), parts=parts))
    return pesto.read_profile(path)


def with_memory(profile: Profile, gpu_gib: int) -> Profile:
    """Return the profile with another memory size of the GPUs, in GiB."""
    machine = profile.problem.machine
    devices = tuple(
        replace(device, memory_bytes=gpu_gib * 2**30) if device.kind == "GPU" else device
        for device in machine.devices
    )
    problem = replace(profile.problem, machine=replace(machine, devices=devices))
    return replace(profile, problem=problem)


def measure(profile: Profile, model: str, gpu_gib: int, limits: pesto.Limits) -> Iterator[Row]:
    """Yield the results of all strategies on one model."""
    single = pesto.compare(profile, ["single"])[0].schedule.placement
    cold, warm = pesto.Context(limits), pesto.Context(limits, warm_start=single)
    searches: dict[str, tuple[str | Strategy, pesto.Context]] = {
        "single": ("single", cold),
        "expert": ("expert", cold),
        "pesto": ("pesto", cold),
        "pesto, from single": (pesto.Pesto(cheap_starts=False), warm),
    }
    simulator = Simulator(profile.problem)
    for title, (strategy, context) in searches.items():
        result, incumbents = watched(profile, strategy, context)
        device = result.schedule.device
        random_us = random_orders_us(simulator, device, NUM_RANDOM_ORDERS, limits.seed)
        yield Row(
            model=model,
            num_ops=profile.problem.num_ops,
            gpu_gib=gpu_gib,
            strategy=title,
            makespan_ms=result.makespan_us / 1e3,
            lower_bound_ms=result.lower_bound_us / 1e3,
            gap=result.gap,
            peak_gib=float(result.schedule.peak_bytes.max()) / 2**30,
            fits=not result.memory_peaks,
            took_s=result.runtime_s,
            incumbents=incumbents,
            random_orders=random_order_figures(result.makespan_us, random_us),
            fifo_ms=first_ready_first(simulator, device).makespan_us / 1e3,
        )


def watched(
    profile: Profile, strategy: str | Strategy, context: pesto.Context
) -> tuple[Result, list[tuple[float, float]]]:
    """Return a strategy's result, and its incumbents that fit, as in `Row`."""
    incumbents: list[tuple[float, float]] = []
    began = time.monotonic()

    def watch(progress: Progress) -> None:
        ms = progress.makespan_us / 1e3
        if not progress.shortfall_bytes and (not incumbents or ms < incumbents[-1][1]):
            incumbents.append((time.monotonic() - began, ms))

    (result,) = pesto.compare(profile, [strategy], replace(context, on_progress=watch))
    return result, incumbents


def conditions(limits: pesto.Limits) -> dict[str, object]:
    """Return the conditions that the figures depend on."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--exclude=*"],
        capture_output=True,
        text=True,
        check=False,
    )
    return {
        "time_limit_s": limits.time_limit_s,
        "seed": limits.seed,
        "deterministic": limits.deterministic,
        "workers": limits.workers,
        "processor": processor(),
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": {library: version(library) for library in LIBRARIES},
        "commit": commit.stdout.strip(),
    }


def processor() -> str:
    """Return the processor's name, from Linux if possible."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = (line.partition(": ")[2] for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


COLUMNS = (
    "model",
    "ops",
    "GPU",
    "bound",
    "single",
    "expert",
    "pesto",
    "gap",
    "less than expert",
    "from single",
    "peak",
    "within 1 %",
    f"after {EARLY_S} s",
    "random order",
    "order is worth",
    "FIFO order",
)


def markdown(rows: Sequence[Row]) -> str:
    """Return the table, with one line for each model and memory size."""
    lines = [f"| {' | '.join(COLUMNS)} |", f"|---|{'--:|' * (len(COLUMNS) - 1)}"]
    for model, gpu_gib in dict.fromkeys((row.model, row.gpu_gib) for row in rows):
        of = {r.strategy: r for r in rows if (r.model, r.gpu_gib) == (model, gpu_gib)}
        lines.append(f"| {' | '.join(cells(of))} |")
    return "\n".join(lines)


def cells(of: Mapping[str, Row]) -> list[str]:
    """Return the cells of one line, from the rows of one model by strategy."""
    best, expert = of["pesto"], of["expert"]
    random_orders = best.random_orders
    return [
        best.model,
        f"{best.num_ops:,}",
        f"{best.gpu_gib} GB",
        f"{best.lower_bound_ms:.1f}",
        _time(of["single"]),
        _time(expert),
        _time(best),
        f"{best.gap:.1%}",
        f"{1 - best.makespan_ms / expert.makespan_ms:.1%}",
        _time(of["pesto, from single"]),
        f"{best.peak_gib:.1f} GiB",
        f"{best.within_1_percent_s:.0f} s",
        f"+{best.above_final_early:.1%}" if best.above_final_early < math.inf else "none",
        f"{random_orders.median_us / 1e3:.1f} ({random_orders.min_us / 1e3:.1f}-"
        f"{random_orders.max_us / 1e3:.1f})",
        f"{random_orders.order_is_worth:.1%}",
        f"{best.fifo_ms:.1f}",
    ]


def _time(row: Row) -> str:
    return f"{row.makespan_ms:.1f}" if row.fits else f"OOM ({row.makespan_ms:.1f})"


if __name__ == "__main__":
    main()
