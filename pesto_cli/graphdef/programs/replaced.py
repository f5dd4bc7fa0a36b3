"""Replace functions of TensorFlow for a while, to observe an unmodified program."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def replaced(owner: Any, **functions: Any) -> Iterator[None]:
    """Replace methods of a class or functions of a module, by name, until the context ends."""
    before = {name: vars(owner).get(name) for name in functions}  # None if inherited
    for name, function in functions.items():
        setattr(owner, name, function)
    try:
        yield
    finally:
        for name, own in before.items():
            if own is None:
                delattr(owner, name)
            else:
                setattr(owner, name, own)
