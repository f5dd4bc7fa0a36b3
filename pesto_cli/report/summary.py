"""Figures of a profile: op counts by duration, work and critical path."""

from dataclasses import dataclass

import numpy as np

from pesto_cli.data.problem import Problem

# The classes of Table 1 in the Pesto paper.
SHORT_US, LONG_US = 10.0, 100.0


@dataclass(frozen=True)
class Summary:
    """Figures of a problem, with each op on the fastest device that may run it.

    num_short, num_medium, num_long: numbers of ops under 10 us, from 10 to 100 us, over 100 us.
    work_us: sum over all ops. critical_path_us: the longest path of ops through the graph.
    """

    num_ops: int
    num_short: int
    num_medium: int
    num_long: int
    work_us: float
    critical_path_us: float


def summarize(problem: Problem, critical_path_us: float) -> Summary:
    """Count a problem's ops by duration and add up its work."""
    duration_us = problem.min_duration_us
    num_short = int(np.count_nonzero(duration_us < SHORT_US))
    num_long = int(np.count_nonzero(duration_us > LONG_US))
    return Summary(
        num_ops=problem.num_ops,
        num_short=num_short,
        num_medium=problem.num_ops - num_short - num_long,
        num_long=num_long,
        work_us=float(duration_us.sum()),
        critical_path_us=critical_path_us,
    )
