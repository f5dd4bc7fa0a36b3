"""`heterog`: a graph neural network chooses a device or a way to replicate for each group of ops.

Source: Yi et al., "Optimizing Distributed Training Deployment in Heterogeneous GPU Clusters",
CoNEXT '20, Section 4.1. `plans` has the actions, and `graph_attention` the network. `PAPER` has the
published sizes, and `PROGRAM` also what the authors' program does differently; the defaults are
smaller, for two cores, and begin near the best plan with one action for all groups, as random plans
take many times as long. The paper leaves open the width of the layers, the step size, the weight of
the entropy and that of the moving average.

Left out of the program: weight decay, dropout, the residual connections of its graph attention, its
maximum over the ops of a group, and its memory of earlier groups in Transformer-XL.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from pesto_cli.data.columns import FloatArray
from pesto_cli.data.problem import Problem
from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.learned.policy import Policy

if TYPE_CHECKING:
    from pesto_cli.learned.environment import Environment
    from pesto_cli.learned.network import Network
    from pesto_cli.learned.trials import Trials

US_PER_MS = 1e3


@dataclass(frozen=True)
class HeteroG(Policy):
    """Increase the expected reward and the entropy of the policy, by REINFORCE.

    groups: the largest number of groups.
    layers, heads: of the graph attention. strategy_layers: of the strategy network.
    separate_heads: see `GraphAttention`.
    entropy_weight: λ, in standard deviations of the rewards.
    stuck_factor: by how much λ is larger while the policy is stuck (`Trials.is_stuck`).
    is_scaled: whether rewards count in standard deviations; otherwise T is in ms.
    """

    name: ClassVar[str] = "heterog"
    splits: ClassVar[bool] = True
    num_steps: int = 1
    learning_rate: float = 1e-2
    out_of_memory_factor: float = 100.0  # the reward counts ten times
    groups: int = 100
    layers: int = 2
    heads: int = 4
    strategy_layers: int = 1
    separate_heads: bool = False
    entropy_weight: float = 0.01
    stuck_factor: float = 1.0
    is_scaled: bool = True
    prior: float = 0.95

    @property
    def network(self) -> "Network":
        """Graph attention and Transformer-XL."""
        from pesto_cli.learned.graph_attention import GraphAttention

        return GraphAttention(
            self.units, self.layers, self.heads, self.strategy_layers, self.separate_heads
        )

    def environment(self, problem: Problem) -> "Environment":
        """Return the groups of a problem, and the ways to replicate them."""
        from pesto_cli.learned.plans import Plans

        return Plans.of(problem, self.groups)

    def reward(self, costs_us: FloatArray) -> FloatArray:
        """Return -sqrt(T) for each step time T."""
        rewards: FloatArray = -np.sqrt(costs_us)
        return rewards

    def at(self, trials: "Trials") -> Self:
        """Return the policy with the λ for the next steps."""
        if not trials.is_stuck:
            return self
        return replace(self, entropy_weight=self.entropy_weight * self.stuck_factor)

    def unit(self, trials: "Trials") -> float:
        """Return the unit of rewards: their standard deviation, or that of T in ms."""
        return super().unit(trials) if self.is_scaled else US_PER_MS**0.5

    def objective(self, new: Any, old: Any, chosen: Any, advantage: Any) -> Any:
        """Return the mean over groups of the objective J(θ), with the entropy H of the policy."""
        tf = tensorflow()
        gain = tf.reduce_sum(new * chosen, axis=2) * advantage
        entropy = -tf.reduce_sum(tf.exp(new) * new, axis=2)
        return tf.reduce_mean(gain + self.entropy_weight * entropy)


PAPER = HeteroG(groups=2000, layers=12, heads=8, strategy_layers=8, prior=0.0)
PROGRAM = replace(
    PAPER,
    units=512,
    layers=5,
    strategy_layers=12,
    separate_heads=True,
    out_of_memory_factor=1000.0,
    entropy_weight=25.0,
    stuck_factor=50.0,
    is_scaled=False,
    new_share=0.5,
    num_kept=20,
    with_most_probable=True,
    random_share=0.3,
    learning_rate=5e-5,
    num_placements=2,
)
