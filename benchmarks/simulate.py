"""The time of one simulation of 5,000 to 100,000 ops, with three placements."""

import statistics
import time
from collections.abc import Callable

import numpy as np

from benchmarks.problems import layered
from pesto_cli.data.graph import IntArray
from pesto_cli.evaluation.simulator import Simulator

RUNS = 21


def main() -> None:
    """Print the median time of a simulation, of a full schedule and of the upward rank."""
    for num_ops in (5_000, 20_000, 100_000):
        problem = layered(num_ops)
        simulator = Simulator(problem)
        random = np.random.default_rng(0)
        gpus = np.array([1, 2])
        half = gpus[(np.arange(num_ops) > num_ops // 2).astype(np.int64)]
        placements = {
            "one device": np.full(num_ops, 1),
            "halves": half,
            "random": gpus[random.integers(0, 2, num_ops)],
        }
        edges = len(problem.graph.edges)
        for name, device in placements.items():
            _report(f"{num_ops:7} ops {edges:7} edges, {name:10}", simulator, device)


def _report(title: str, simulator: Simulator, device: IntArray) -> None:
    priority = simulator.upward_rank(device)
    makespan_ms = _median_ms(lambda: simulator.makespan_us(device, priority))
    schedule_ms = _median_ms(lambda: simulator.list_schedule(device, priority))
    rank_ms = _median_ms(lambda: simulator.upward_rank(device))
    print(
        f"simulate {title}: makespan {makespan_ms:6.2f} ms, "
        f"schedule with memory {schedule_ms:6.2f} ms, upward rank {rank_ms:5.2f} ms"
    )


def _median_ms(action: Callable[[], object]) -> float:
    action()  # compiles
    times = []
    for _ in range(RUNS):
        began = time.perf_counter()
        action()
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1e3


if __name__ == "__main__":
    main()
