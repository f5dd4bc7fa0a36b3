"""The work of the ops of a schedule: the time that each would have taken without contention.

While k other devices of the same kind and host run ops, an op with the slow-down c does one us of
its work in 1 + k * c us. So its work is the integral of 1 / (1 + k(t) * c) over its run.
"""

import numpy as np

from pesto_cli.data.graph import FloatArray
from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import Schedule


def work_us(problem: Problem, schedule: Schedule) -> FloatArray:
    """Return the work of each op in us, with the overhead of transfers, `[num_ops]`."""
    start_us, end_us, machine = schedule.start_us, schedule.end_us, problem.machine
    took_us: FloatArray = end_us - start_us
    if not machine.has_contention:
        return took_us
    slow_down = problem.slow_down[np.arange(len(took_us)), schedule.device]
    host = machine.peer_group[schedule.device]
    for here in np.unique(host[slow_down > 0]).tolist():
        is_here = (host == here) & (took_us > 0)
        instant_us, num_running = running_ops(start_us[is_here], end_us[is_here])
        for each in np.unique(slow_down[is_here & (slow_down > 0)]).tolist():
            factor = 1 + np.maximum(num_running - 1, 0) * each
            since_0_us = np.concatenate(([0.0], np.cumsum(np.diff(instant_us) / factor)))
            ops = np.flatnonzero(is_here & (slow_down == each))
            first, last = (np.searchsorted(instant_us, us[ops]) for us in (start_us, end_us))
            took_us[ops] = since_0_us[last] - since_0_us[first]
    return took_us


def running_ops(start_us: FloatArray, end_us: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the instants at which ops start or end, and how many run between each two instants.

    The results are `[num_instants]`, ascending, and `[num_instants - 1]`.
    """
    change = np.repeat((1, -1), len(start_us))
    instant_us, row = np.unique(np.concatenate((start_us, end_us)), return_inverse=True)
    num_running: FloatArray = np.cumsum(np.bincount(row, change).astype(np.float64)).round()
    return instant_us, num_running[:-1]
