"""What depends on a problem alone is computed once for it, and kept as long as the problem is."""

from collections.abc import Callable
from functools import wraps
from typing import TypeVar
from weakref import WeakKeyDictionary

from pesto_cli.data.problem import Problem

Value = TypeVar("Value")


def cached_per_problem(function: Callable[[Problem], Value]) -> Callable[[Problem], Value]:
    """Keep what a function of a problem returns, by the problem's identity.

    A problem is frozen, so the value stays right. Nobody may change a value that is an array.
    """
    known: WeakKeyDictionary[Problem, Value] = WeakKeyDictionary()

    @wraps(function)
    def kept(problem: Problem) -> Value:
        if problem not in known:
            known[problem] = function(problem)
        return known[problem]

    return kept
