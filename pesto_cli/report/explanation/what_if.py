"""What a step would take with an op on another device, or why it cannot be there."""

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
        """Every device in the order in which its ops start now."""

    @property
    def dispatched(self) -> Schedule:
        """Every device takes of its ready ops the one that starts first now."""


@dataclass(frozen=True)
class Elsewhere:
    """What the step would take with the op, and its group, on a device.

    why_not: the reason why it cannot run there; then the times are None.
    duration_us: of the op alone. kept_us, dispatched_us: makespans; see `WhatIf`. *_short_bytes: by
    how much the memory of devices is exceeded then, by their names.
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
    """Of an op on a device; `there` is None where it may not run."""
    name, is_here = problem.machine.devices[device].name, device == int(schedule.device[op])
    if there is None:
        return Elsewhere(name, is_here, _why_not(problem, op, device))
    return Elsewhere(
        device=name,
        is_here=is_here,
        duration_us=float(problem.duration_us[op, device]),
        kept_us=there.kept.makespan_us,
        kept_short_bytes=_short(problem, there.kept),
        dispatched_us=there.dispatched.makespan_us,
        dispatched_short_bytes=_short(problem, there.dispatched),
    )


def _short(problem: Problem, schedule: Schedule) -> dict[str, int]:
    short = shortfall_bytes(problem, schedule).tolist()
    names = [device.name for device in problem.machine.devices]
    return {name: size for name, size in zip(names, short, strict=True) if size}


def _why_not(problem: Problem, op: int, device: int) -> str | None:
    """Why an op may not run on a device, or None if it may."""
    if problem.allowed[op, device]:
        return None
    graph, row = problem.graph, problem.machine.devices[device]
    for member in [op, *graph.groups[int(graph.colocation_group[op])].tolist()]:
        who = "it" if member == op else f"{graph.names[member]!r} of its group"
        if not np.isfinite(problem.duration_us[member, device]):
            if problem.is_hosted[member]:
                return f"{who} is fed or fetched, which is done on the first CPU"
            return f"the profile has no time for {who} on a {row.kind}"
        if not problem.permitted[member, device]:
            return f"the constraints keep {who} away"
    raise ValueError("an op that all of its group can run beside may run")
