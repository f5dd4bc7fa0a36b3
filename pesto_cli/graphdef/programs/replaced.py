"""Methods of TensorFlow's classes, replaced for a while: how an unmodified program is reached."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def replaced(owner: type, **methods: Callable[..., Any]) -> Iterator[None]:
    """Give a class other methods for as long as the context lasts."""
    before = {name: getattr(owner, name) for name in methods}
    for name, method in methods.items():
        setattr(owner, name, method)
    try:
        yield
    finally:
        for name, method in before.items():
            setattr(owner, name, method)
