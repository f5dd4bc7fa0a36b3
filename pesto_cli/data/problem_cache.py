"""A cache of results that depend on a problem alone; an entry lives as long as its problem."""

from collections.abc import Callable
from functools import wraps
from threading import RLock
from typing import TypeVar
from weakref import WeakKeyDictionary

from pesto_cli.data.problem import Problem

Value = TypeVar("Value")


def cached_per_problem(function: Callable[[Problem], Value]) -> Callable[[Problem], Value]:
    """Cache the results of a function of a problem, by the identity of the problem.

    A problem is frozen, so a cached result stays valid. Callers must not change a cached array.
    If one thread computes a result, other threads wait for it.
    """
    lock = RLock()
    cache: WeakKeyDictionary[Problem, Value] = WeakKeyDictionary()

    @wraps(function)
    def cached(problem: Problem) -> Value:
        with lock:
            if problem not in cache:
                cache[problem] = function(problem)
            return cache[problem]

    return cached
