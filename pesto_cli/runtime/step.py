"""A training step in an open session: initialise it, feed it, and run it any number of times."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pesto_cli.apply import session_config
from pesto_cli.cluster import Connection
from pesto_cli.errors import BadInputError, EnvironmentFailedError, PestoError
from pesto_cli.graphdef.failures import reason
from pesto_cli.graphdef.fetches import fetch_names, init_names
from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.runtime.feeds import Batch, batches


@dataclass(frozen=True)
class Ran:
    """One run of a step. loss: the first fetched floating-point scalar; None if there is none."""

    us: float
    loss: float | None


class Step:
    """A graph in a session.

    Fetches are run as ops, so that no large tensor is sent to the client. Only floating-point
    scalars, such as losses, are fetched as values; they are too small to take time.
    """

    def __init__(
        self, session: Any, fetches: Sequence[Any], feeds: Iterator[Batch], saver: Any = None
    ) -> None:
        self._session, self._feeds, self._saver = session, feeds, saver
        tf = tensorflow()
        is_loss = [isinstance(fetch, tf.Tensor) and _is_loss(fetch) for fetch in fetches]
        self._losses = [fetch for fetch, loss in zip(fetches, is_loss, strict=True) if loss]
        self._ops = [
            getattr(fetch, "op", fetch)
            for fetch, loss in zip(fetches, is_loss, strict=True)
            if not loss
        ]

    def run(self) -> Ran:
        """Run the step once, without a trace. Its batch is made before the clock starts."""
        return self._run()

    def traced(self) -> Any:
        """Run the step once with a full trace, and return its RunMetadata."""
        tf1 = tensorflow().compat.v1
        metadata = tf1.RunMetadata()
        options = tf1.RunOptions(trace_level=tf1.RunOptions.FULL_TRACE)
        self._run(options=options, run_metadata=metadata)
        return metadata

    def save(self, prefix: str) -> None:
        """Write a checkpoint of all variables with the saver of the graph.

        Raises:
            BadInputError: TensorFlow needs the name itself, or cannot write there.
        """
        with _explained(f"write checkpoint {prefix!r}"):
            try:
                self._known_saver().save(self._session, prefix, write_meta_graph=False)
            except ValueError as error:
                raise BadInputError(
                    f"checkpoint {prefix!r} cannot be written: {reason(error)}; another name was "
                    "expected, such as model/step."
                ) from error

    def restore(self, prefix: str) -> None:
        """Read all variables from a checkpoint.

        Raises:
            BadInputError: it does not exist, or is of another graph.
        """
        with _explained(f"restore checkpoint {prefix!r}"):
            try:
                self._known_saver().restore(self._session, prefix)
            except ValueError as error:  # there is no such checkpoint
                raise BadInputError(
                    f"checkpoint {prefix!r} cannot be restored: {reason(error)} The prefix of a "
                    "checkpoint was expected, without .index."
                ) from error

    def _known_saver(self) -> Any:
        if self._saver is None:
            raise BadInputError(
                "the graph has no saver, so its variables cannot be saved or restored; a graph "
                "that pesto export wrote was expected: export it again."
            )
        return self._saver

    def _run(self, **tracing: Any) -> Ran:
        graph = self._session.graph
        batch = next(self._feeds, None)
        if batch is None:
            raise BadInputError(
                "the source of the feeds failed in an earlier step, and gives no more batches; "
                "mend it, and begin again."
            )
        feeds = {graph.get_tensor_by_name(f"{name}:0"): batch[name] for name in batch}
        with _explained():
            began = time.perf_counter()
            try:
                losses, _ = self._session.run((self._losses, self._ops), feeds, **tracing)
            except (ValueError, TypeError) as error:
                raise BadInputError(
                    f"TensorFlow does not accept the feeds: {reason(error)}; export the graph "
                    "again, with the shapes of its placeholders (--feed NAME=SHAPE)."
                ) from error
            seconds = time.perf_counter() - began
        return Ran(seconds * 1e6, float(losses[0]) if losses else None)


@contextmanager
def opened(connection: Connection, meta: Any, feeds: str | None = None) -> Iterator[Step]:
    """Open a session for a MetaGraphDef, initialise it, and yield its step.

    feeds: a source of batches, see `runtime.feeds`.

    Raises:
        BadInputError: TensorFlow cannot import or run the graph, or the feeds do not fit.
        EnvironmentFailedError: a device has too little memory, or is gone.
    """
    given = batches(meta, feeds)
    with tensorflow().Graph().as_default() as graph, _explained():
        saver = _import(meta)
        with connection.session(graph, session_config()) as session:
            _initialise(session, _initialiser(meta, graph))
            fetches = [graph.as_graph_element(name) for name in fetch_names(meta)]
            yield Step(session, fetches, given, saver)


def _import(meta: Any) -> Any:
    """Import a graph into the default graph; return its saver, None if it has none."""
    try:
        return tensorflow().compat.v1.train.import_meta_graph(meta)
    except Exception as error:  # TensorFlow raises many types of errors for a wrong graph
        raise BadInputError(
            f"TensorFlow cannot import the graph: {reason(error)} A graph written by pesto export "
            "or pesto apply was expected."
        ) from error


def _initialise(session: Any, initialiser: Any) -> None:
    try:
        session.run(initialiser)
    except tensorflow().errors.FailedPreconditionError as error:
        raise BadInputError(
            f"TensorFlow cannot initialise the graph: {reason(error)}; if an initial value depends "
            "on another variable, it was expected to use that variable's initialized_value()."
        ) from error


def _initialiser(meta: Any, graph: Any) -> Any:
    """Return the init ops of the graph, else ops that initialise all its variables and tables."""
    tf1 = tensorflow().compat.v1
    named = init_names(meta)
    if named:
        return [graph.as_graph_element(name) for name in named]
    return [
        tf1.variables_initializer([*tf1.global_variables(), *tf1.local_variables()]),
        tf1.tables_initializer(),
    ]


def _is_loss(tensor: Any) -> bool:
    return bool(tensor.dtype.is_floating and tensor.shape.rank == 0)


@contextmanager
def _explained(what: str = "run the step") -> Iterator[None]:
    """Convert TensorFlow's errors to pesto's; what: what TensorFlow was asked to do."""
    errors = tensorflow().errors
    try:
        yield
    except PestoError:
        raise
    except (errors.ResourceExhaustedError, errors.UnavailableError, errors.AbortedError) as error:
        raise EnvironmentFailedError(f"the devices could not {what}: {reason(error)}") from error
    except errors.OpError as error:
        raise BadInputError(f"TensorFlow cannot {what}: {reason(error)}") from error
