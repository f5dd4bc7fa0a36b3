"""A user's constraints on a placement; they are applied to a problem before a strategy runs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

import numpy as np

from pesto_cli.data.graph import BoolArray
from pesto_cli.data.problem import Problem
from pesto_cli.errors import BadInputError, InfeasibleError


@dataclass(frozen=True)
class Rule:
    """A shell pattern of op names, such as `encoder/layer_0/*`, and a device or device kind."""

    ops: str
    device: str


@dataclass(frozen=True)
class SplitRule:
    """A shell pattern of op names, and how these ops are split.

    by: the name of an alternative, such as `rows`, for the ops that have it; or `batch`: every op
        as in a data-parallel step.
    parts: the number of parts of equal size.
    sizes: in place of `parts`, the units of each part along what is split; not for `batch`.
    """

    ops: str
    by: str = "batch"
    parts: int | None = None
    sizes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Constraints:
    """A user's rules for a placement.

    pin: the ops run only on this device, or on devices of this kind.
    forbid: the ops do not run on this device, or on devices of this kind.
    together: patterns of op names; all ops that match one pattern run on one device, and are not
        split.
    headroom: the share of every device's memory that may be used; None leaves it unchanged.
    split: how ops are split; `strategies.chosen_plan` adds these rules to a problem.
    whole: patterns of op names; these ops are not split.
    """

    pin: Sequence[Rule] = ()
    forbid: Sequence[Rule] = ()
    together: Sequence[str] = ()
    headroom: float | None = None
    split: Sequence[SplitRule] = ()
    whole: Sequence[str] = ()

    def apply(self, problem: Problem) -> Problem:
        """Return the problem with these constraints, except those of `split`.

        Raises:
            BadInputError: a pattern matches no op, or a device is unknown.
            InfeasibleError: no device remains for an op or a colocation group.
        """
        permitted = np.ones_like(problem.permitted)
        for rule in self.pin:
            devices = _devices(problem, rule.device)
            permitted[matching_ops(problem, rule.ops)] &= devices
        for rule in self.forbid:
            devices = _devices(problem, rule.device)
            permitted[matching_ops(problem, rule.ops)] &= ~devices
        group = problem.graph.colocation_group.copy()
        for pattern in self.together:
            members = np.unique(group[matching_ops(problem, pattern)])
            group[np.isin(group, members)] = members[0]
        _, dense = np.unique(group, return_inverse=True)
        whole = [
            op for pattern in (*self.whole, *self.together) for op in matching_ops(problem, pattern)
        ]
        constrained = problem.constrained(
            permitted=permitted, colocation_group=dense, headroom=self.headroom
        )
        if constrained.parts is None:
            return constrained
        return replace(constrained, parts=constrained.parts.without(whole))


def keep_devices(problem: Problem, program_device: Sequence[str]) -> Problem:
    """Return the problem in which every op stays on the device that the program assigned.

    program_device: `[num_ops]`, patterns of device names as in `Profile`; "" is no assignment. All
        devices that match a pattern are permitted.

    Raises:
        BadInputError: the machine has no device that matches a pattern.
        InfeasibleError: an op has no time on its devices, or a colocation group has no device.
    """
    permitted = np.ones_like(problem.permitted)
    able = np.isfinite(problem.duration_us)
    for pattern in sorted(set(program_device) - {""}):
        ops = [op for op, name in enumerate(program_device) if name == pattern]
        devices = _devices_like(problem, pattern, ops)
        permitted[ops] = devices
        unable = [op for op in ops if not (able[op] & devices).any()]
        if unable:
            name, kind = problem.graph.names[unable[0]], pattern.rpartition("/")[2]
            remedy = (
                "profile with --cpu-offload" if kind.startswith("CPU") else "assign other devices"
            )
            raise InfeasibleError(
                f"the program assigns {len(unable)} ops to {pattern}, such as {name!r}, which has "
                f"no time there; a time was expected: {remedy}, or leave out --keep-devices."
            )
    return problem.constrained(permitted=permitted)


def _devices_like(problem: Problem, pattern: str, ops: Sequence[int]) -> BoolArray:
    names = [device.name for device in problem.machine.devices]
    whole = "/" in pattern
    fits = [fnmatchcase(name if whole else name.rpartition("/")[2], pattern) for name in names]
    if not any(fits):
        raise BadInputError(
            f"the program assigns {len(ops)} ops to {pattern}, such as "
            f"{problem.graph.names[ops[0]]!r}; one of the machine's devices was expected "
            f"({', '.join(names)}): leave out --keep-devices, and pin ops by --constraints."
        )
    return np.array(fits, dtype=np.bool_)


def matching_ops(problem: Problem, pattern: str) -> list[int]:
    """Return the ops whose names match a shell pattern.

    Raises:
        BadInputError: there is none.
    """
    ops = [op for op, name in enumerate(problem.graph.names) if fnmatchcase(name, pattern)]
    if not ops:
        raise BadInputError(
            f"a constraint on ops {pattern!r} matches none of the {problem.num_ops} ops; "
            "an op name or a shell pattern such as 'encoder/layer_0/*' was expected."
        )
    return ops


def _devices(problem: Problem, wanted: str) -> BoolArray:
    devices = problem.machine.devices
    mask = np.array([wanted in (device.name, device.kind) for device in devices], dtype=np.bool_)
    if not mask.any():
        raise BadInputError(
            f"a constraint names device {wanted!r}; one of "
            f"{', '.join(device.name for device in devices)}, or a device kind, was expected."
        )
    return mask
