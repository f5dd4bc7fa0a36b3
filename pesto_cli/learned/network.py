"""Policy networks: weights as named arrays, and the interface that the training uses.

A network gives each decision a probability of each action. TF's shapes are time-major here: T
decisions, B placements, A actions.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pesto_cli.data.columns import BoolArray
from pesto_cli.graphdef.tensorflow import tensorflow

Array = NDArray[np.float32]
Weights = Mapping[str, Array]

# Added to the logit of an action that is not allowed.
FORBIDDEN = -1e9


@dataclass(frozen=True)
class Network(ABC):
    """A network; its fields are its sizes, which are stored with its weights.

    Its inputs are arrays that an environment provides. The last of them is what is added to the
    logits, `[T, A]`; see `allowed_logits`.

    is_sequential: whether it samples one decision after the other. Otherwise sampling once takes
        less time than to compile it.
    """

    name: ClassVar[str]
    is_sequential: ClassVar[bool]
    units: int

    def __post_init__(self) -> None:
        if min(astuple(self)) < 0 or not self.units:
            raise ValueError(f"{self} has a size that is too small")

    @abstractmethod
    def shapes(self, num_features: int, num_devices: int) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Yield the name and the shape of each array of weights.

        The name of an array that gives logits is `output`, or ends in `/output`.
        """

    @abstractmethod
    def log_probabilities(self, weights: Any, inputs: Any, chosen: Any) -> Any:
        """Return the log-probability of each action of given placements, `[T, B, A]`.

        chosen: the actions, `[T, B]`.
        """

    @abstractmethod
    def sample(self, weights: Any, inputs: Any, noise: Any) -> Any:
        """Return actions that are drawn from the policy, `[T, B]`.

        noise: standard Gumbel numbers, `[T, B, A]`; with zeros, the most probable actions.
        """

    def initial_weights(self, num_features: int, num_devices: int, seed: int) -> dict[str, Array]:
        """Draw weights from uniform distributions; biases and output layers are zero.

        The variance of a weight is 1 / the number of inputs of its layer. As the output layers are
        zero, each allowed action is equally probable in the beginning.
        """
        rng, weights = np.random.default_rng(seed), dict[str, Array]()
        for name, shape in self.shapes(num_features, num_devices):
            is_zero = len(shape) == 1 or name.rpartition("/")[2] == "output"
            limit = 0.0 if is_zero else np.sqrt(3 / shape[0])
            weights[name] = rng.uniform(-limit, limit, shape).astype(np.float32)
        return weights


def started() -> Any:
    """Return TensorFlow, set to one thread, unless the program has used TensorFlow before.

    One thread is faster, because the matrices are small; and it always gives the same results.
    """
    tf = tensorflow()
    try:
        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(1)
    except RuntimeError:  # TensorFlow has begun to compute, and keeps its threads
        pass
    return tf


def allowed_logits(allowed: BoolArray) -> Array:
    """Return what is added to logits: 0 where an action is allowed."""
    return np.where(allowed, 0.0, FORBIDDEN).astype(np.float32)
