"""`spotlight`: proximal policy optimisation with a KL penalty.

Source: Gao, Chen and Li, "Spotlight: Optimizing Device Placement for Training Deep Neural
Networks", ICML '18. Each state is a prefix of a placement; the reward comes with the last super-op.
As published: five placements and ten steps in an iteration, and a KL weight of 1 (Algorithm 1,
Section 5.1). Departure: rewards count from a moving average (see `trials`).
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.learned.policy import SequencePolicy


@dataclass(frozen=True)
class Spotlight(SequencePolicy):
    """Increase the objective of Eq. 15. kl_weight: its β."""

    name: ClassVar[str] = "spotlight"
    kl_weight: float = 1.0

    def objective(self, new: Any, old: Any, chosen: Any, advantage: Any) -> Any:
        """Return Eq. 15, with the old policy q and the new policy q'.

        mean over n and placements of: q'(a_n | s_n) / q(a_n | s_n) advantage - β D_KL(q || q')
        """
        tf = tensorflow()
        ratio = tf.exp(tf.reduce_sum((new - old) * chosen, axis=2))
        divergence = tf.reduce_sum(tf.exp(old) * (old - new), axis=2)
        return tf.reduce_mean(ratio * advantage - self.kl_weight * divergence)
