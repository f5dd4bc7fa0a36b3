"""Convert the specs that a script returns with its step to the arguments of the step.

Specs are a structure of `tf.nest`. A leaf is a tf.TypeSpec, or an array or tensor of which only
shape and type are used.
"""

import inspect
from collections.abc import Mapping
from typing import Any

from pesto_cli.errors import BadInputError
from pesto_cli.graphdef.tensorflow import tensorflow

Call = tuple[tuple[Any, ...], dict[str, Any]]
"""Positional and keyword arguments."""


def fit_data(given: Any, what: str) -> Any:
    """Return the specs of the data that `fit` would pass to a Keras model's `train_step`.

    given: a list contains the arguments of `fit` (`[x]`, `[x, y]` or `[x, y, sample_weight]`), and
        is packed as by `keras.utils.pack_x_y_sample_weight`. A `tf.data.Dataset` stands for the
        specs of its elements. Any other structure is the data itself.

    Raises BadInputError when a leaf is not a spec.
    """
    tf = tensorflow()
    if isinstance(given, tf.data.Dataset):
        return given.element_spec
    data = tf.nest.map_structure(lambda leaf: _spec(leaf, what), given)
    for leaf in tf.nest.flatten(data):
        if not isinstance(leaf, tf.TypeSpec | None):
            raise BadInputError(
                f"{what}: the data of the model contains {_shown(leaf)}, where a tf.TensorSpec was"
                " expected: tf.TensorSpec([32, 10], tf.float32), or a tuple, list or dict of them."
            )
    if not isinstance(given, list):
        return data
    # A single argument that is a list or tuple stays wrapped in a tuple: otherwise `train_step`
    # would unpack it as inputs and targets.
    return data[0] if len(data) == 1 and not isinstance(data[0], list | tuple) else tuple(data)


def call_arguments(function: Any, given: Any, what: str) -> Call:
    """Return the arguments with which to trace a tf.function.

    given: a tuple or list contains the positional arguments, a dict the keyword arguments. If they
        do not fit the function, the whole structure is passed as its only argument. Leaves that are
        neither specs nor arrays are passed unchanged, as Python values.

    Raises BadInputError when neither form fits the function.
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
        f"{what}: the tf.function has the parameters {signature}, but its specs are"
        f" {_shown(given)}. Next to the function, return one spec for each of its arguments: a"
        " tuple of tf.TensorSpec, or a dict by argument name."
    )


def _takes(signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def _spec(given: Any, what: str) -> Any:
    """Return the spec of an array, tensor or symbolic Keras tensor; other values unchanged."""
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
            f"{what}: {_shown(given)} does not have the shape and type of a tensor ({error}); a"
            " tf.TensorSpec was expected."
        ) from error


def _shown(given: Any) -> str:
    if isinstance(given, list | tuple):
        return f"a sequence of length {len(given)}" if given else "an empty sequence"
    if isinstance(given, Mapping):
        return f"a dict with {', '.join(map(repr, given))}" if given else "an empty dict"
    return f"{type(given).__name__} {given!r}"
