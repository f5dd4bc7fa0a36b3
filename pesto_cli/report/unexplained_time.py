"""Where measured op times are little of the step that they were measured in."""

from collections.abc import Iterator, Mapping
from typing import Any

# Below this share of a step, what the ops do not account for decides what is predicted.
LEAST_EXPLAINED = 0.8


def unexplained_time_warnings(provenance: Mapping[str, Any]) -> Iterator[str]:
    """Yield a warning for every kind of device whose op times explain too little of a step.

    Not for a step on several devices: there the rest is also waiting for each other.

    Args:
        provenance: of a profile by real steps; `reconciled` has its steps.
    """
    for step in provenance.get("reconciled", ()):
        share = step["ops_us"] / step["step_us"]
        if step["num_devices"] == 1 and share < LEAST_EXPLAINED:
            yield (
                f"op times are only {share:.0%} of an untraced step on one {step['kind']}, where "
                f"{LEAST_EXPLAINED:.0%} or more was expected: predictions from this profile are "
                "rough. Either ops are so short that TensorFlow takes longer between them than "
                "for them (larger batches help), or other programs took the processor (try "
                "again on an idle machine, with more --steps)."
            )
