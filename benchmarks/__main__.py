"""Run every benchmark, or those named: `python -m benchmarks [NAME]...`."""

import importlib
import sys

BENCHMARKS = ("simulate", "coarsen", "start_up", "models", "contraction", "devices", "large")


def main(names: list[str]) -> None:
    """Run benchmarks by name, all if none is named."""
    for name in names or BENCHMARKS:
        importlib.import_module(f"benchmarks.{name}").main()


if __name__ == "__main__":
    main(sys.argv[1:])
