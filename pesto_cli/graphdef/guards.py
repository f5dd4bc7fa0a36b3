"""Reads of reference variables (VariableV2) that a conditional makes only where they have a value.

An initial value that depends on another variable is such a conditional: the variable's value if it
is initialised, else its initial value (`initialized_value`, ExponentialMovingAverage). In control
flow v2 it is an op that takes the variable's value as an input, before it takes a branch, and fails
if there is none yet. By itself, TensorFlow fails too, or not, as the initialisers happen to run.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from pesto_cli.graphdef.tensorflow import tensorflow

IFS = ("If", "StatelessIf")


def guard_reads(graph: Any, left: Collection[str]) -> None:
    """Have conditionals of a tf.Graph that test for a variable's value take it only then, in place.

    left: names of operations that are left as they are.
    """
    guarded = [
        (operation, place)
        for operation in graph.get_operations()
        if operation.type in IFS and operation.name not in left
        for place in _tested(operation)
    ]
    if guarded:
        tf = tensorflow()
        with _unlocked(graph), graph.as_default(), tf.control_dependencies(None), tf.device(None):
            for operation, place in guarded:
                value = _value_where_true(operation.inputs[place], operation.inputs[0])
                operation._update_input(place, value)


def _tested(conditional: Any) -> list[int]:
    """Inputs of a conditional that are the variable whose value it tests for."""
    test = conditional.inputs[0].op
    if test.type != "IsVariableInitialized":
        return []
    tested = test.inputs[0].name
    return [place for place, tensor in enumerate(conditional.inputs) if tensor.name == tested]


def _value_where_true(variable: Any, test: Any) -> Any:
    """Return a variable's value where the test holds, else an empty tensor, which nothing uses."""
    tf = tensorflow()
    empty = tf.zeros([0], variable.dtype.base_dtype, name="guard/empty")
    nothing = tf.raw_ops.Switch(data=empty, pred=test, name="guard/nothing").output_false
    there = tf.raw_ops.RefSwitch(data=variable, pred=test, name="guard/there").output_true
    read = tf.identity(there, name="guard/read")
    return tf.raw_ops.Merge(inputs=[nothing, read], name="guard/value").output


@contextmanager
def _unlocked(graph: Any) -> Iterator[None]:
    """Let operations be added to a graph that a program has finalised."""
    finalized = graph.finalized
    graph._unsafe_unfinalize()
    yield
    if finalized:
        graph.finalize()
