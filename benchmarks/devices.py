"""`pesto solve` on 16 to 64 devices, each in a fresh process: quality, seconds and memory.

The integer program grows with the square of the number of devices, and is skipped on most of them.
"""

from benchmarks.large import solve
from benchmarks.problems import layered, many_gpus
from pesto_cli.files import Profile
from pesto_cli.strategies.warm_up import warm_up

TIME_LIMIT_S = 10.0


def main() -> None:
    """Print a row for each number of devices and ops."""
    warm_up()  # compiles
    print("| devices | ops | bound | pesto | gap | seconds | memory, GiB |")
    print("|--:|" + "--:|" * 6)
    for num_devices in (16, 32, 64):
        for num_ops in (1_000, 5_000):
            profile = Profile(layered(num_ops, machine=many_gpus(num_devices)))
            solved = solve(profile, TIME_LIMIT_S)
            print(
                f"| {num_devices} | {num_ops:,} | {solved.lower_bound_ms:.1f} | "
                f"{solved.makespan_ms:.1f} | {solved.gap:.1%} | {solved.seconds:.1f} | "
                f"{solved.peak_gib:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
