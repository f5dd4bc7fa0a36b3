"""Keep the objects alive whose methods are a `tf.function`."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pesto_cli.graphdef.programs.replaced import replaced
from pesto_cli.graphdef.tensorflow import tensorflow


@contextmanager
def objects_kept_alive() -> Iterator[None]:
    """Keep every object alive whose `tf.function` method is accessed, until the context ends.

    TensorFlow refers to the object by a weak reference only: after `return Trainer().step`, `self`
    would be None when the method is traced.
    """
    tensorflow()
    from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function

    kept, bind = [], Function.__get__

    def bound(function: Any, instance: Any, owner: Any) -> Any:
        kept.append(instance)
        return bind(function, instance, owner)

    with replaced(Function, __get__=bound):
        yield
