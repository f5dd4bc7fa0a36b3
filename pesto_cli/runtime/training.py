"""A training: a step whose session stays open from one call of the client process to the next."""

from contextlib import ExitStack
from itertools import count
from typing import Any

from pesto_cli.cluster import Connection
from pesto_cli.errors import BadInputError
from pesto_cli.runtime.step import Ran, Step, opened

_numbers = count()


def begin(connection: Connection, meta: Any, feeds: str | None) -> str:
    """Open a session for a MetaGraphDef and initialise it; see `opened`.

    Return the key of the training in `Connection.kept`, which the other functions take.
    """
    key = f"training {next(_numbers)}"
    with ExitStack() as stack:
        step = stack.enter_context(opened(connection, meta, feeds))
        connection.kept[key] = step, stack.pop_all()
    return key


def train(connection: Connection, key: str, num_steps: int) -> list[Ran]:
    """Run steps, one after the other."""
    step = _step(connection, key)
    return [step.run() for _ in range(num_steps)]


def save(connection: Connection, key: str, prefix: str) -> None:
    """Write a checkpoint; see `Step.save`."""
    _step(connection, key).save(prefix)


def restore(connection: Connection, key: str, prefix: str) -> None:
    """Read a checkpoint; see `Step.restore`."""
    _step(connection, key).restore(prefix)


def end(connection: Connection, key: str) -> None:
    """Close the session."""
    _, stack = connection.kept.pop(key)
    stack.close()


def _step(connection: Connection, key: str) -> Step:
    if key not in connection.kept:
        raise BadInputError(
            "the runner has ended, and its session is closed; use it inside its `with` block."
        )
    step: Step = connection.kept[key][0]
    return step
