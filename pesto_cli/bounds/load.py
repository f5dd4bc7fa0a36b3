"""Work spread over the devices, alone and between what comes before and after it."""

from heapq import heappop, heappush, heapreplace
from itertools import pairwise

import numpy as np

from pesto_cli.data.graph import BoolArray, FloatArray
from pesto_cli.data.problem import Problem
from pesto_cli.data.problem_cache import cached_per_problem

# A machine has few kinds of devices, so few sets of devices matter; pins could add many.
MAX_DEVICE_SETS = 16


@cached_per_problem
def load_us(problem: Problem) -> float:
    """Work spread over the devices, and a colocation group on one.

    For shares y_d >= 0 that sum to 1, and colocation groups g,

        C_max >= sum_d y_d load_d >= sum_g min_d y_d time[g, d]

    since no device is busy for longer than C_max. (These are solutions of the dual of the linear
    program for unrelated machines.) And C_max >= min_d time[g, d].
    """
    group_us = _group_time_us(problem)
    spread_us = [_share(group_us, y).sum() for y in device_shares(problem)]
    return float(max([*spread_us, group_us.min(axis=1).max(initial=0.0)]))


def head_tail_load_us(problem: Problem, head_us: FloatArray, tail_us: FloatArray) -> float:
    """Load between what has to come before it and what has to come after it.

    No op i starts before r_i, and the step goes on for q_i after its end. With w_i = min_d y_d
    time[i, d], its share of the devices' time, all ops of a set J run between min r and
    C_max - min q:

        C_max >= min_J r_i + sum_J w_i + min_J q_i

    The best set J is found by Jackson's preemptive schedule (Carlier, "The one-machine sequencing
    problem", 1982). A colocation group is such a set on one device.

    Args:
        problem: of `num_ops` ops.
        head_us: r, `[num_ops]`.
        tail_us: q, `[num_ops]`.
    """
    graph = problem.graph
    bounds_us = [
        _jackson(head_us, shared_work_us(problem, y), tail_us) for y in device_shares(problem)
    ]
    first_us, last_us = (np.full(graph.num_groups, np.inf) for _ in range(2))
    np.minimum.at(first_us, graph.colocation_group, head_us)
    np.minimum.at(last_us, graph.colocation_group, tail_us)
    alone_us = first_us + _group_time_us(problem).min(axis=1) + last_us
    return float(max([*bounds_us, alone_us.max(initial=0.0)]))


def shared_work_us(problem: Problem, y: FloatArray) -> FloatArray:
    """`[num_ops]`: the least that every op takes of the devices' time, by their shares y."""
    return _share(np.where(problem.allowed, problem.duration_us, np.inf), y)


@cached_per_problem
def device_shares(problem: Problem) -> list[FloatArray]:
    """Shares y worth trying: for each set of devices that ops are confined to, by their speeds."""
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
    """The sets of devices that ops may run on, and unions of these."""
    rows: list[list[bool]] = np.unique(problem.allowed, axis=0).tolist()
    sets = {tuple(row) for row in rows}
    for _ in range(len(sets)):
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


def _group_time_us(problem: Problem) -> FloatArray:
    """`[num_groups, num_devices]`: time of a whole group on one device, inf where it may not."""
    group_us = np.zeros((problem.graph.num_groups, problem.num_devices))
    op_us = np.where(problem.allowed, problem.duration_us, np.inf)
    np.add.at(group_us, problem.graph.colocation_group, op_us)
    return group_us


def _share(time_us: FloatArray, y: FloatArray) -> FloatArray:
    """min_d y_d time[., d], over the devices where it may run."""
    weighted = np.where(np.isfinite(time_us), time_us, 0.0) * y
    shared: FloatArray = np.where(np.isfinite(time_us), weighted, np.inf).min(axis=1)
    return shared


def _jackson(head_us: FloatArray, work_us: FloatArray, tail_us: FloatArray) -> float:
    """Largest min_J head + sum_J work + min_J tail of any set J, in O(n log n).

    One machine always serves the op with the longest tail of those that are there, and leaves it
    when one with a longer tail comes.
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
