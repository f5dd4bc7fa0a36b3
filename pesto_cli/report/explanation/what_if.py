"""What-if analysis: the step time with an op on another device, or why it cannot run there."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import Schedule, shortfall_bytes


class WhatIf(Protocol):
    """Two schedules with an op's group on another device; see `strategies.what_if`."""

    @property
    def kept(self) -> Schedule:
        """The schedule in which every device runs its ops in the present order of starts."""

    @property
    def dispatched(self) -> Schedule:
        """The list schedule in which the priority of ops is the present order of starts."""


@dataclass(frozen=True)
class Elsewhere:
    """The step time with the op and its group on a device.

    why_not: why the op cannot run there; the times are None then. duration_us: the time of the op
    alone. kept_us, dispatched_us: makespans, see `WhatIf`. *_short_bytes: by how much the memory of
    devices is exceeded in these schedules, by device name.
    """

    device: str
    is_here: bool
    why_not: str | None = None
    duration_us: float | None = None
    kept_us: float | None = None
    kept_short_bytes: Mapping[str, int] | None = None
    dispatched_us: float | None = None
    dispatched_short_bytes: Mapping[str, int] | None = None


def elsewhere(
    problem: Problem, schedule: Schedule, op: int, device: int, there: WhatIf | None
) -> Elsewhere:
    """Return the what-if figures of an op on a device; `there` is None if it may not run there."""
    name, is_here = problem.machine.devices[device].name, device == int(schedule.device[op])
    if there is None:
        return Elsewhere(name, is_here, _why_not(problem, op, device))
    return Elsewhere(
        device=name,
        is_here=is_here,
        duration_us=float(problem.duration_us[op, device]),
        kept_us=there.kept.makespan_us,
        kept_short_bytes=short_bytes(problem, there.kept),
        dispatched_us=there.dispatched.makespan_us,
        dispatched_short_bytes=short_bytes(problem, there.dispatched),
    )


def short_bytes(problem: Problem, schedule: Schedule) -> dict[str, int]:
    """Return by how much the memory of devices is exceeded, by device name."""
    short = shortfall_bytes(problem, schedule).tolist()
    names = [device.name for device in problem.machine.devices]
    return {name: size for name, size in zip(names, short, strict=True) if size}


def _why_not(problem: Problem, op: int, device: int) -> str | None:
    """Return why an op may not run on a device, or None if it may."""
    if problem.allowed[op, device]:
        return None
    graph, row = problem.graph, problem.machine.devices[device]
    for member in [op, *graph.groups[int(graph.colocation_group[op])].tolist()]:
        who = "it" if member == op else f"{graph.names[member]!r} of its group"
        if not np.isfinite(problem.duration_us[member, device]):
            if problem.is_hosted[member]:
                return f"{who} is a feed or fetch, which runs on the first CPU"
            return f"the profile has no time for {who} on a {row.kind}"
        if not problem.permitted[member, device]:
            return f"the constraints do not allow {who} there"
    raise ValueError(f"op {graph.names[op]!r} may run on {row.name}: all of its group may")
