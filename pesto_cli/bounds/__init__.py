"""Lower bounds on the makespan over all placements and all orders on devices and links.

The bounds hold for links with any order of transfers, and so also for links that serve transfers
first come, first served.
`chains` and `load` ignore transfers and signals; `windows` includes them.
"""

from pesto_cli.bounds.chains import critical_path_us, heads, tails
from pesto_cli.bounds.load import head_tail_load_us, load_us
from pesto_cli.bounds.windows import heads_and_tails
from pesto_cli.data.problem import Problem
from pesto_cli.data.problem_cache import cached_per_problem

__all__ = [
    "critical_path_us",
    "head_tail_load_us",
    "heads",
    "heads_and_tails",
    "load_us",
    "lower_bound_us",
    "tails",
]


@cached_per_problem
def lower_bound_us(problem: Problem) -> float:
    """Return the largest bound in us: load; or path, or load, between heads and tails."""
    head_us, tail_us = heads_and_tails(problem)
    path_us = float((head_us + problem.min_duration_us + tail_us).max(initial=0.0))
    return max(path_us, load_us(problem), head_tail_load_us(problem, head_us, tail_us))
