"""The training of a policy on several problems, before it places others."""

from collections.abc import Sequence
from dataclasses import replace

from pesto_cli.data.limits import Limits
from pesto_cli.data.problem import Problem
from pesto_cli.learned.policy import Policy
from pesto_cli.learned.search import num_iterations
from pesto_cli.learned.training import State, Trainer, trained
from pesto_cli.learned.weights import Trained, settings_of


def pretrained(policy: Policy, problems: Sequence[Problem], limits: Limits) -> Trained:
    """Train a policy on problems, which take turns.

    Args:
        policy: the policy, which starts from random weights.
        problems: of machines with the same number of devices. Those without a choice are left out;
            another one must remain.
        limits: for each problem.
    """
    found = (policy.environment(problem) for problem in problems)
    environments = {str(index): each for index, each in enumerate(found) if each.num_decisions}
    state = State.initial(policy, problems[0].num_devices, limits.seed)
    all_together = replace(limits, time_limit_s=limits.time_limit_s * len(environments))
    iterations = num_iterations(policy, list(environments.values()), all_together)
    most = None if iterations is None else iterations * policy.num_timed
    trainer = Trainer(policy, state.network, limits.seed)
    state = trained(trainer, state, environments, all_together, most)
    return Trained(policy.name, limits.seed, state, settings_of(policy))
