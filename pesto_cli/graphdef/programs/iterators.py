"""Find the batch shapes of the data sets in a program's step, and how iterators are initialised."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pesto_cli.errors import BadInputError
from pesto_cli.graphdef.initial_values import EMBEDDED_BYTES
from pesto_cli.graphdef.programs.session_runs import Proceed, SessionRun, needed_operations
from pesto_cli.graphdef.tensorflow import tensorflow


@dataclass(frozen=True)
class IteratorStart:
    """The operations that initialise the iterators of a step.

    operations: names of these operations.
    constants: name of a placeholder -> the array that it was fed when they ran.
    """

    operations: list[str] = field(default_factory=list)
    constants: dict[str, Any] = field(default_factory=dict)


def batch_shapes(
    run: SessionRun, needed: Mapping[str, Any], proceed: Proceed, what: str
) -> dict[str, list[tuple[int, ...]]]:
    """Return the shapes of one batch, by name of each `GetNext` in a run that has open shapes.

    The batch is consumed, so use this only for a program that is about to end.

    needed: the operations of the run, by name. what: names the program in errors. Raises
    BadInputError if there is no batch.
    """
    tf = tensorflow()
    shapes = {}
    for name, operation in needed.items():
        is_open = any(not tensor.shape.is_fully_defined() for tensor in operation.outputs)
        if operation.type == "IteratorGetNext" and is_open:
            try:
                batch = proceed(
                    SessionRun(run.session, [], list(operation.outputs), run.feeds), is_extra=True
                )
            except tf.errors.OpError as error:
                raise BadInputError(
                    f"{what}: {name!r} has no batch left, but one was expected, to read its sizes:"
                    f" {error.message.splitlines()[0]}"
                ) from error
            shapes[name] = [np.shape(part) for part in batch]
    return shapes


def iterator_start(
    needed: Mapping[str, Any], earlier: Sequence[SessionRun], what: str
) -> IteratorStart:
    """Return how earlier runs initialised the iterators of a step; the latest run counts.

    needed: the operations of the step, by name. what: names the program in errors.

    Raises BadInputError if these runs were fed more than EMBEDDED_BYTES.
    """
    makers: dict[str, tuple[str, dict[str, Any]]] = {}
    for run in earlier:
        for name, operation in needed_operations(run).items():
            if operation.type == "MakeIterator" and operation.inputs[1].op.name in needed:
                makers[operation.inputs[1].op.name] = name, _given(operation, run)
    start = IteratorStart()
    for name, given in makers.values():
        start.operations.append(name)
        start.constants.update(given)
    num_bytes = sum(value.nbytes for value in start.constants.values())
    if num_bytes > EMBEDDED_BYTES:
        raise BadInputError(
            f"{what}: iterators are initialised with {num_bytes // 2**20} MiB fed through"
            f" {', '.join(map(repr, start.constants))}, where at most {EMBEDDED_BYTES // 2**20}"
            " were expected, because the graph stores this data. Read the data from files."
        )
    return start


def hold_constants(meta: Any, constants: Mapping[str, Any]) -> None:
    """Replace placeholders of a MetaGraphDef by constants, in place. constants: name -> array."""
    tf = tensorflow()
    for node in meta.graph_def.node:
        if node.name in constants:
            node.op = "Const"
            dtype = tf.as_dtype(node.attr["dtype"].type)
            node.attr.pop("shape", None)
            node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(constants[node.name], dtype))


def _given(operation: Any, run: SessionRun) -> dict[str, Any]:
    """Return the arrays that a run fed to the placeholders that an operation needs, by name."""
    needs = needed_operations(replace(run, targets=[operation], fetches=[], feeds={}))
    given = {reference.deref().op.name: value for reference, value in run.feeds.items()}
    return {name: np.asarray(value) for name, value in given.items() if name in needs}
