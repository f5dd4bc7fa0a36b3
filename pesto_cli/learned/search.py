"""A policy as a strategy: train on one problem within the limits, and return the best sample."""

import math
from itertools import islice

import numpy as np

from pesto_cli.bounds import lower_bound_us
from pesto_cli.data.limits import Limits
from pesto_cli.data.problem import Problem
from pesto_cli.data.solution import Solution
from pesto_cli.errors import about
from pesto_cli.learned.environment import Environment
from pesto_cli.learned.policy import Policy
from pesto_cli.learned.training import State, Trainer, iterations
from pesto_cli.learned.weights import read_weights
from pesto_cli.strategies.context import Context
from pesto_cli.strategies.incumbent import Incumbent

# Steps of gradient ascent in a second, times super-ops: the unit of work in deterministic mode.
SUPER_OP_STEPS_PER_S = 5000.0


def best_sample(policy: Policy, problem: Problem, context: Context) -> Solution:
    """Return the best of the most probable placement and all placements that are sampled.

    Time is counted from when TensorFlow is loaded.

    Raises:
        BadInputError: the weights cannot be used for this policy and problem.
    """
    limits, environment = context.limits, Environment.of(problem)
    incumbent = Incumbent(problem, context)
    incumbent.prove(lower_bound_us(problem))
    if context.warm_start is not None:
        incumbent.offer("warm start", environment.simulator.replay(context.warm_start))
    if not len(environment.super_ops):
        incumbent.offer(policy.name, environment.schedule(np.empty(0, dtype=np.int64)))
        return Solution.of(problem, incumbent.schedule, incumbent.lower_bound_us)
    state = start(policy, problem, limits.seed)
    trainer = Trainer(policy, limits.seed)
    is_over = limits.begin()
    incumbent.begin("most probable")
    chosen = trainer.most_probable(state, environment)
    incumbent.offer("most probable", environment.schedule(chosen))
    incumbent.begin("learning")
    most = num_iterations(policy, len(environment.super_ops), limits)
    for _, schedules in islice(iterations(trainer, state, {"": environment}, limits.workers), most):
        for schedule in schedules:
            incumbent.offer("sample", schedule)
        if is_over() or incumbent.is_optimal:
            break
    return Solution.of(problem, incumbent.schedule, incumbent.lower_bound_us)


def start(policy: Policy, problem: Problem, seed: int) -> State:
    """Return the state that a policy starts from: its weights, or random ones.

    Raises:
        BadInputError: the file of weights cannot be read, or used for this policy and problem.
    """
    if policy.weights is None:
        return State.initial(policy, problem.num_devices, seed)
    trained = read_weights(policy.weights)
    with about(policy.weights):
        return trained.state_for(policy.name, problem.num_devices)


def num_iterations(policy: Policy, num_super_ops: int, limits: Limits) -> int | None:
    """Return the number of iterations in deterministic mode; None: time is the only limit."""
    if not limits.deterministic:
        return None
    steps = limits.time_limit_s * SUPER_OP_STEPS_PER_S / num_super_ops
    return max(1, math.ceil(steps / (policy.num_steps + 1)))
