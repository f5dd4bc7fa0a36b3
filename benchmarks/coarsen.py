"""The time of coarsening and the critical path of its result, by number of ops."""

import time

from benchmarks.problems import layered
from pesto_cli.bounds import critical_path_us, load_us
from pesto_cli.coarsen import coarsen
from pesto_cli.coarsen.coarsening import MERGINGS


def main() -> None:
    """Print seconds and critical paths for each kind of merging."""
    coarsen(layered(400), 10)  # compiles
    for num_ops in (5_000, 30_000, 100_000):
        problem = layered(num_ops)
        path_ms, load_ms = critical_path_us(problem) / 1e3, load_us(problem) / 1e3
        print(f"coarsen {num_ops:7} ops: critical path {path_ms:.1f} ms, load {load_ms:.1f} ms")
        for num_nodes in (200, 300):
            for merging in MERGINGS:
                began = time.perf_counter()
                coarse = coarsen(problem, num_nodes, merging=merging)
                seconds = time.perf_counter() - began
                path_ms = critical_path_us(coarse.problem) / 1e3
                print(
                    f"    {merging:8} to {coarse.num_nodes} nodes: {seconds:5.2f} s, "
                    f"critical path {path_ms:.1f} ms"
                )


if __name__ == "__main__":
    main()
