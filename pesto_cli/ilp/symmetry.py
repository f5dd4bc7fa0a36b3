"""Symmetry breaking: placements that can be excluded because devices are interchangeable."""

from pesto_cli.data.symmetry import interchangeable
from pesto_cli.ilp.formulation import Formulation


def excluded_by_symmetry(f: Formulation, start: list[int] | None) -> list[tuple[int, int]]:
    """Return (op, device) pairs that can be excluded.

    For each class of interchangeable devices, the op with the longest time there may use only one
    device of the class. It is the op's device in the start, so that the start remains feasible, or
    else the first device. `start` is the device of each op, or None.
    """
    excluded = []
    for devices in interchangeable(f.problem):
        able = [op for op, times in enumerate(f.op_time) if devices[0] in times]
        if not able:
            continue
        op = max(able, key=lambda op: f.op_time[op][devices[0]])
        keep = start[op] if start is not None and start[op] in devices else devices[0]
        excluded += [(op, device) for device in devices if device != keep]
    return excluded
