"""The rules on devices and ranks of ops."""

from collections.abc import Iterator

import numpy as np

from pesto_cli.evaluation.violations.observed import Finding, Observed


def affinity(seen: Observed) -> Iterator[Finding]:
    """An op runs on a device that may run it."""
    device = seen.schedule.device
    is_allowed = seen.problem.allowed[np.arange(len(device)), device]
    for op in np.flatnonzero(~is_allowed).tolist():
        yield "affinity", f"op {seen.name(op)} may not run on device {device[op]}"


def colocation(seen: Observed) -> Iterator[Finding]:
    """Ops of one colocation group share a device."""
    group, device = seen.problem.graph.colocation_group, seen.schedule.device
    of_group = np.empty(seen.problem.graph.num_groups, dtype=np.int64)
    of_group[group] = device
    for split in np.unique(group[device != of_group[group]]).tolist():
        used = np.unique(device[group == split]).tolist()
        yield "colocation", f"group {split} is spread over devices {used}"


def order(seen: Observed) -> Iterator[Finding]:
    """The ranks on each device are 0, 1, 2, ... without a gap."""
    for device, ops in seen.ops.items():
        if [int(seen.schedule.rank[op]) for op in ops] != list(range(len(ops))):
            yield "order", f"ranks on device {device} are not 0 to {len(ops) - 1}"
