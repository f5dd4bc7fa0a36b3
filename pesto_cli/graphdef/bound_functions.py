"""Methods that are a `tf.function`, kept with the object that they belong to."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pesto_cli.graphdef.programs.replaced import replaced
from pesto_cli.graphdef.tensorflow import tensorflow


@contextmanager
def objects_kept() -> Iterator[None]:
    """Keep the object of each method that is taken, for as long as the context lasts.

    TensorFlow binds a method only weakly: after `return Trainer().step` the trace would find None
    in place of `self`.
    """
    tensorflow()
    from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function

    kept, bind = [], Function.__get__

    def bound(function: Any, instance: Any, owner: Any) -> Any:
        kept.append(instance)
        return bind(function, instance, owner)

    with replaced(Function, __get__=bound):
        yield
