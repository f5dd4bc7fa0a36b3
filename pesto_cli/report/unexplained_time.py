"""Warnings on profiles whose measured op times are only a small part of the measured step."""

from collections.abc import Iterator, Mapping
from typing import Any

# With a smaller share, predictions depend mostly on the time that op times do not explain.
LEAST_EXPLAINED = 0.8


def unexplained_time_warnings(provenance: Mapping[str, Any]) -> Iterator[str]:
    """Yield a warning for every device kind whose op times explain too little of a step.

    Steps on several devices are skipped, because there devices also wait for each other.

    Args:
        provenance: the provenance of a profile by real steps; `reconciled` has these steps.
    """
    for step in provenance.get("reconciled", ()):
        share = step["ops_us"] / step["step_us"]
        if step["num_devices"] == 1 and share < LEAST_EXPLAINED:
            yield (
                f"op times are only {share:.0%} of an untraced step on one {step['kind']}, where "
                f"{LEAST_EXPLAINED:.0%} or more was expected: predictions from this profile are "
                "rough. Either ops are so short that TensorFlow spends more time between ops than "
                "on ops (use larger batches), or other programs used the processor (try again on "
                "an idle machine, with more steps: pesto profile --steps)."
            )
