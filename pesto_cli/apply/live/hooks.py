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

    def as_built(self, graph: Any, graph_def: Any) -> Any:
        """Return the GraphDef of a graph, which the program exports, as the program has built it.

        graph_def: what TensorFlow returns; it may be changed.
        """

    def around(self, run: SessionRun, proceed: Proceed) -> list[Any]:
        """Execute a run; return the fetched values."""


@contextmanager
def hooked(program: Hooks) -> Iterator[None]:
    """Call a program's hooks for all v1 sessions within the context.

    Raises the failure of the program, if it was stopped for one.
    """
    graph_type = tensorflow().Graph
    from tensorflow.python.client.session import BaseSession

    extend, init = BaseSession._extend_graph, BaseSession.__init__
    as_graph_def = graph_type.as_graph_def

    def extend_graph(self: Any) -> None:
        program.place_before_run(self)
        extend(self)

    def init_session(self: Any, target: Any = "", graph: Any = None, config: Any = None) -> None:
        init(self, *program.session_arguments(target, graph, config))

    def exported(self: Any, *arguments: Any, **options: Any) -> Any:
        return program.as_built(self, as_graph_def(self, *arguments, **options))

    with (
        raising_failure(program),
        replaced(BaseSession, _extend_graph=extend_graph, __init__=init_session),
        replaced(graph_type, as_graph_def=exported),
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
