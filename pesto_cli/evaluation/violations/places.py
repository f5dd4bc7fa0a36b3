"""The rules on devices and ranks of ops."""

from collections import defaultdict
from collections.abc import Iterator

from pesto_cli.evaluation.violations.observed import Finding, Observed


def affinity(seen: Observed) -> Iterator[Finding]:
    """An op runs on a device that may run it."""
    for op, device in enumerate(seen.device):
        if not seen.problem.allowed[op, device]:
            yield "affinity", f"op {seen.name(op)} may not run on device {device}"


def colocation(seen: Observed) -> Iterator[Finding]:
    """Ops of one colocation group share a device."""
    devices = defaultdict(set)
    for group, device in zip(
        seen.problem.graph.colocation_group.tolist(), seen.device, strict=True
    ):
        devices[group].add(device)
    for group, used in devices.items():
        if len(used) > 1:
            yield "colocation", f"group {group} is spread over devices {sorted(used)}"


def order(seen: Observed) -> Iterator[Finding]:
    """The ranks on each device are 0, 1, 2, ... without a gap."""
    for device, ops in seen.ops.items():
        if [int(seen.schedule.rank[op]) for op in ops] != list(range(len(ops))):
            yield "order", f"ranks on device {device} are not 0 to {len(ops) - 1}"
