"""What the parent and the client process send each other, pickled."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pesto_cli.cluster.backend import Kind
from pesto_cli.data.machine import Machine


@dataclass(frozen=True)
class Start:
    """First request: open this cluster within so many seconds."""

    kind: Kind
    limit_s: float


@dataclass(frozen=True)
class Request:
    """Call a function with the connection and these arguments.

    max_input_bytes: of the files that it reads.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    max_input_bytes: int


@dataclass(frozen=True)
class Up:
    """Returned to `Start`."""

    machine: Machine


@dataclass(frozen=True)
class Returned:
    """What the called function returned."""

    value: Any


@dataclass(frozen=True)
class Raised:
    """What the called function raised; the client is ready for another call."""

    error: Exception


@dataclass(frozen=True)
class Lost:
    """A part of the cluster is gone, and the client with it. words: which, how, a remedy."""

    words: str


Reply = Up | Returned | Raised | Lost
