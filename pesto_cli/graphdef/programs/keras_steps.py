"""Observe and replace the training steps of Keras models, in `fit` and `train_on_batch`."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pesto_cli.errors import BadInputError
from pesto_cli.graphdef.programs.replaced import replaced
from pesto_cli.graphdef.tensorflow import tensorflow

Step = Callable[[Any], Any]
"""Trains on one batch, as `fit` passes it to `train_step`; returns the logs."""


@contextmanager
def replaced_steps(step_of: Callable[[Any], Step]) -> Iterator[None]:
    """Let Keras models train by `step_of(model)`, which is called once for each compiled model."""
    tensorflow()
    from keras.src.backend.tensorflow.trainer import TensorFlowTrainer

    def make_train_function(self: Any, force: bool = False) -> Any:
        if self.train_function is None or force:
            self.train_function = _on_batches(step_of(self))
        return self.train_function

    with replaced(TensorFlowTrainer, make_train_function=make_train_function):
        yield


def require_single_steps(model: Any, what: str) -> None:
    """Raise BadInputError if `fit` makes several steps in one call; `what` names the program."""
    number = getattr(model, "steps_per_execution", 1)
    if number != 1:
        raise BadInputError(
            f"{what}: the Keras model {model.name!r} is compiled with steps_per_execution={number};"
            " 1 was expected, because the placement is that of a single step: leave the argument"
            " out."
        )


def _on_batches(step: Step) -> Step:
    """Return Keras's train function, which takes an iterator over batches."""
    import keras

    optional = tensorflow().experimental.Optional

    def train_function(batches: Any) -> Any:
        batch = next(batches)
        # An absent array, such as a sample weight, is an Optional in a data set.
        return step(
            keras.tree.map_structure(
                lambda value: None if isinstance(value, optional) else value, batch
            )
        )

    return train_function
