"""The load of a schedule: its work, transfers and memory in a few figures."""

from dataclasses import dataclass

import numpy as np

from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import Schedule, sent_bytes
from pesto_cli.data.solution import Solution


@dataclass(frozen=True)
class Load:
    """The load of a schedule.

    work_us: time of all ops. sent_bytes: bytes of all transfers. peak_bytes: the peak memory,
    summed over the accelerators and the host.
    """

    makespan_us: float
    num_ops: int
    work_us: float
    sent_bytes: int
    peak_bytes: int

    @classmethod
    def of(cls, problem: Problem, schedule: Schedule) -> "Load":
        """Return the load of a schedule of a problem."""
        own_us = problem.duration_us[np.arange(problem.num_ops), schedule.device]
        return cls(
            makespan_us=schedule.makespan_us,
            num_ops=problem.num_ops,
            work_us=float(own_us.sum()),
            sent_bytes=int(sent_bytes(problem, schedule).sum()),
            peak_bytes=int(schedule.peak_bytes.sum()),
        )


def whole_load(solution: Solution) -> Load | None:
    """Return the load of the best schedule with whole ops, if ops are split and it is known."""
    if not solution.plan or solution.whole is None:
        return None
    return Load.of(solution.asked, solution.whole)
