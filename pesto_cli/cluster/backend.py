"""The interface of the kinds of cluster, which the client process opens; each has its own file."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NoReturn, Protocol, Self

from pesto_cli.cluster.connection import Connection
from pesto_cli.data.machine import Machine


@dataclass(frozen=True)
class Opened:
    """An open cluster in its client process.

    check: is called when TensorFlow has failed in a call; it calls `on_loss` if a process or host
        of the cluster is gone.
    """

    connection: Connection
    machine: Machine
    check: Callable[[], None]


class Kind(Protocol):
    """A validated `--machine`. It is pickled and sent to the client process, which opens it."""

    @property
    def environ(self) -> Mapping[str, str]:
        """Environment variables that the client process starts with."""

    @staticmethod
    def recognises(spec: str) -> bool:
        """Whether a `--machine` is of this kind; it may contain a mistake."""

    @classmethod
    def parse(cls, spec: str, *, open_ports: bool) -> Self:
        """Parse and validate a `--machine` of this kind.

        Raises:
            BadInputError: it contains a mistake.
        """

    def open(self, limit_s: float, on_loss: Callable[[str], NoReturn]) -> Opened:
        """Start or reach the devices within a time limit.

        on_loss: is called, from any thread, with an error message when a process or host of the
            cluster is gone.

        Raises:
            EnvironmentFailedError: a server or device does not exist, start or answer.
        """
