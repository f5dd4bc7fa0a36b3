"""The messages between the parent and the client process, which are pickled."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pesto_cli.cluster.backend import Kind
from pesto_cli.data.machine import Machine


@dataclass(frozen=True)
class Start:
    """The first request: open this cluster within `limit_s` seconds."""

    kind: Kind
    limit_s: float


@dataclass(frozen=True)
class Request:
    """A request to call a function with the connection and these arguments.

    max_input_bytes: size limit of the files that the function reads.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    max_input_bytes: int


@dataclass(frozen=True)
class Up:
    """The reply to `Start`: the cluster is open and has this machine."""

    machine: Machine


@dataclass(frozen=True)
class Returned:
    """The result of the called function."""

    value: Any


@dataclass(frozen=True)
class Raised:
    """The error of the called function; the client is ready for another call."""

    error: Exception


@dataclass(frozen=True)
class Lost:
    """A process of the cluster has ended, and the client ends too.

    words: the error message: which process, how it ended, and the remedy.
    """

    words: str


Reply = Up | Returned | Raised | Lost
