"""What a tuning tells its caller while it works."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from pesto_cli.tuning.clock import Phase


@dataclass(frozen=True)
class Watch:
    """What is told to the caller.

    during: returns a context for an activity of a phase, which a text describes.
    note: receives the reason why a form or a candidate was left out.
    """

    during: Callable[[Phase, str], AbstractContextManager[Any]] = lambda phase, text: nullcontext()
    note: Callable[[str], None] = lambda text: None
