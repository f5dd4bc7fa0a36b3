"""Wall time of `pesto --help`: the start-up time of the command line."""

import statistics
import subprocess
import sys
import time

RUNS = 11


def main() -> None:
    """Print the median time of whole processes."""
    command = [sys.executable, "-c", "from pesto_cli.cli import main; main()", "--help"]
    times = []
    for _ in range(RUNS):
        began = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        times.append(time.perf_counter() - began)
    print(f"pesto --help: {statistics.median(times):.3f} s")


if __name__ == "__main__":
    main()
