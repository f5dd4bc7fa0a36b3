"""`pesto export SCRIPT --capture`: get the graph of an unmodified program's training step.

The program runs as it would without pesto, until one of its sessions is about to run a training
step (see `training_step`), or a Keras model is about to train on a batch. The fetches and feeds of
this run are those of the step. The run itself does not take place, and the program ends there.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from pesto_cli.errors import BadInputError
from pesto_cli.graphdef.data_sets import TABLE_INITIALIZER
from pesto_cli.graphdef.export import flat_step
from pesto_cli.graphdef.fetches import INIT_OP, feed_names, node_name
from pesto_cli.graphdef.functions import arguments, function_graph
from pesto_cli.graphdef.keras_models import traced_on_batch
from pesto_cli.graphdef.programs.iterators import batch_shapes, hold_constants, iterator_start
from pesto_cli.graphdef.programs.keras_steps import Step, replaced_steps, require_single_steps
from pesto_cli.graphdef.programs.live_graphs import live_step
from pesto_cli.graphdef.programs.replaced import replaced
from pesto_cli.graphdef.programs.run import ProgramStopped, run_program
from pesto_cli.graphdef.programs.session_runs import (
    Proceed,
    SessionRun,
    intercepted_runs,
    needed_operations,
)
from pesto_cli.graphdef.programs.training_step import training_first, trains
from pesto_cli.graphdef.tensorflow import tensorflow

SHOWN_RUNS = 8


@dataclass(frozen=True, eq=False)
class Captured:
    """A program's training step.

    meta: the step in the form that `export` returns.
    feeds: node name of a placeholder -> the array that the program fed.
    is_of_model: whether it is the step of a Keras model, and not of a session.
    """

    meta: Any
    feeds: Mapping[str, Any]
    is_of_model: bool = False


def capture(
    path: Path,
    argv: Sequence[str] = (),
    *,
    fetches: Sequence[str] = (),
    optimize: bool = False,
    as_built: bool = False,
) -> Captured:
    """Run the script at `path` up to its first training step, and return this step.

    argv: the arguments of the script.
    fetches: names of ops (`train`) or tensors (`loss:0`). If given, the step is the first run that
        computes all of them, and they are fetched instead of the run's own fetches.
    optimize, as_built: as in `export`.

    Raises BadInputError when the script fails before its first training step, has none, or trains
    in a loop of its own without a session.
    """
    recording = _Recording(path, tuple(fetches))
    with (
        intercepted_runs(recording.around),
        replaced_steps(recording.take_batch),
        _no_eager_training(recording),
    ):
        try:
            run_program(path, argv)
        except BadInputError:
            if recording.step is None and recording.failure is None:
                raise
    if recording.step is None:
        raise recording.failure or recording.nothing_found()
    is_of_model = recording.step.is_of_model
    meta = flat_step(
        recording.step.meta,
        str(path),
        fetches=tuple(fetches) if is_of_model else (),
        optimize=optimize,
        as_built=as_built,
        whole_conditionals=not is_of_model,  # As in a live graph that is placed (`apply.live`).
    )
    feeds = {name: recording.step.feeds[name] for name in feed_names(meta)}
    return Captured(meta, feeds, is_of_model)


class _Recording:
    """The runs of one program so far, and its training step once it is found.

    model: the Keras model that has begun to train, or None.
    """

    def __init__(self, path: Path, fetches: tuple[str, ...]) -> None:
        self.step: Captured | None = None
        self.model: Any = None
        self.failure: BadInputError | None = None
        self.path, self._fetches = path, fetches
        self._other_runs: dict[tuple[object, ...], SessionRun] = {}
        self._lock = threading.Lock()

    def around(self, run: SessionRun, proceed: Proceed) -> list[Any]:
        """Execute a run, unless it is the training step or the training step was found before."""
        with self._lock:
            if self.step is not None or self.failure is not None:
                raise ProgramStopped
            if run.signature not in self._other_runs:
                if self._is_step(run):
                    self._take(run, proceed)
                self._other_runs[run.signature] = run
        return proceed(run)

    def take_batch(self, model: Any) -> Step:
        """Return a function that takes the step of a Keras model, and ends the program."""

        def take(batch: Any) -> NoReturn:
            self.model = model
            try:
                self.step = _captured_of_model(model, batch, str(self.path))
            except BadInputError as error:
                self.stop(error)
            raise ProgramStopped

        return take

    def stop(self, failure: BadInputError) -> NoReturn:
        """Record an error and end the program, which cannot handle the error."""
        self.failure = failure
        raise ProgramStopped

    def nothing_found(self) -> BadInputError:
        """Return the error for a program that ended without a training step."""
        if not self._other_runs:
            return BadInputError(
                f"{self.path}: the script ended without training, where `fit` of a Keras model or"
                " a TF1-style program (tf.compat.v1.Session) was expected."
                f" {_use_a_function(self.path)}"
            )
        wanted = "a run that computes " + " and ".join(self._fetches)
        seen = [", ".join(run.names) for run in self._other_runs.values()]
        more = f"; and {len(seen) - SHOWN_RUNS} others" if len(seen) > SHOWN_RUNS else ""
        return BadInputError(
            f"{self.path}: the script ended without"
            f" {wanted if self._fetches else 'a run that trains a trainable variable'}."
            f" It ran: {'; '.join(seen[:SHOWN_RUNS])}{more}. Name the train op: --fetch NAME"
        )

    def _is_step(self, run: SessionRun) -> bool:
        if not self._fetches:
            return trains(run)
        return {node_name(name) for name in self._fetches} <= needed_operations(run).keys()

    def _take(self, run: SessionRun, proceed: Proceed) -> NoReturn:
        try:
            self.step = _captured(
                run,
                self._fetches or training_first(run),
                [other for other in self._other_runs.values() if other.graph is run.graph],
                proceed,
                str(self.path),
            )
        except BadInputError as error:
            self.stop(error)
        raise ProgramStopped


def _captured(
    run: SessionRun,
    fetches: Sequence[str],
    earlier: Sequence[SessionRun],
    proceed: Proceed,
    what: str,
) -> Captured:
    needed = needed_operations(run)
    feeds = {}
    for reference, value in run.feeds.items():
        feeds[reference.deref().op.name] = np.asarray(value)
    meta = live_step(
        run.graph,
        fetches,
        {name: value.shape for name, value in feeds.items()},
        what,
        data_shapes=batch_shapes(run, needed, proceed, what),
    )
    # An init op of a Scaffold does not cover local variables, tables and iterators.
    meta.collection_def.pop(INIT_OP, None)
    start = iterator_start(needed, earlier, what)
    hold_constants(meta, start.constants)
    tables = meta.collection_def[TABLE_INITIALIZER].node_list.value
    tables.extend(name for name in start.operations if name not in tables)
    return Captured(meta, feeds)


def _captured_of_model(model: Any, batch: Any, what: str) -> Captured:
    require_single_steps(model, what)
    concrete = traced_on_batch(model, batch, what)
    tensors = tensorflow().nest.flatten(batch, expand_composites=True)
    values = [each for each in tensors if each is not None]
    names = [tensor.op.name for tensor in arguments(concrete)]
    feeds = {name: np.asarray(value) for name, value in zip(names, values, strict=True)}
    return Captured(function_graph(concrete, what), feeds, is_of_model=True)


@contextmanager
def _no_eager_training(recording: _Recording) -> Iterator[None]:
    """Stop a TF2 program when it starts to train: no session run would show it."""
    tf = tensorflow()
    enter = tf.GradientTape.__enter__

    def stop_if_eager(self: Any) -> Any:
        if recording.model is None and tf.compat.v1.executing_eagerly_outside_functions():
            path = recording.path
            recording.stop(
                BadInputError(
                    f"{path}: the script trains in a loop of its own, where `fit` of a Keras model"
                    " or a TF1-style program (tf.compat.v1.Session) was expected."
                    f" {_use_a_function(path)}"
                )
            )
        return enter(self)

    with replaced(tf.GradientTape, __enter__=stop_if_eager):
        yield


def _use_a_function(path: Path) -> str:
    return (
        "For a TF2 program, export a function that returns its compiled Keras model, or its"
        f" tf.function with the input specs: pesto export {path}:FUNCTION"
    )
