"""Interchangeable devices: swapping two of them never changes a makespan."""

from pesto_cli.data.graph import IntArray
from pesto_cli.data.problem import Problem


def interchangeable(problem: Problem) -> list[list[int]]:
    """Return the classes of interchangeable devices that have two or more members."""
    classes: list[list[int]] = []
    for device in range(problem.num_devices):
        for members in classes:
            if _can_swap(problem, members[0], device):
                members.append(device)
                break
        else:
            classes.append([device])
    return [members for members in classes if len(members) > 1]


def _can_swap(problem: Problem, first: int, second: int) -> bool:
    """Return whether a problem is unchanged if two devices are swapped.

    That is: ops, memory, links, channels, and which devices make each other slower.
    """
    machine, swapped = problem.machine, list(range(problem.num_devices))
    swapped[first], swapped[second] = second, first
    return bool(
        problem.capacity_bytes[first] == problem.capacity_bytes[second]
        and machine.devices[first].kind == machine.devices[second].kind
        and (problem.allowed[:, first] == problem.allowed[:, second]).all()
        and (problem.duration_us[:, first] == problem.duration_us[:, second])[
            problem.allowed[:, first]
        ].all()
        and all(
            (matrix == matrix[swapped][:, swapped]).all()
            for matrix in (
                *(machine.latency_us, machine.us_per_byte, machine.min_us, machine.wait_us),
                *machine.transfer_overhead_us.reshape(4, *machine.wait_us.shape),
            )
        )
        and _is_one_to_one(machine.channel, machine.channel[swapped][:, swapped])
        and (
            not machine.has_contention
            or _is_one_to_one(machine.peer_group, machine.peer_group[swapped])
        )
    )


def _is_one_to_one(channel: IntArray, renamed: IntArray) -> bool:
    pairs = set(zip(channel.ravel().tolist(), renamed.ravel().tolist(), strict=True))
    return len({a for a, _ in pairs}) == len({b for _, b in pairs}) == len(pairs)
