"""Run all benchmarks, or those with the given names: `python -m benchmarks [NAME]...`."""

import importlib
import sys

BENCHMARKS = (
    "simulate",
    "coarsen",
    "start_up",
    "models",
    "contraction",
    "devices",
    "large",
    "rewriting",
)


def main(names: list[str]) -> None:
    """Run the benchmarks with these names, or all if there is no name."""
    for name in names or BENCHMARKS:
        importlib.import_module(f"benchmarks.{name}").main()


if __name__ == "__main__":
    main(sys.argv[1:])
