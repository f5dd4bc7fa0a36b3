"""Guard conditionals that read a reference variable (VariableV2) only if it is initialised.

The initial value of one variable can depend on another one, by a conditional: the other variable's
value if that is initialised, else its initial value (`initialized_value`,
ExponentialMovingAverage). In control flow v2 this conditional is one op with the variable's value
as an input. The op reads its inputs before it chooses a branch, so it fails if the variable has no
value yet. Plain TensorFlow has this problem, too: there it depends on the order in which the
initialisers happen to run.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from pesto_cli.graphdef.tensorflow import tensorflow

IFS = ("If", "StatelessIf")


def guard_reads(graph: Any, left: Collection[str]) -> None:
    """Rewire conditionals that test whether a variable is initialised, in place.

    Afterwards they read the variable only if it is initialised.

    graph: a tf.Graph. left: names of operations that are not changed.
    """
    guarded = [
        (operation, place)
        for operation in graph.get_operations()
        if operation.type in IFS and operation.name not in left
        for place in _tested_inputs(operation)
    ]
    if guarded:
        tf = tensorflow()
        with _unlocked(graph), graph.as_default(), tf.control_dependencies(None), tf.device(None):
            for operation, place in guarded:
                value = _value_where_true(operation.inputs[place], operation.inputs[0])
                operation._update_input(place, value)


def _tested_inputs(conditional: Any) -> list[int]:
    """Return the slots of a conditional's inputs that are the variable that its predicate tests."""
    test = conditional.inputs[0].op
    if test.type != "IsVariableInitialized":
        return []
    tested = test.inputs[0].name
    return [place for place, tensor in enumerate(conditional.inputs) if tensor.name == tested]


def _value_where_true(variable: Any, test: Any) -> Any:
    """Return a tensor: the variable's value if `test` is true, else an empty unused tensor."""
    tf = tensorflow()
    empty = tf.zeros([0], variable.dtype.base_dtype, name="guard/empty")
    nothing = tf.raw_ops.Switch(data=empty, pred=test, name="guard/nothing").output_false
    there = tf.raw_ops.RefSwitch(data=variable, pred=test, name="guard/there").output_true
    read = tf.identity(there, name="guard/read")
    return tf.raw_ops.Merge(inputs=[nothing, read], name="guard/value").output


@contextmanager
def _unlocked(graph: Any) -> Iterator[None]:
    """Allow operations to be added within the context, even if the graph is finalised."""
    finalized = graph.finalized
    graph._unsafe_unfinalize()
    yield
    if finalized:
        graph.finalize()
