"""`spotlight`: proximal policy optimisation with a KL penalty.

Source: Gao, Chen and Li, "Spotlight: Optimizing Device Placement for Training Deep Neural
Networks", ICML '18. Each state is a prefix of a placement; the reward comes with the last super-op.
As published: five placements and ten steps in an iteration (Algorithm 1, Section 5.1). Departures:

- Rewards count from a moving average (see `trials`).
- The KL weight is 10, and 1 in the paper. The paper leaves the unit of the rewards open, and only
  the weight relative to this unit matters. With a weight of 1, the policy follows the noise of the
  five placements, and settles on one placement early.

`PAPER` has the published settings of both.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.learned.policy import SequencePolicy


@dataclass(frozen=True)
class Spotlight(SequencePolicy):
    """Increase the objective of Eq. 15. kl_weight: its β."""

    name: ClassVar[str] = "spotlight"
    kl_weight: float = 10.0

    def objective(self, new: Any, old: Any, chosen: Any, advantage: Any) -> Any:
        """Return Eq. 15, with the old policy q and the new policy q'.

        mean over n and placements of: q'(a_n | s_n) / q(a_n | s_n) advantage - β D_KL(q || q')
        """
        tf = tensorflow()
        ratio = tf.exp(tf.reduce_sum((new - old) * chosen, axis=2))
        divergence = tf.reduce_sum(tf.exp(old) * (old - new), axis=2)
        return tf.reduce_mean(ratio * advantage - self.kl_weight * divergence)


PAPER = Spotlight(kl_weight=1.0, new_share=0.0)
