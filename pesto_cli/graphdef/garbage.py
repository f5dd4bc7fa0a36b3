"""Python's garbage collector, kept from going through a large graph again and again."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

NEVER = 2**31 - 1


@contextmanager
def young_garbage_only() -> Iterator[None]:
    """Have no full collections, in the whole process, while a large graph is made or read.

    A full collection visits every object that there is, and comes each time that their number has
    grown by a quarter. Nearly all objects of a graph stay, so that it finds nothing. Cycles of new
    objects are collected as before. May also decorate a function.
    """
    young, middle, _ = before = gc.get_threshold()
    gc.set_threshold(young, middle, NEVER)
    try:
        yield
    finally:
        gc.set_threshold(*before)
