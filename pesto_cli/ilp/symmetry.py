"""What a program can exclude because devices may be exchanged."""

from pesto_cli.data.symmetry import interchangeable
from pesto_cli.ilp.formulation import Formulation


def excluded_by_symmetry(f: Formulation, start: list[int] | None) -> list[tuple[int, int]]:
    """(op, device) pairs that can be excluded, one op for each class of interchangeable devices.

    If the op with the most work runs in the class at all, it may as well run on a device of our
    choice: the one where the start has it (`start[i]`, device of every op), so that the start
    remains feasible, or else the first.
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
