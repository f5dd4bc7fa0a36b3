"""What the client process opens: one of the kinds of cluster, by its own file."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NoReturn, Protocol, Self

from pesto_cli.cluster.connection import Connection
from pesto_cli.data.machine import Machine


@dataclass(frozen=True)
class Opened:
    """A cluster that answers, as its client process sees it.

    check: called when TensorFlow has failed in a call; calls `on_loss` if a part is gone.
    """

    connection: Connection
    machine: Machine
    check: Callable[[], None]


class Kind(Protocol):
    """What a `--machine` stands for, checked; it travels to the client process, which opens it."""

    @property
    def environ(self) -> Mapping[str, str]:
        """Variables that the process starts with."""

    @staticmethod
    def recognises(spec: str) -> bool:
        """Whether a `--machine` is of this kind, if perhaps with a mistake in it."""

    @classmethod
    def parse(cls, spec: str, *, open_ports: bool) -> Self:
        """What it stands for.

        Raises:
            BadInputError: there is a mistake in it.
        """

    def open(self, limit_s: float, on_loss: Callable[[str], NoReturn]) -> Opened:
        """Start or reach the devices within a time limit.

        `on_loss` is called, from any thread, with what is to be said when a part is gone.

        Raises:
            EnvironmentFailedError: something does not start or answer, or does not exist.
        """
