"""Intercept the runs of a program's v1 sessions."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

from pesto_cli.errors import BadInputError
from pesto_cli.graphdef.programs.replaced import replaced
from pesto_cli.graphdef.tensorflow import tensorflow


@dataclass(frozen=True, eq=False)
class SessionRun:
    """One run of a session, with resolved names.

    targets: operations to run.
    fetches: tensors to return.
    feeds: reference of a tensor (`ref()`) -> numpy array.
    """

    session: Any
    targets: Sequence[Any]
    fetches: Sequence[Any]
    feeds: Mapping[Any, Any]

    @property
    def graph(self) -> Any:
        """The session's graph."""
        return self.session.graph

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the operations to run, then of the tensors to return."""
        return tuple(item.name for item in (*self.targets, *self.fetches))

    @property
    def signature(self) -> tuple[object, ...]:
        """A key that is equal for runs of one graph that differ only in the values of feeds."""
        return (id(self.graph), self.names, frozenset(self.feeds))


Proceed = Callable[..., list[Any]]
"""`proceed(run, traced=None, is_extra=False)` executes the intercepted run or another one, of any
session, and returns the fetched values. `traced`: a RunMetadata to be filled with a full trace.
`is_extra`: whether it is an additional run, without the options and metadata of the program's."""
Around = Callable[[SessionRun, Proceed], list[Any]]
"""The function that is called in place of every run."""


@contextmanager
def intercepted_runs(around: Around) -> Iterator[None]:
    """Call `around` in place of every run of every v1 session, in all threads, within the context.

    This covers `run`, the results of `make_callable`, and everything built on them, such as the
    sessions of tf.compat.v1.train. Partial runs raise BadInputError, because their parts become
    known only one after the other.
    """
    tensorflow()
    from tensorflow.python.client.session import BaseSession

    original = BaseSession._do_run

    def do_run(
        self: Any,
        handle: Any,
        targets: Sequence[Any],
        fetches: Sequence[Any],
        feeds: Mapping[Any, Any],
        options: Any,
        metadata: Any,
    ) -> Any:
        def proceed(run: SessionRun, traced: Any = None, is_extra: bool = False) -> list[Any]:
            made = partial(original, run.session, None, run.targets, run.fetches, run.feeds)
            if is_extra:
                return list(made(None, None))
            if traced is None:
                return list(made(options, metadata))
            return _with_trace(made, options, metadata, traced)

        return around(SessionRun(self, targets, fetches, feeds), proceed)

    with replaced(
        BaseSession,
        _do_run=do_run,
        make_callable=_callable_by_run,
        partial_run_setup=_refused_partial_run,
    ):
        yield


Waits = Mapping[str, Collection[str]]
"""Control inputs: name of an operation -> names of the operations that it waits for."""


def needed_operations(run: SessionRun, without: Waits = MappingProxyType({})) -> dict[str, Any]:
    """Return the operations that a run executes, by name; a fed tensor needs no operation.

    without: control inputs to ignore.
    """
    return _needed([*run.targets, *_not_fed(run.fetches, run.feeds)], run.feeds, without)


def computing(tensors: Sequence[Any], feeds: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the operations that compute these tensors, by name; a fed tensor needs none."""
    return _needed(_not_fed(tensors, feeds), feeds, {})


def _needed(operations: Sequence[Any], feeds: Mapping[Any, Any], without: Waits) -> dict[str, Any]:
    needed: dict[str, Any] = {}
    waiting = list(operations)
    while waiting:
        operation = waiting.pop()
        if operation.name not in needed:
            needed[operation.name] = operation
            waiting += _not_fed(operation.inputs, feeds)
            ignored = without.get(operation.name, ())
            waiting += [source for source in operation.control_inputs if source.name not in ignored]
    return needed


def _not_fed(tensors: Sequence[Any], feeds: Mapping[Any, Any]) -> list[Any]:
    return [tensor.op for tensor in tensors if tensor.ref() not in feeds]


def _callable_by_run(
    self: Any, fetches: Any, feed_list: Sequence[Any] | None = None, accept_options: bool = False
) -> Callable[..., Any]:
    """Replace `BaseSession.make_callable`, whose callables would bypass `_do_run`."""
    del accept_options  # `run` always accepts options.

    def call(*values: Any, **options: Any) -> Any:
        return self.run(fetches, dict(zip(feed_list or (), values, strict=True)), **options)

    return call


def _refused_partial_run(self: Any, fetches: Any, feeds: Any = None) -> None:
    del self, fetches, feeds
    raise BadInputError(
        "the script runs its graph in parts by Session.partial_run, where complete runs were"
        " expected: use Session.run."
    )


def _with_trace(
    made: Callable[[Any, Any], list[Any]], options: Any, metadata: Any, traced: Any
) -> list[Any]:
    """Execute a run with a full trace, which is added to `traced`.

    options, metadata: those of the program, or None.
    """
    from tensorflow.python.client import pywrap_tf_session as tf_session

    tf1 = tensorflow().compat.v1
    wanted = tf1.RunOptions() if options is None else _parsed(tf1.RunOptions(), options)
    wanted.trace_level = tf1.RunOptions.FULL_TRACE
    own_options = tf_session.TF_NewBufferFromString(wanted.SerializeToString())
    own_metadata = tf_session.TF_NewBuffer()
    try:
        values = made(own_options, metadata or own_metadata)
        _parsed(traced, metadata or own_metadata)
    finally:
        tf_session.TF_DeleteBuffer(own_metadata)
        tf_session.TF_DeleteBuffer(own_options)
    return list(values)


def _parsed(message: Any, buffer: Any) -> Any:
    from tensorflow.python.client import pywrap_tf_session as tf_session

    message.ParseFromString(tf_session.TF_GetBuffer(buffer))
    return message
