"""What a step is called with: the structure of specs that a script returns beside its step.

Structures are those of `tf.nest`. A leaf is a tf.TypeSpec, or an array or tensor, of which only
shape and type count.
"""

import inspect
from collections.abc import Mapping
from typing import Any

from pesto_cli.errors import BadInputError
from pesto_cli.graphdef.tensorflow import tensorflow

Call = tuple[tuple[Any, ...], dict[str, Any]]
"""Positional and keyword arguments."""


def fit_data(given: Any, what: str) -> Any:
    """Return what `fit` would hand to a Keras model's `train_step`, as specs.

    given: a list holds the arguments of `fit` (`[x]`, `[x, y]` or `[x, y, sample_weight]`), packed
        as by `keras.utils.pack_x_y_sample_weight`. A data set stands for its elements. Any other
        structure is the data itself.

    Raises BadInputError where a leaf is no spec.
    """
    tf = tensorflow()
    if isinstance(given, tf.data.Dataset):
        return given.element_spec
    data = tf.nest.map_structure(lambda leaf: _spec(leaf, what), given)
    for leaf in tf.nest.flatten(data):
        if not isinstance(leaf, tf.TypeSpec | None):
            raise BadInputError(
                f"{what}: the data of the model holds {_shown(leaf)}, where a tf.TensorSpec was"
                " expected: tf.TensorSpec([32, 10], tf.float32), or a tuple, list or dict of these."
            )
    if not isinstance(given, list):
        return data
    # A list of inputs alone stays wrapped: `train_step` would take it for inputs and targets.
    return data[0] if len(data) == 1 and not isinstance(data[0], list | tuple) else tuple(data)


def call_arguments(function: Any, given: Any, what: str) -> Call:
    """Return the arguments for which a tf.function is traced.

    given: a tuple or list holds the positional arguments, a dict those by keyword. Where the
        function does not take these, the structure as a whole is its only argument. Leaves that
        are neither specs nor arrays are passed as the Python values that they are.

    Raises BadInputError where the function takes neither.
    """
    signature = inspect.signature(function.python_function)
    specs = tensorflow().nest.map_structure(lambda leaf: _spec(leaf, what), given)
    specs = tuple(specs) if isinstance(specs, list) else specs
    forms: list[Call] = [((specs,), {})]
    if isinstance(specs, tuple):
        forms.insert(0, (specs, {}))
    elif isinstance(specs, Mapping) and all(isinstance(name, str) for name in specs):
        forms.insert(0, ((), dict(specs)))
    for args, kwargs in forms:
        if _takes(signature, args, kwargs):
            return args, kwargs
    raise BadInputError(
        f"{what}: the tf.function takes {signature}, but was given {_shown(given)}. Return with it"
        " a spec for each argument: a tuple of tf.TensorSpec, or a dict by argument name."
    )


def _takes(signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def _spec(given: Any, what: str) -> Any:
    """Return the spec of an array, a tensor or a symbolic tensor of Keras; else what is given."""
    tf = tensorflow()
    if isinstance(given, tf.TypeSpec) or not (hasattr(given, "shape") and hasattr(given, "dtype")):
        return given
    try:
        return tf.type_spec_from_value(given)
    except TypeError:
        pass
    try:
        return tf.TensorSpec(given.shape, given.dtype, name=getattr(given, "name", None))
    except (TypeError, ValueError) as error:
        raise BadInputError(
            f"{what}: {_shown(given)} has no shape and type of a tensor ({error}); a tf.TensorSpec"
            " was expected."
        ) from error


def _shown(given: Any) -> str:
    if isinstance(given, list | tuple):
        return f"{len(given)} of them" if given else "none"
    if isinstance(given, Mapping):
        return f"a dict with {', '.join(map(repr, given)) or 'nothing in it'}"
    return f"{type(given).__name__} {given!r}"
