"""A training: a step whose session stays open from one call of the client process to the next."""

from contextlib import ExitStack
from typing import Any

from pesto_cli.cluster import Connection
from pesto_cli.runtime.step import Ran, Step, opened

# The key of the open step in `Connection.kept`.
TRAINING = "training"


def begin(connection: Connection, meta: Any, feeds: str | None) -> None:
    """Open a session for a MetaGraphDef and initialise it; see `opened`."""
    with ExitStack() as stack:
        step = stack.enter_context(opened(connection, meta, feeds))
        connection.kept[TRAINING] = step, stack.pop_all()


def train(connection: Connection, num_steps: int) -> list[Ran]:
    """Run steps, one after the other."""
    step = _step(connection)
    return [step.run() for _ in range(num_steps)]


def save(connection: Connection, prefix: str) -> None:
    """Write a checkpoint; see `Step.save`."""
    _step(connection).save(prefix)


def restore(connection: Connection, prefix: str) -> None:
    """Read a checkpoint; see `Step.restore`."""
    _step(connection).restore(prefix)


def end(connection: Connection) -> None:
    """Close the session."""
    _, stack = connection.kept.pop(TRAINING)
    stack.close()


def _step(connection: Connection) -> Step:
    step: Step = connection.kept[TRAINING][0]
    return step
