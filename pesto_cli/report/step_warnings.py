"""Warnings about the steps of a profile: op times explain too little of them, or they vary."""

from collections.abc import Iterator, Mapping
from typing import Any

# With a smaller share, predictions depend mostly on the time that op times do not explain.
LEAST_EXPLAINED = 0.8
# Largest difference of the quartiles of step times, as a share of their median. On an idle machine
# it is a few per cent; a program that runs half of the time beside the steps makes it larger.
MOST_VARIED = 0.15


def step_warnings(provenance: Mapping[str, Any]) -> Iterator[str]:
    """Yield warnings on the steps of a profile.

    Steps on several devices are not compared with op times, because there devices also wait for
    each other.

    Args:
        provenance: the provenance of a profile by real steps; `reconciled` has these steps.
    """
    for step in provenance.get("reconciled", ()):
        median_us, (low_us, high_us) = step["step_us"], step["quartiles_us"]
        share = step["ops_us"] / median_us
        if step["num_devices"] == 1 and share < LEAST_EXPLAINED:
            yield (
                f"op times are only {share:.0%} of an untraced step on one {step['kind']}, where "
                f"{LEAST_EXPLAINED:.0%} or more was expected: predictions from this profile are "
                "rough. Either ops are so short that TensorFlow spends more time between ops than "
                "on ops (use larger batches), or other programs used the processor (try again on "
                "an idle machine, with more steps: pesto profile --steps)."
            )
        if high_us - low_us > MOST_VARIED * median_us:
            yield (
                f"untraced steps vary: the middle half of them took {low_us / 1e3:.3f} to "
                f"{high_us / 1e3:.3f} ms, where a difference of at most {MOST_VARIED:.0%} was "
                "expected: predictions from this profile are rough. Other programs, or other "
                "virtual machines of the same computer, may have used the processor: profile again "
                "when it is idle, with more steps (pesto profile --steps), or solve with --robust."
            )
