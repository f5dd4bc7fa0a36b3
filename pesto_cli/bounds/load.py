"""Bounds from work spread over the devices: alone, and between heads and tails."""

from heapq import heappop, heappush, heapreplace
from itertools import pairwise

import numpy as np

from pesto_cli.data.graph import BoolArray, FloatArray
from pesto_cli.data.problem import Problem
from pesto_cli.data.problem_cache import cached_per_problem

# A machine has few device kinds, and so few sets of devices; pins could add many sets.
MAX_DEVICE_SETS = 16


@cached_per_problem
def load_us(problem: Problem) -> float:
    """Return the bound of all work spread over the devices, and of each group on one device.

    For shares y_d >= 0 that sum to 1, and colocation groups g,

        C_max >= sum_d y_d load_d >= sum_g min_d y_d time[g, d]

    because no device is busy for longer than C_max. (These y are solutions of the dual of the
    linear program for unrelated machines.) Also C_max >= min_d time[g, d].
    """
    return max(spread_us(problem), float(problem.group_time_us.min(axis=1).max(initial=0.0)))


def spread_us(problem: Problem) -> float:
    """Return the bound of all work spread over the devices; see `load_us`."""
    group_us = problem.group_time_us
    return float(max((_share(group_us, y).sum() for y in device_shares(problem)), default=0.0))


def head_tail_load_us(problem: Problem, head_us: FloatArray, tail_us: FloatArray) -> float:
    """Return the bound of work spread over the devices, between heads and tails.

    No op i starts before r_i, and the step lasts at least q_i after its end. Let w_i = min_d y_d
    time[i, d]. All ops of a set J run between min r and C_max - min q, so

        C_max >= min_J r_i + sum_J w_i + min_J q_i

    The best set J is found by Jackson's preemptive schedule (Carlier, "The one-machine sequencing
    problem", 1982). The same bound holds for a colocation group as J, with its time on one device.

    Args:
        problem: the problem.
        head_us: r, `[num_ops]`.
        tail_us: q, `[num_ops]`.
    """
    return max(
        spread_between_us(problem, head_us, tail_us), groups_between_us(problem, head_us, tail_us)
    )


def spread_between_us(problem: Problem, head_us: FloatArray, tail_us: FloatArray) -> float:
    """Return the bound of sets J of ops; see `head_tail_load_us`."""
    bounds_us = (
        _jackson(head_us, shared_work_us(problem, y), tail_us) for y in device_shares(problem)
    )
    return max(bounds_us, default=0.0)


def groups_between_us(problem: Problem, head_us: FloatArray, tail_us: FloatArray) -> float:
    """Return the bound of each colocation group on one device; see `head_tail_load_us`."""
    graph = problem.graph
    first_us, last_us = (np.full(graph.num_groups, np.inf) for _ in range(2))
    np.minimum.at(first_us, graph.colocation_group, head_us)
    np.minimum.at(last_us, graph.colocation_group, tail_us)
    alone_us = first_us + problem.group_time_us.min(axis=1) + last_us
    return float(alone_us.max(initial=0.0))


def shared_work_us(problem: Problem, y: FloatArray) -> FloatArray:
    """Return w_i = min_d y_d time[i, d] for every op, over its allowed devices, `[num_ops]`."""
    return _share(np.where(problem.allowed, problem.duration_us, np.inf), y)


@cached_per_problem
def device_shares(problem: Problem) -> list[FloatArray]:
    """Return the shares y to try, `[num_devices]` each.

    There is one for each set of devices to which ops are confined; it is proportional to the speeds
    of the devices for these ops.
    """
    shares = []
    time_us = np.where(problem.allowed, problem.duration_us, 0.0)
    for devices in _device_sets(problem):
        confined = ~problem.allowed[:, ~devices].any(axis=1, keepdims=True)
        able = problem.allowed & confined
        fastest_us = np.where(able, problem.min_duration_us[:, None], 0.0).sum(axis=0)
        here_us = np.where(able, time_us, 0.0).sum(axis=0)
        speed = np.divide(fastest_us, here_us, out=np.ones_like(here_us), where=here_us > 0)
        speed[~devices] = 0.0
        if speed.any():
            shares.append(speed / speed.sum())
    return shares


def _device_sets(problem: Problem) -> list[BoolArray]:
    """Return the sets of devices on which ops may run, and unions of them, as masks."""
    rows: list[list[bool]] = np.unique(problem.allowed, axis=0).tolist()
    sets = {tuple(row) for row in rows}
    while len(sets) <= MAX_DEVICE_SETS:
        unions = {
            tuple(a or b for a, b in zip(first, second, strict=True))
            for first in sets
            for second in sets
        }
        if len(unions) == len(sets) or len(unions) > MAX_DEVICE_SETS:
            break
        sets = unions
    largest_first = sorted(sets, key=lambda row: (-sum(row), row))
    return [np.array(row) for row in largest_first[:MAX_DEVICE_SETS]]


def _share(time_us: FloatArray, y: FloatArray) -> FloatArray:
    """Return min_d y_d time[., d] over the devices with a finite time."""
    weighted = np.where(np.isfinite(time_us), time_us, 0.0) * y
    shared: FloatArray = np.where(np.isfinite(time_us), weighted, np.inf).min(axis=1)
    return shared


def _jackson(head_us: FloatArray, work_us: FloatArray, tail_us: FloatArray) -> float:
    """Return the maximum over sets J of min_J head + sum_J work + min_J tail, in O(n log n).

    One machine always runs the released op with the longest tail, and preempts it when an op with
    a longer tail is released.
    """
    rows = np.flatnonzero(work_us > 0)
    rows = rows[np.argsort(head_us[rows], kind="stable")]
    arrivals = [*head_us[rows].tolist(), np.inf]
    jobs = list(zip((-tail_us[rows]).tolist(), work_us[rows].tolist(), strict=True))
    waiting: list[tuple[float, float]] = []
    longest = 0.0
    for job, (now, until) in zip(jobs, pairwise(arrivals), strict=True):
        heappush(waiting, job)
        while waiting and now < until:
            tail, work = waiting[0]
            if now + work > until:
                heapreplace(waiting, (tail, work - (until - now)))
                break
            heappop(waiting)
            now += work
            longest = max(longest, now - tail)
    return longest
