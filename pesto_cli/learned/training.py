"""The training of a policy: sample placements, time their steps, improve the policy; repeat.

With simulated steps, an iteration is a function of the state before it, the seed and the problem
alone. So a training that is resumed gives the same weights as one that is not interrupted.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any, NamedTuple, Self

import numpy as np

from pesto_cli.data.columns import FloatArray, IntArray
from pesto_cli.data.limits import Limits
from pesto_cli.data.result import RewardPoint
from pesto_cli.data.solution import Solution
from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.learned import adam
from pesto_cli.learned.adam import Moments
from pesto_cli.learned.environment import Environment
from pesto_cli.learned.features import num_features
from pesto_cli.learned.network import Network, Weights, started
from pesto_cli.learned.policy import Policy
from pesto_cli.learned.prior import best_action, one_action, preferring
from pesto_cli.learned.trials import Trials

# Placements that were kept are used again in every third iteration, as in HeteroG's program.
REPLAY_EVERY = 3

CostsUs = Callable[[Sequence[Solution]], FloatArray]
"""Returns the step times of solutions that count, in us, `[num_placements]`."""


@dataclass(frozen=True, eq=False)
class State:
    """The state of a training.

    trials: statistics by the hash of the graph. curve: a point for each iteration.
    """

    network: Network
    weights: Weights
    moments: Moments
    num_devices: int
    trials: Mapping[str, Trials] = field(default_factory=dict)
    curve: tuple[RewardPoint, ...] = ()

    @classmethod
    def initial(cls, policy: Policy, num_devices: int, seed: int) -> Self:
        """Return a state with random weights."""
        network = policy.network
        weights = network.initial_weights(num_features(num_devices), num_devices, seed)
        return cls(network, weights, Moments.of(weights), num_devices)

    @property
    def num_placements(self) -> int:
        """Placements that were sampled so far, of all graphs."""
        return self.curve[-1].num_placements if self.curve else 0


class Trainer:
    """A policy with its compiled functions; TensorFlow is loaded when it is made."""

    def __init__(
        self, policy: Policy, network: Network, seed: int = 0, costs_us: CostsUs | None = None
    ) -> None:
        """network: that of the state that is trained. costs_us: None for simulated steps."""
        self.policy, self.network, self.seed = policy, network, seed
        self._costs_us = costs_us or policy.costs_us
        started()

    def compiled(self, environment: Environment) -> "Compiled":
        """Return the functions of the network, compiled for the shapes of the inputs."""
        return _compiled(self.network, tuple(each.shape for each in environment.inputs))

    def most_probable(self, state: State, environment: Environment) -> IntArray:
        """Return the most probable action of one decision after the other, `[num_decisions]`."""
        network = self.network
        sample = self.compiled(environment).sample if network.is_sequential else network.sample
        noise = np.zeros((environment.num_decisions, 1, environment.num_actions))
        placement: IntArray = _actions(sample, state, environment, noise)[0]
        return placement

    def drawn(self, state: State, environment: Environment) -> IntArray:
        """Return the actions of an iteration, `[num_placements, num_decisions]`.

        If the policy also times the most probable placement, this is the last row.
        """
        rng = np.random.default_rng((self.seed, state.num_placements))
        decisions, actions = environment.num_decisions, environment.num_actions
        number, share = self.policy.num_placements, self.policy.random_share
        noise = rng.gumbel(size=(decisions, number, actions))
        if self.policy.with_most_probable:
            noise = np.concatenate((noise, np.zeros((decisions, 1, actions))), axis=1)
        chosen = _actions(self.compiled(environment).sample, state, environment, noise)
        for row in np.flatnonzero(rng.random(number) < share) if share else ():
            redrawn = rng.integers(decisions, size=rng.integers(1, decisions + 1))
            logits = environment.inputs[-1][redrawn]
            chosen[row, redrawn] = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
        return chosen

    def iterate(
        self, state: State, graph: str, environment: Environment, pool: ThreadPoolExecutor
    ) -> tuple[State, Sequence[Solution]]:
        """Sample placements of a graph and improve the policy; return both.

        graph: the hash of the graph.
        """
        trials = state.trials.get(graph, Trials())
        may_be_uniform = self.policy.num_kept > 0 and not trials.count
        uniform = environment.uniform() if may_be_uniform else np.empty((0, 0), dtype=np.int64)
        is_first = len(uniform) > 0
        chosen = uniform if is_first else self.drawn(state, environment)
        solutions = environment.solutions(chosen, pool)
        costs_us = self._costs_us(solutions)
        trials = self.policy.extended(trials, costs_us)
        trials = trials.keeping(self.policy.num_kept, costs_us, chosen)
        num_placements = state.num_placements + len(chosen)
        point = RewardPoint(num_placements, graph, float(costs_us.mean()), trials.best_us)
        if not is_first:
            learned = slice(self.policy.num_placements)
            state = self.improved(state, environment, trials, chosen[learned], costs_us[learned])
        if (trials.count // self.policy.num_timed) % REPLAY_EVERY == 0:
            state = self._replayed(state, environment, trials)
        known, curve = {**state.trials, graph: trials}, (*state.curve, point)
        return replace(state, trials=known, curve=curve), solutions

    def _replayed(self, state: State, environment: Environment, trials: Trials) -> State:
        """Return the state after the steps of an iteration with placements that were kept."""
        number = self.policy.num_placements
        fitting = [each for each in trials.kept if environment.can_take(each.actions)]
        if len(fitting) < number:
            return state
        rng = np.random.default_rng((self.seed, state.num_placements, 1))
        kept = [fitting[each] for each in rng.permutation(len(fitting))[:number]]
        costs_us = np.array([each.cost_us for each in kept])
        chosen = np.array([each.actions for each in kept])
        return self.improved(state, environment, trials, chosen, costs_us)

    def improved(
        self,
        state: State,
        environment: Environment,
        trials: Trials,
        chosen: IntArray,
        costs_us: FloatArray,
    ) -> State:
        """Return the state after the steps of an iteration.

        Args:
            state: the state before them.
            environment: the decisions about the graph.
            trials: all trials of the graph, with those of this iteration.
            chosen: the actions from which to learn, `[num_placements, num_decisions]`.
            costs_us: their step times, `[num_placements]`.
        """
        weights, moments, inputs = state.weights, state.moments, environment.inputs
        actions, policy = chosen.T.astype(np.int32), self.policy.at(trials)
        advantage, compiled = policy.advantage(trials, costs_us), self.compiled(environment)
        old = compiled.log_probabilities(weights, inputs, actions)
        for _ in range(self.policy.num_steps):
            gradient = compiled.gradient(policy, weights, inputs, actions, old, advantage)
            found = {name: value.numpy() for name, value in gradient.items()}
            weights, moments = adam.step(weights, found, moments, self.policy.learning_rate)
        return replace(state, weights=weights, moments=moments)


class Compiled(NamedTuple):
    """The functions of a network, compiled by TensorFlow."""

    sample: Callable[..., Any]
    log_probabilities: Callable[..., Any]
    gradient: Callable[..., Any]


@lru_cache(maxsize=24)
def _compiled(network: Network, shapes: tuple[tuple[int, ...], ...]) -> Compiled:
    """Return the compiled functions of a network for inputs of these shapes.

    All trainers of equal networks use the same functions, because compiling takes longer than some
    iterations. The functions of one set of shapes need about 14 MB, so only the last 24 are kept.
    """
    functions = network.sample, network.log_probabilities, partial(_gradient, network)
    return Compiled(*(started().function(each, autograph=False) for each in functions))


def _gradient(
    network: Network,
    policy: Policy,
    weights: Any,
    inputs: Any,
    actions: Any,
    old: Any,
    advantage: Any,
) -> Any:
    """Return the gradient of the loss with respect to the weights."""
    tf = tensorflow()
    with tf.GradientTape() as tape:
        tape.watch(weights)
        new = network.log_probabilities(weights, inputs, actions)
        chosen = tf.one_hot(actions, new.shape[2])
        loss = -policy.objective(new, old, chosen, advantage)
    return tape.gradient(loss, weights)


def trained(
    trainer: Trainer,
    state: State,
    environments: Mapping[str, Environment],
    limits: Limits,
    num_placements: int | None = None,
    on_iteration: Callable[[State], None] = lambda state: None,
) -> State:
    """Return the state after a training.

    Args:
        trainer: the policy.
        state: the state to continue from.
        environments: by the hash of the graph; they take turns.
        limits: time limit, threads for simulations, request to stop.
        num_placements: the number of placements to sample; then there is no time limit.
        on_iteration: called after each iteration.
    """
    end = math.inf if num_placements is None else state.num_placements + num_placements
    is_over = replace(limits, deterministic=num_placements is not None).begin()
    if trainer.policy.prior and not state.curve:
        state = _with_prior(trainer.policy, state, environments.values(), is_over)
    steps = iterations(trainer, state, environments, limits.workers)
    while state.num_placements < end and not is_over():
        state, _ = next(steps)
        on_iteration(state)
    return state


def _with_prior(
    policy: Policy,
    state: State,
    environments: Iterable[Environment],
    is_over: Callable[..., bool],
) -> State:
    """Return the state in which the policy prefers the best action for all decisions of all graphs.

    By simulated steps; the plans count as no samples.
    """
    costs_us = [
        {action: cost_us for action, cost_us, _ in one_action(policy, environment, is_over)}
        for environment in environments
    ]
    best = best_action(costs_us)
    if best is None:
        return state
    return replace(state, weights=preferring(state.weights, best, policy.prior))


def iterations(
    trainer: Trainer, state: State, environments: Mapping[str, Environment], workers: int
) -> Iterator[tuple[State, Sequence[Solution]]]:
    """Yield the state and the sampled solutions after each iteration, without end.

    Args:
        trainer: the policy.
        state: the state to continue from.
        environments: by the hash of the graph; they take turns.
        workers: threads that simulate.
    """
    graphs = list(environments)
    with ThreadPoolExecutor(workers) as pool:
        while True:
            graph = graphs[len(state.curve) % len(graphs)]
            state, solutions = trainer.iterate(state, graph, environments[graph], pool)
            yield state, solutions


def _actions(
    sample: Callable[..., Any], state: State, environment: Environment, noise: FloatArray
) -> IntArray:
    """Return the actions that a network samples, `[num_placements, num_decisions]`."""
    chosen = sample(state.weights, environment.inputs, noise.astype(np.float32))
    placements: IntArray = np.array(chosen, dtype=np.int64).T
    return placements
