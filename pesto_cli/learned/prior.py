"""The prior of a policy: the action that is best if all decisions take it.

The first plans of HeteroG's program have one action for all groups, too. A policy without knowledge
samples random plans, which take many times as long as the best of these.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from pesto_cli.data.solution import Solution
from pesto_cli.learned.environment import Environment
from pesto_cli.learned.network import Weights
from pesto_cli.learned.policy import Policy

# The array of weights that is added to the logits of all decisions, `[num_actions]`.
PREFERENCE = "preference"
# Shorter steps count as this one in a geometric mean.
LEAST_US = 1e-9


def one_action(
    policy: Policy, environment: Environment, is_over: Callable[..., bool]
) -> Iterator[tuple[int, float, Solution]]:
    """Yield each action that all decisions may take, the step time that counts, and the solution.

    Step times are simulated, in us. It ends early when the time is over. So the last actions, which
    are the ways to replicate and often the best, come first.
    """
    for actions in environment.uniform()[::-1]:
        if is_over():
            return
        solution = environment.solution(actions)
        yield int(actions[0]), float(policy.costs_us([solution])[0]), solution


def best_action(costs_us: Sequence[Mapping[int, float]]) -> int | None:
    """Return the action with the least geometric mean of the step times over all graphs.

    None if no action can be taken on all graphs.

    costs_us: of each graph, the step times by action.
    """
    common = set.intersection(*(set(each) for each in costs_us))
    means = {
        action: sum(np.log(max(each[action], LEAST_US)) for each in costs_us)
        for action in sorted(common)
    }
    return min(means, key=means.__getitem__, default=None)


def preferring(weights: Weights, action: int, probability: float) -> Weights:
    """Return weights that prefer an action, in place of those that were preferred before.

    probability: of this action in each decision at least, if the other weights prefer none.
    """
    preference = np.zeros_like(weights[PREFERENCE])
    preference[action] = np.log(probability / (1 - probability) * max(len(preference) - 1, 1))
    return {**weights, PREFERENCE: preference}
