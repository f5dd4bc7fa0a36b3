"""The training of a policy: sample placements, simulate them, and improve the policy; repeat.

An iteration is a function of the state before it, the seed and the problem alone. So a training
that is resumed gives the same weights as one that is not interrupted.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from pesto_cli.data.columns import FloatArray, IntArray
from pesto_cli.data.result import RewardPoint
from pesto_cli.data.schedule import Schedule
from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.learned import adam, network
from pesto_cli.learned.adam import Moments
from pesto_cli.learned.environment import Environment
from pesto_cli.learned.features import num_features
from pesto_cli.learned.network import Array, Weights
from pesto_cli.learned.policy import Policy
from pesto_cli.learned.trials import Trials


@dataclass(frozen=True, eq=False)
class State:
    """The state of a training.

    trials: statistics by the hash of the graph. curve: a point for each iteration.
    """

    weights: Weights
    moments: Moments
    num_devices: int
    trials: Mapping[str, Trials] = field(default_factory=dict)
    curve: tuple[RewardPoint, ...] = ()

    @classmethod
    def initial(cls, policy: Policy, num_devices: int, seed: int) -> Self:
        """Return a state with random weights."""
        weights = network.initial_weights(
            num_features(num_devices), num_devices, policy.units, seed
        )
        return cls(weights, Moments.of(weights), num_devices)

    @property
    def units(self) -> int:
        """The size of each layer of the network."""
        return len(self.weights["features/bias"])

    @property
    def num_placements(self) -> int:
        """Placements that were sampled so far, of all graphs."""
        return self.curve[-1].num_placements if self.curve else 0


class Trainer:
    """A policy with its compiled functions; TensorFlow is loaded when it is made."""

    def __init__(self, policy: Policy, seed: int = 0) -> None:
        tf = network.started()
        self.policy, self.seed = policy, seed
        self._sample = tf.function(network.sample)
        self._log_probabilities = tf.function(network.log_probabilities)
        self._gradient = tf.function(self._gradient_of_loss)

    def most_probable(self, state: State, environment: Environment) -> IntArray:
        """Return the most probable device of one super-op after the other, `[num_super_ops]`."""
        noise = np.zeros((len(environment.super_ops), 1, state.num_devices))
        placement: IntArray = self._chosen(state, environment, noise)[0]
        return placement

    def drawn(self, state: State, environment: Environment) -> IntArray:
        """Return the placements of an iteration, `[num_placements, num_super_ops]`."""
        rng = np.random.default_rng((self.seed, state.num_placements))
        shape = (len(environment.super_ops), self.policy.num_placements, state.num_devices)
        return self._chosen(state, environment, rng.gumbel(size=shape))

    def _chosen(self, state: State, environment: Environment, noise: FloatArray) -> IntArray:
        chosen = self._sample(state.weights, *_inputs(environment), noise.astype(np.float32))
        placements: IntArray = np.array(chosen, dtype=np.int64).T
        return placements

    def iterate(
        self, state: State, graph: str, environment: Environment, pool: ThreadPoolExecutor
    ) -> tuple[State, Sequence[Schedule]]:
        """Sample placements of a graph and improve the policy; return both.

        graph: the hash of the graph.
        """
        chosen = self.drawn(state, environment)
        schedules = environment.schedules(chosen, pool)
        costs_us = np.array([environment.cost_us(each) for each in schedules])
        trials = state.trials.get(graph, Trials()).extended(costs_us)
        num_placements = state.num_placements + len(chosen)
        point = RewardPoint(num_placements, graph, float(costs_us.mean()), trials.best_us)
        improved = self.improved(state, environment, chosen, trials.advantage(costs_us))
        known, curve = {**state.trials, graph: trials}, (*state.curve, point)
        return replace(improved, trials=known, curve=curve), schedules

    def improved(
        self, state: State, environment: Environment, chosen: IntArray, advantage: Array
    ) -> State:
        """Return the state after the steps of an iteration."""
        weights, moments, inputs = state.weights, state.moments, _inputs(environment)
        devices = chosen.T.astype(np.int32)
        old = self._log_probabilities(weights, *inputs, devices)
        for _ in range(self.policy.num_steps):
            gradient = self._gradient(weights, *inputs, devices, old, advantage)
            found = {name: value.numpy() for name, value in gradient.items()}
            weights, moments = adam.step(weights, found, moments, self.policy.learning_rate)
        return replace(state, weights=weights, moments=moments)

    def _gradient_of_loss(
        self, weights: Any, features: Any, allowed: Any, devices: Any, old: Any, advantage: Any
    ) -> Any:
        tf = tensorflow()
        with tf.GradientTape() as tape:
            tape.watch(weights)
            new = network.log_probabilities(weights, features, allowed, devices)
            chosen = tf.one_hot(devices, allowed.shape[1])
            loss = -self.policy.objective(new, old, chosen, advantage)
        return tape.gradient(loss, weights)


def iterations(
    trainer: Trainer, state: State, environments: Mapping[str, Environment], workers: int
) -> Iterator[tuple[State, Sequence[Schedule]]]:
    """Yield the state and the sampled schedules after each iteration, without end.

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
            state, schedules = trainer.iterate(state, graph, environments[graph], pool)
            yield state, schedules


def _inputs(environment: Environment) -> tuple[Array, Array]:
    allowed = environment.super_ops.allowed()
    return environment.features.astype(np.float32), network.allowed_logits(allowed)
