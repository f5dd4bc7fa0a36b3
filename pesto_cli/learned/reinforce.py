"""`grl`: REINFORCE on the network of Spotlight, its rival in the paper.

Source: the update rule in Section 5.2 of Spotlight (Gao, Chen and Li, ICML '18), which stands for
Mirhoseini et al., ICML '17. Each placement is used for one step. Here only the update differs from
`spotlight`. Left out of Mirhoseini et al.: the square root of times as reward, their groups, and
asynchronous controllers.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.learned.policy import SequencePolicy


@dataclass(frozen=True)
class Reinforce(SequencePolicy):
    """Increase the mean over stages n and placements of log q(a_n | s_n) advantage."""

    name: ClassVar[str] = "grl"
    num_steps: int = 1
    learning_rate: float = 3e-3

    def objective(self, new: Any, old: Any, chosen: Any, advantage: Any) -> Any:
        """Return the objective, whose gradient is that of the expected reward."""
        tf = tensorflow()
        return tf.reduce_mean(tf.reduce_sum(new * chosen, axis=2) * advantage)
