"""Lower bounds on the makespan, whatever the placement and whatever the order on devices and links.

They bound the optimum with free link order, and with it the one with links that serve first come
first. `chains` and `load` leave transfers and signals out; `windows` counts them.
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
    """The best of all bounds: load, and path and load between heads and tails with transfers."""
    head_us, tail_us = heads_and_tails(problem)
    path_us = float((head_us + problem.min_duration_us + tail_us).max(initial=0.0))
    return max(path_us, load_us(problem), head_tail_load_us(problem, head_us, tail_us))
