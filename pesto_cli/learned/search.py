"""A policy as a strategy: train on one problem within the limits, and return the best sample."""

import math
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice

import numpy as np

from pesto_cli.bounds import lower_bound_us
from pesto_cli.bounds.plans import all_plans_bound_us
from pesto_cli.data.limits import Limits
from pesto_cli.data.problem import Problem
from pesto_cli.data.solution import Solution
from pesto_cli.errors import about
from pesto_cli.evaluation.simulator import replay
from pesto_cli.learned.environment import Environment
from pesto_cli.learned.network import started
from pesto_cli.learned.policy import Policy
from pesto_cli.learned.prior import best_action, one_action, preferring
from pesto_cli.learned.training import State, Trainer, iterations
from pesto_cli.learned.weights import read_weights
from pesto_cli.strategies.context import Context, splits
from pesto_cli.strategies.devices import accelerators
from pesto_cli.strategies.incumbent import Incumbent
from pesto_cli.strategies.split_search.ways import AsBefore

# Estimated times in s on one core of a server: of an iteration without decisions, of a step of
# gradient ascent for each decision, and of the evaluation of a placement for each op, whole or
# split. Deterministic mode adds up these times, and does not measure the real time.
ITERATION_S, DECISION_S = 1e-2, 2e-4
OP_S, SPLIT_OP_S = 1e-6, 2e-5


def best_sample(policy: Policy, problem: Problem, context: Context) -> Solution:
    """Return the best of the most probable placement and all placements that are sampled.

    Time is counted from when TensorFlow is loaded. Settings that are not given are those of the
    training that made the weights.

    Raises:
        BadInputError: the weights cannot be used for this policy and problem.
    """
    policy, state = _start(policy, problem, context.limits.seed)
    started()
    is_over = context.limits.begin()
    incumbent, environment = Incumbent(problem, context), policy.environment(problem)
    bound_us = lower_bound_us if problem.parts is None else all_plans_bound_us
    incumbent.begin(policy.name)
    learned = _learned(policy, state, environment, context, incumbent, is_over)
    for number, found in enumerate(chain(_starts(policy, problem, context), learned)):
        source, solution = found
        incumbent.offer(source, solution.schedule, solution.problem)
        if incumbent.schedule is solution.schedule:
            best = solution
        if number == 0:  # the first solution is shown before its bound is known
            incumbent.prove(bound_us(problem))
        if incumbent.is_optimal:
            break
    return replace(best, notes=environment.notes)


def _start(policy: Policy, problem: Problem, seed: int) -> tuple[Policy, State]:
    """Return a policy with the settings of its weights, and the state that it starts from."""
    if policy.weights is None:
        return policy, State.initial(policy, problem.num_devices, seed)
    trained = read_weights(policy.weights)
    with about(policy.weights):
        policy = trained.configured(policy)
        return policy, trained.state_for(policy, problem.num_devices)


def _starts(policy: Policy, problem: Problem, context: Context) -> Iterator[tuple[str, Solution]]:
    """Yield the placement of the warm start, if the policy may use it."""
    if context.warm_start is not None and not problem.chosen:
        yield "warm start", Solution.of(problem, replay(problem, context.warm_start))
    if context.split_start is not None and splits(policy) and problem.parts is not None:
        yield AsBefore(context.split_start)(problem, context)


def _learned(
    policy: Policy,
    state: State,
    environment: Environment,
    context: Context,
    incumbent: Incumbent,
    is_over: Callable[..., bool],
) -> Iterator[tuple[str, Solution]]:
    """Yield the most probable placement, and then all that are sampled while the policy learns."""
    limits = context.limits
    if not environment.num_decisions:
        yield policy.name, environment.solution(np.empty(0, dtype=np.int64))
        return
    trainer = Trainer(policy, state.network, limits.seed)
    incumbent.begin("most probable")
    actions, began_s = trainer.most_probable(state, environment), time.monotonic()
    solution = environment.solution(actions)
    # Estimated least time of an iteration: its placements are evaluated one after the other. The
    # first iteration takes longer, because TensorFlow compiles functions in it.
    least_s = (time.monotonic() - began_s) * policy.num_placements
    yield "most probable", solution
    if policy.prior:
        incumbent.begin("one action")
        state = yield from _with_prior(policy, state, environment, solution, is_over)
    incumbent.begin("learning")
    most = num_iterations(policy, [environment], limits)
    steps = islice(iterations(trainer, state, {"": environment}, limits.workers), most)
    began_s = time.monotonic()
    while not is_over(least_s) and (step := next(steps, None)) is not None:
        (state, solutions), ended_s = step, time.monotonic()
        least_s, began_s = min(least_s, ended_s - began_s), ended_s
        context.on_reward(state.curve[-1])
        for solution in solutions:
            yield "sample", solution


def _with_prior(
    policy: Policy,
    state: State,
    environment: Environment,
    most_probable: Solution,
    is_over: Callable[..., bool],
) -> Generator[tuple[str, Solution], None, State]:
    """Yield the placements with one action for all decisions.

    Return the state in which the policy prefers the action of the best of them, if this is better
    than the most probable placement.
    """
    costs_us = dict[int, float]()
    for action, cost_us, solution in one_action(policy, environment, is_over):
        costs_us[action] = cost_us
        yield "one action", solution
    best = best_action([costs_us])
    if best is None or costs_us[best] >= policy.costs_us([most_probable])[0]:
        return state
    return replace(state, weights=preferring(state.weights, best, policy.prior))


def num_iterations(
    policy: Policy, environments: Sequence[Environment], limits: Limits
) -> int | None:
    """Return the number of iterations in deterministic mode; None: time is the only limit.

    environments: they take turns.
    """
    if not limits.deterministic:
        return None
    iteration_s = [_iteration_s(policy, each) for each in environments]
    return max(1, math.ceil(limits.time_limit_s * len(iteration_s) / sum(iteration_s)))


def _iteration_s(policy: Policy, environment: Environment) -> float:
    """Return the estimated time of an iteration on one core."""
    problem = environment.problem
    op_s = OP_S
    if splits(policy) and problem.parts is not None:
        op_s = SPLIT_OP_S * len(accelerators(problem))
    return (
        ITERATION_S
        + DECISION_S * environment.num_decisions * (policy.num_steps + 1)
        + op_s * problem.num_ops * policy.num_timed
    )
