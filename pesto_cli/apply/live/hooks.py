"""Observe and change how a program opens its v1 sessions and runs them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from pesto_cli.errors import PestoError
from pesto_cli.graphdef.programs.replaced import replaced
from pesto_cli.graphdef.programs.run import ProgramStopped
from pesto_cli.graphdef.programs.session_runs import Proceed, SessionRun, intercepted_runs
from pesto_cli.graphdef.tensorflow import tensorflow


class Stopped(Protocol):
    """A program that may have been stopped. failure: the reason, or None."""

    failure: PestoError | None


class Hooks(Stopped, Protocol):
    """What is called for the sessions of a program."""

    def session_arguments(self, target: Any, graph: Any, config: Any) -> tuple[Any, Any, Any]:
        """Return the arguments with which a session is constructed."""

    def place_before_run(self, session: Any) -> None:
        """Change the graph of a session that is about to run, if ops have been added to it."""

    def around(self, run: SessionRun, proceed: Proceed) -> list[Any]:
        """Execute a run; return the fetched values."""


@contextmanager
def hooked(program: Hooks) -> Iterator[None]:
    """Call a program's hooks for all v1 sessions within the context.

    Raises the failure of the program, if it was stopped for one.
    """
    tensorflow()
    from tensorflow.python.client.session import BaseSession

    extend, init = BaseSession._extend_graph, BaseSession.__init__

    def extend_graph(self: Any) -> None:
        program.place_before_run(self)
        extend(self)

    def init_session(self: Any, target: Any = "", graph: Any = None, config: Any = None) -> None:
        init(self, *program.session_arguments(target, graph, config))

    with (
        raising_failure(program),
        replaced(BaseSession, _extend_graph=extend_graph, __init__=init_session),
        intercepted_runs(program.around),
    ):
        yield


@contextmanager
def raising_failure(stopped: Stopped) -> Iterator[None]:
    """Raise the failure for which the program was stopped within the context."""
    try:
        yield
    except ProgramStopped:
        if stopped.failure is None:
            raise
    if stopped.failure is not None:
        raise stopped.failure
