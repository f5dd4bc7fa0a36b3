"""Replace methods of TensorFlow's classes for a while, to observe an unmodified program."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def replaced(owner: type, **methods: Callable[..., Any]) -> Iterator[None]:
    """Replace methods of a class, by name, until the context ends."""
    before = {name: getattr(owner, name) for name in methods}
    for name, method in methods.items():
        setattr(owner, name, method)
    try:
        yield
    finally:
        for name, method in before.items():
            setattr(owner, name, method)
