"""Learned placers: the objectives, the network, the training, weights, strategies, `train`."""

import io
import json
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from itertools import chain, product, repeat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Pesto, on_gpus, two_gpus
from random_problems import random_problem
from rich.console import Console
from test_tuning import build_towers
from test_zoo import exported
from training_graphs import exported as exported_step
from two_cpus import two_cpus

from pesto_cli import api
from pesto_cli.api import training as api_training
from pesto_cli.cli import training as cli_training
from pesto_cli.data.graph import IntArray, OpGraph, Tensor
from pesto_cli.data.limits import Limits
from pesto_cli.data.machine import CommModel, Device, Machine
from pesto_cli.data.presets import PRESETS
from pesto_cli.data.problem import Problem
from pesto_cli.data.result import RewardPoint
from pesto_cli.data.solution import Solution
from pesto_cli.errors import BadInputError, EnvironmentFailedError
from pesto_cli.evaluation.violations import violations
from pesto_cli.files import CommFit, Profile, write_profile
from pesto_cli.files.tensorflow_names import labelled
from pesto_cli.graphdef.containers import write_meta_graph
from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.learned import adam, sequence
from pesto_cli.learned.adam import Moments
from pesto_cli.learned.features import (
    NUM_RELATIONS,
    RELATION_SCALE,
    features,
    num_features,
    relations,
)
from pesto_cli.learned.groups import MOST, by_scope
from pesto_cli.learned.heterog import HeteroG
from pesto_cli.learned.network import allowed_logits
from pesto_cli.learned.placements import Placements
from pesto_cli.learned.policy import Policy
from pesto_cli.learned.reinforce import Reinforce
from pesto_cli.learned.sequence import SequenceNetwork
from pesto_cli.learned.spotlight import Spotlight
from pesto_cli.learned.training import State, Trainer
from pesto_cli.learned.trials import Trials
from pesto_cli.learned.weights import Trained, read_weights, settings_of, write_weights
from pesto_cli.report.reward_curve import curve_table
from pesto_cli.runtime.comparison import RealRun, compared
from pesto_cli.strategies import STRATEGIES, Context
from pesto_cli.strategies.context import learns
from pesto_cli.strategies.run import run

SMALL: tuple[Policy, ...] = (
    Spotlight(units=8, learning_rate=0.01),
    Reinforce(units=8, learning_rate=0.01),
    HeteroG(units=8, layers=1, heads=2, learning_rate=0.02),
)
# Placements that a policy needs to learn to place `towers`. The embeddings of `heterog` are equal
# for both towers.
NEEDED = {"spotlight": 600, "grl": 1500}
LEARNED = [name for name, each in STRATEGIES.builtin.items() if learns(each)]
GPU0, GPU1 = 1, 2
# Any device may be used first.
ANY_ORDER = np.full(3, -1)
RELATED = np.tril(np.random.default_rng(3).random((NUM_RELATIONS, 3, 3)), -1).astype(np.float32)


def towers(num_layers: int = 4) -> Problem:
    """Two independent chains of heavy layers with large tensors; one GPU each is best."""
    names = [f"{side}/layer_{n}/MatMul" for side in ("left", "right") for n in range(num_layers)]
    chain = [op for op in range(2 * num_layers - 1) if op != num_layers - 1]
    graph = OpGraph.build(names, [Tensor(op, 50_000, [op + 1]) for op in chain])
    return on_gpus(labelled(graph), [100.0] * len(names))


def profile_of(problem: Problem, name: str = "0") -> Profile:
    return Profile(problem, {"graph_hash": name * 64}, file_hash=name * 64)


@cache
def trained_on_towers(name: str) -> Trained:
    """A policy that has learned to place `towers`."""
    policy = next(each for each in SMALL if each.name == name)
    return api.train(policy, [profile_of(towers())], num_placements=NEEDED[name])


# Objectives, on one super-op and two devices: q = (1/2, 1/2), device 0 was chosen.


@pytest.mark.parametrize(
    ("policy", "share", "value", "slope"),
    [
        (Spotlight(kl_weight=1.0), 0.5, 2.0, 1.0),  # 2 q'/q; slope 2 q' (1 - q') / q
        # 2 * 0.8 / 0.5 - (0.5 ln(0.5 / 0.8) + 0.5 ln(0.5 / 0.2)); 2 * 0.16 / 0.5 - (0.8 - 0.5)
        (Spotlight(kl_weight=1.0), 0.8, 3.2 - 0.2231436, 0.34),
        (Spotlight(), 0.8, 3.2 - 2.231436, 0.64 - 3.0),
        (Reinforce(), 0.8, 2 * np.log(0.8), 2 * 0.2),
        # 2 ln q' + 3 H(q'); slope 2 (1 - q') - 3 q' (1 - q') ln(q' / (1 - q'))
        (HeteroG(entropy_weight=3.0), 0.8, 2 * np.log(0.8) + 3 * 0.5004024, 0.4 - 0.48 * np.log(4)),
    ],
)
def test_objectives_and_their_gradients_are_those_on_paper(
    policy: Policy, share: float, value: float, slope: float
) -> None:
    tf = tensorflow()
    logits = tf.constant([[[np.log(share), np.log(1 - share)]]], tf.float32)
    old, chosen = tf.math.log([[[0.5, 0.5]]]), tf.constant([[[1.0, 0.0]]])
    with tf.GradientTape() as tape:
        tape.watch(logits)
        found = policy.objective(tf.nn.log_softmax(logits), old, chosen, tf.constant([2.0]))
    assert float(found) == pytest.approx(value, abs=1e-5)
    assert tape.gradient(found, logits).numpy().ravel() == pytest.approx([slope, -slope], abs=1e-5)


def test_adam_takes_steps_of_the_learning_rate_and_forgets_old_gradients() -> None:
    weights = {"w": np.array([1.0, -1.0], np.float32)}
    first, moments = adam.step(weights, {"w": np.array([5.0, -0.1])}, Moments.of(weights), 0.1)
    assert first["w"] == pytest.approx([0.9, -0.9], abs=1e-6)
    # mean 0.1 * (0.9 * 5 - 5) / 0.19, square 0.001 * (0.999 + 1) * 25 / 0.001999
    second, _ = adam.step(first, {"w": np.array([-5.0, 0.1])}, moments, 0.1)
    assert second["w"] == pytest.approx([0.9 + 0.1 * 0.05 / 0.95, -0.9 - 0.1 * 0.05 / 0.95])


def test_averages_of_trials_are_those_of_all_trials_at_once() -> None:
    costs_us = np.array([4.0, 1.0, 7.0, 2.0, 2.0])
    policy = Spotlight()
    trials = policy.extended(policy.extended(Trials(), costs_us[:2]), costs_us[2:])
    assert (trials.count, trials.best_us) == (5, 1.0)
    expected = (costs_us.mean() - costs_us) / costs_us.std()
    assert policy.advantage(trials, costs_us) == pytest.approx(expected.astype(np.float32))
    equal = np.full(5, 3.0)
    assert policy.advantage(policy.extended(Trials(), equal), equal).tolist() == [0.0] * 5


# The network.


def lstm(inputs: np.ndarray, kernel: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """The outputs of an LSTM cell, `[T, U]`, by the equations of Hochreiter and Schmidhuber."""

    def sigmoid(x: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-x))

    cell = output = np.zeros(len(bias) // 4)
    outputs = []
    for row in inputs:
        gates = np.concatenate((row, output)) @ kernel + bias
        input_gate, forget_gate, update, output_gate = np.split(gates, 4)
        cell = sigmoid(forget_gate) * cell + sigmoid(input_gate) * np.tanh(update)
        output = sigmoid(output_gate) * np.tanh(cell)
        outputs.append(output)
    return np.array(outputs)


def test_the_encoder_is_two_layers_of_lstm_cells() -> None:
    weights = SequenceNetwork(4).initial_weights(5, 3, seed=1)
    rows = np.random.default_rng(0).random((6, 5)).astype(np.float32)
    encoded, _ = sequence._encoded(weights, tensorflow().constant(rows))
    expected = np.tanh(rows @ weights["features/kernel"] + weights["features/bias"])
    for layer in range(2):
        kernel, bias = weights[f"encoder_{layer}/kernel"], weights[f"encoder_{layer}/bias"]
        assert bias[4:8].tolist() == [1.0] * 4  # the forget gate
        expected = lstm(expected, kernel, bias)
    assert encoded.numpy() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("policy", SMALL, ids=lambda policy: policy.name)
def test_the_gradient_of_each_array_of_weights_is_that_of_differences(policy: Policy) -> None:
    environment, rng = policy.environment(towers(6)), np.random.default_rng(0)
    state = State.initial(policy, 3, seed=0)
    shape, inputs = (environment.num_decisions, 5), environment.inputs
    weights = {
        name: (values + rng.normal(0, 0.3, values.shape)).astype(np.float32)
        for name, values in state.weights.items()
    }
    noise = rng.gumbel(size=(*shape, environment.num_actions)).astype(np.float32)
    actions = np.array(policy.network.sample(weights, inputs, noise))
    old = policy.network.log_probabilities(state.weights, inputs, actions)
    advantage = rng.normal(size=shape[1]).astype(np.float32)
    chosen = tensorflow().one_hot(actions, environment.num_actions)

    def objective(name: str, change: np.ndarray) -> float:
        changed = {**weights, name: weights[name] + change}
        new = policy.network.log_probabilities(changed, inputs, actions)
        return float(policy.objective(new, old, chosen, advantage))

    compiled = Trainer(policy, policy.network).compiled(environment)
    gradient = compiled.gradient(policy, weights, inputs, actions, old, advantage)
    for name, values in weights.items():
        change = rng.normal(size=values.shape).astype(np.float32) * 2e-4
        difference = (objective(name, -change) - objective(name, change)) / 2
        expected = float(np.sum(gradient[name].numpy() * change))
        assert difference == pytest.approx(expected, rel=0.05, abs=1e-6), name


def test_a_policy_begins_uniform_over_the_allowed_devices() -> None:
    weights = SequenceNetwork(4).initial_weights(5, 3, seed=1)
    rows = np.ones((2, 5), np.float32)
    allowed = allowed_logits(np.array([[True, True, True], [False, True, True]]))
    chosen = np.array([[0], [1]], np.int32)
    inputs = rows, RELATED[:, :2, :2], ANY_ORDER[:3], allowed
    log_q = SequenceNetwork(4).log_probabilities(weights, inputs, chosen)
    found = np.exp(log_q.numpy()[:, 0])
    assert found == pytest.approx(np.array([[1 / 3] * 3, [0, 0.5, 0.5]]), abs=1e-6)


def test_samples_follow_the_probabilities_of_their_prefixes() -> None:
    """The most probable placement, and frequencies of samples, are those of `log_probabilities`."""
    rng, network = np.random.default_rng(2), SequenceNetwork(4)
    weights = network.initial_weights(5, 2, seed=1)
    for name, deviation in (("output", 2), ("relations/output", 1)):
        weights[name] = rng.normal(0, deviation, weights[name].shape).astype(np.float32)
    features = rng.random((3, 5)).astype(np.float32)
    inputs = features, RELATED, ANY_ORDER[:2], np.zeros((3, 2), np.float32)
    noise = rng.gumbel(size=(3, 4000, 2)).astype(np.float32)
    drawn = network.sample(weights, inputs, noise).numpy()
    log_q = network.log_probabilities(weights, inputs, drawn).numpy()
    first = np.exp(log_q[0, 0, 0])
    assert (drawn[0] == 0).mean() == pytest.approx(first, abs=0.03)
    after = (drawn[0] == 1) & (drawn[1] == 0)
    assert after.any()
    column = int(np.flatnonzero(after)[0])
    assert (drawn[2][after] == 0).mean() == pytest.approx(np.exp(log_q[2, column, 0]), abs=0.05)
    last_changed = np.concatenate((drawn[:2], 1 - drawn[2:]))
    same = network.log_probabilities(weights, inputs, last_changed).numpy()
    assert same == pytest.approx(log_q)  # a device depends only on those before it
    best = network.sample(weights, inputs, np.zeros((3, 1, 2), np.float32)).numpy()
    of_best = network.log_probabilities(weights, inputs, best).numpy()
    assert (of_best[:, 0].argmax(axis=1) == best[:, 0]).all()


def test_interchangeable_devices_are_used_in_their_order() -> None:
    """Devices 1, 2 and 3 are interchangeable: 1 + 3 + 14 of 64 placements on them are left."""
    network = SequenceNetwork(4)
    weights = network.initial_weights(5, 4, seed=1)
    rows = np.random.default_rng(0).random((3, 5)).astype(np.float32)
    inputs = rows, RELATED, np.array([-1, -1, 1, 2]), np.zeros((3, 4), np.float32)
    placements = list(product(range(4), repeat=3))
    every = np.array(placements, np.int32).T
    log_q = network.log_probabilities(weights, inputs, every).numpy()
    taken = np.take_along_axis(log_q, every.T[:, :, None].swapaxes(0, 1), axis=2)
    probability = np.exp(taken.sum(axis=0)[:, 0])

    def in_order(placement: tuple[int, ...]) -> bool:
        new = [device for device in dict.fromkeys(placement) if device]
        return new == [1, 2, 3][: len(new)]

    assert (probability > 0).tolist() == [*map(in_order, placements)]
    assert probability.sum() == pytest.approx(1, abs=1e-5)
    noise = np.random.default_rng(1).gumbel(size=(3, 2000, 4)).astype(np.float32)
    drawn = network.sample(weights, inputs, noise).numpy().T.tolist()
    assert {*map(tuple, drawn)} == {*filter(in_order, placements)}


def test_placements_name_the_device_before_each_of_equal_gpus() -> None:
    environment = Placements.of(on_gpus(towers().graph, [100.0] * 8))
    assert environment.inputs[2].tolist() == [-1, -1, GPU0]
    num_left = environment.num_decisions - 2
    assert environment.can_take([GPU0, GPU1] + [GPU0] * num_left)
    assert not environment.can_take([GPU1, GPU0] + [GPU0] * num_left)
    assert not environment.can_take([GPU1] * environment.num_decisions)


# Super-ops, features and rewards.


def test_super_ops_share_two_scopes_and_a_phase() -> None:
    names = ["a/b/x", "a/b/c/y", "a/d/x", "gradients/a/b/x_grad/Mul", "plain"]
    graph = labelled(OpGraph.build(names, [Tensor(op, 8, [op + 1]) for op in range(4)]))
    found = by_scope(on_gpus(graph, [1.0] * 5))
    assert found.of_op.tolist()[:2] == [0, 0]
    assert len({*found.of_op.tolist()}) == 4


def test_time_steps_of_a_layer_are_one_super_op_and_their_gradients_another() -> None:
    steps = [f"layer_{layer}/step_{step}" for layer in range(2) for step in range(3)]
    names = [*(f"{each}/cell" for each in steps), *(f"{each}/out" for each in steps)]
    names += [f"gradients/{name}_grad/Mul" for name in names]
    graph = labelled(OpGraph.build(names, [Tensor(op, 8, [op + 1]) for op in range(23)]))
    of_op = by_scope(on_gpus(graph, [1.0] * 24)).of_op.tolist()
    first, second, first_gradients, second_gradients = (of_op[op] for op in (0, 3, 12, 15))
    assert len({first, second, first_gradients, second_gradients}) == 4
    assert of_op[:12] == ([first] * 3 + [second] * 3) * 2
    assert of_op[12:] == ([first_gradients] * 3 + [second_gradients] * 3) * 2


def test_a_group_is_placed_as_a_whole_and_only_where_it_may_run() -> None:
    names = ["a/x", "b/x", "b/y", "c/x"]
    graph = labelled(OpGraph.build(names, colocation_group=[0, 0, 1, 2]))
    times = {"GPU": [1.0, 5.0, 1.0, 1.0], "CPU": [np.nan, np.nan, 9.0, 9.0]}
    problem = Problem.build(graph, times, two_gpus())
    found = by_scope(problem)
    assert found.of_op.tolist() == [0, 0, 0, 1]  # of its longest op
    assert found.allowed().tolist() == [[True] * 3, [True] * 3]
    assert found.devices(np.array([0, GPU1])).tolist() == [GPU0, GPU0, 0, GPU1]


def test_many_super_ops_are_joined_and_ops_without_choice_are_none() -> None:
    names = [f"a/s{index}/x" for index in range(2 * MOST)]
    problem = on_gpus(labelled(OpGraph.build(names)), [1.0] * len(names))
    found = by_scope(problem)
    assert len(found) == MOST
    assert (np.diff(found.of_op) >= 0).all()
    alone = Machine((Device("GPU:0", "GPU", 10**9),), ())
    assert len(by_scope(on_gpus(problem.graph, [1.0] * len(names), alone))) == 0


@pytest.mark.parametrize("name", ["RNNLM", "GNMT", "Transformer", "XLNet-large", "NASNet"])
def test_features_of_each_family_of_models_are_finite(name: str) -> None:
    problem = api.profile(exported(f"{name}-tiny"), PRESETS["v100x2-nvlink"]).problem
    found = features(by_scope(problem))
    assert found.shape[1] == num_features(problem.num_devices)
    assert np.isfinite(found).all()
    of_graph = found[:, : -2 * problem.num_devices]
    varies = of_graph.std(axis=0) > 0
    assert varies.sum() > 15
    assert of_graph.std(axis=0)[varies] == pytest.approx(1.0)


def test_relations_are_loads_memory_and_bytes_of_earlier_super_ops() -> None:
    """Work 100, 200 and 300 us; the first gives 3,000 bytes to the second, 1,000 to the third."""
    graph = labelled(
        OpGraph.build(["a/x", "b/x", "c/x"], [Tensor(0, 3000, [1]), Tensor(0, 1000, [2])])
    )
    load, load_and_own, memory, exchanged = relations(
        by_scope(on_gpus(graph, [100.0, 200.0, 300.0]))
    )
    first, second = (RELATION_SCALE * work_us / (600 / 3) for work_us in (100, 200))
    assert load == pytest.approx(np.array([[0, 0, 0], [first, 0, 0], [first, second, 0]]))
    own = np.log1p([[0.5], [1.0], [1.5]])
    assert load_and_own == pytest.approx(load * own)
    assert memory[1:, 0] == pytest.approx(RELATION_SCALE * 3)  # it holds all bytes
    assert not memory[:, 1:].any()
    mean = 8000 / 3
    shares = np.log1p([3000 / mean, 1000 / mean])
    assert exchanged[1:, 0] == pytest.approx(RELATION_SCALE * shares)
    assert not exchanged[:, 1:].any()


def test_features_do_not_depend_on_the_unit_of_time() -> None:
    problem = towers()
    slower = on_gpus(problem.graph, [300.0] * problem.num_ops, with_slower_links(3.0))
    assert features(by_scope(problem)) == pytest.approx(features(by_scope(slower)))


def with_slower_links(factor: float) -> Machine:
    machine, comm = two_gpus(), CommModel(factor * 1.0, factor * 0.001)
    return replace(machine, links=tuple(replace(link, comm=comm) for link in machine.links))


def test_features_tell_slow_links_and_slow_devices() -> None:
    problem = towers()
    slow_links = on_gpus(problem.graph, [100.0] * problem.num_ops, with_slower_links(9.0))
    times = {"GPU": [100.0] * problem.num_ops, "CPU": [800.0] * problem.num_ops}
    slow_device = Problem.build(problem.graph, times, two_gpus())
    before, links, device = (
        features(by_scope(each))[:, -2 * problem.num_devices :]
        for each in (problem, slow_links, slow_device)
    )
    slowness, transfers = np.split(np.arange(2 * problem.num_devices), 2)
    assert links[:, slowness] == pytest.approx(before[:, slowness])
    assert (links[:, transfers] >= before[:, transfers]).all()
    assert (links[:, transfers].max(axis=0) > before[:, transfers].max(axis=0) + 0.5).all()
    assert device[:, slowness] == pytest.approx(np.tile([np.log(8.0), 0.0, 0.0], (len(device), 1)))


def test_the_table_of_a_curve_leaves_out_profiles_without_an_iteration() -> None:
    console = Console(width=200)
    curve = [RewardPoint(5, "seen", 2e3, 1e3)]
    with console.capture() as shown:
        console.print(curve_table("w", curve, {"seen": "a.json", "other": "b.json"}))
    assert "a.json" in shown.get()
    assert "b.json" not in shown.get()


def test_without_an_action_that_is_allowed_everywhere_the_first_placements_are_sampled() -> None:
    problem = towers()
    permitted = np.ones((problem.num_ops, 3), dtype=np.bool_)
    permitted[np.arange(problem.num_ops), np.arange(problem.num_ops) % 3] = False
    times = {kind: [100.0] * problem.num_ops for kind in ("CPU", "GPU")}
    problem = replace(Problem.build(problem.graph, times, two_gpus()), permitted=permitted)
    policy = Spotlight(units=8, num_kept=20)
    assert api.train(policy, [profile_of(problem)], num_placements=5).state.num_placements == 5
    environment = policy.environment(problem)
    forbidden = np.argmin(environment.inputs[-1], axis=1)
    assert not environment.can_take(forbidden.tolist())
    assert environment.can_take(np.argmax(environment.inputs[-1], axis=1).tolist())


def test_a_policy_tells_machines_apart() -> None:
    names = [f"{side}/layer_{n}/MatMul" for side in ("left", "right") for n in range(4)]
    crossed = [Tensor(op, 20_000, [op + 1, (op + 5) % 8]) for op in range(8) if op % 4 < 3]
    graph = labelled(OpGraph.build(names, crossed))
    fast, slow = (on_gpus(graph, [100.0] * 8, with_slower_links(factor)) for factor in (1.0, 20.0))
    policy = Reinforce(units=8, learning_rate=0.03, num_placements=10)
    profiles = [profile_of(fast, "0"), profile_of(slow, "1")]
    # Rounding differs between processors, and with it what is learned from a seed.
    found = []
    for seed in range(4):
        state = api.train(policy, profiles, limits=Limits(seed=seed), num_placements=3000).state
        trainer = Trainer(policy, state.network)
        environments = [policy.environment(problem) for problem in (fast, slow)]
        solutions = [each.solution(trainer.most_probable(state, each)) for each in environments]
        found.append([solution.makespan_us for solution in solutions])
        if found[-1] == [463.0, 800.0]:  # two GPUs, and one
            break
    assert found[-1] == [463.0, 800.0], found


def test_a_placement_that_does_not_fit_counts_several_times() -> None:
    graph = labelled(OpGraph.build(["a/x", "b/x"], resident_bytes=[60, 60]))
    problem = on_gpus(graph, [1.0, 1.0], two_gpus(memory_bytes=100))
    environment, policy = Placements.of(problem), Spotlight(out_of_memory_factor=10.0)
    apart, together = (environment.solution(np.array([GPU0, each])) for each in (GPU1, GPU0))
    assert policy.costs_us([apart, together]).tolist() == [1.0, 20.0]


# Training.


@pytest.mark.parametrize("name", NEEDED)
def test_policies_learn_to_use_both_devices(name: str) -> None:
    policy, trained = next(each for each in SMALL if each.name == name), trained_on_towers(name)
    means_us = [point.mean_us for point in trained.state.curve]
    assert np.mean(means_us[:10]) > 500
    assert np.mean(means_us[-20:]) < 430
    environment = policy.environment(towers())
    chosen = Trainer(policy, policy.network).most_probable(trained.state, environment)
    schedule = environment.solution(chosen).schedule
    assert {*schedule.device[:4]} | {*schedule.device[4:]} == {GPU0, GPU1}
    assert schedule.makespan_us == 400.0


@pytest.mark.parametrize("policy", SMALL, ids=lambda policy: policy.name)
def test_a_resumed_training_equals_one_without_a_break(policy: Policy, tmp_path: Path) -> None:
    profiles = [profile_of(towers(3)), profile_of(towers(4), "1")]
    limits = Limits(seed=3)
    whole = api.train(policy, profiles, limits=limits, num_placements=30)
    half = api.train(policy, profiles, limits=limits, num_placements=15)
    write_weights(tmp_path / "half.npz", half)
    resumed = api.train(
        policy, profiles, read_weights(tmp_path / "half.npz"), limits=Limits(), num_placements=15
    )
    for name, trained in (("whole", whole), ("resumed", resumed)):
        write_weights(tmp_path / f"{name}.npz", trained)
    assert (tmp_path / "whole.npz").read_bytes() == (tmp_path / "resumed.npz").read_bytes()
    assert whole.state.curve[-1].num_placements == 30
    assert [point.graph[0] for point in whole.state.curve] == ["0", "1"] * 3
    other = api.train(policy, profiles, limits=Limits(seed=4), num_placements=30)
    assert other.state.curve != whole.state.curve


def test_a_request_to_stop_keeps_what_was_learned() -> None:
    limits = Limits()
    states: list[State] = []

    def stop(trained: Trained) -> None:
        states.append(trained.state)
        if len(states) == 2:
            limits.stop.set()

    trained = api.train(SMALL[0], [profile_of(towers())], limits=limits, on_iteration=stop)
    assert trained.state is states[-1]
    assert len(states) == 2


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        (lambda p: api.train("heft", [p]), "'heft' does not learn; one of spotlight, grl, heterog"),
        (lambda p: api.train("x", [p]), "policy 'x' is unknown; one of spotlight, grl"),
        (lambda p: api.train("spotlight", []), "there is no profile to train on"),
        (lambda p: api.train("spotlight", [p, p]), "profile 2 is profile 1 again"),
        (
            lambda p: api.train("spotlight", [p], limits=Limits(1.0, deterministic=True)),
            "not deterministic; num_placements was expected",
        ),
        (
            lambda p: api.train("grl", [p, profile_of(random_problem(1, 8, num_devices=2), "1")]),
            "machines with 2 and 3 devices",
        ),
        (
            lambda p: api.train("grl", [profile_of(alone(), "1")]),
            "profile 1 has no op that may run on two devices",
        ),
        (lambda p: api.train("grl", p), "profiles is a profile; a list was expected"),
        (lambda p: api.train("grl", [p], p), "start is a profile; a trained policy was expected"),
        (lambda p: api.train("grl", [p], trained("spotlight", 3)), "those of policy 'spotlight'"),
        (
            lambda p: api.train("grl", [p], trained("grl", 5)),
            "for 5 devices, and the machine has 3",
        ),
    ],
)
def test_a_training_that_cannot_work_is_refused(
    attempt: Callable[[Profile], Any], message: str
) -> None:
    with pytest.raises(BadInputError, match=message):
        attempt(profile_of(towers()))


def alone() -> Problem:
    graph = labelled(OpGraph.build(["a/x", "b/x"]))
    return on_gpus(graph, [1.0, 1.0], Machine((Device("GPU:0", "GPU", 10**9),), ()))


def trained(policy: str = "spotlight", num_devices: int = 3, seed: int = 0) -> Trained:
    state = State.initial(SMALL[0], num_devices, seed)
    return Trained(policy, seed, state, settings_of(SMALL[0]))


# Rewards from real steps.


@pytest.fixture(scope="module")
def two_towers() -> tuple[Any, Profile]:
    """A graph, and its profile on two devices of this process."""
    meta = exported_step(build_towers)
    links = [CommFit("CPU", "CPU", CommModel(100.0, 1e-3), signal_us=100.0)]
    return meta, api.profile_by_run(meta, two_cpus(), steps=3, comm=links)


def test_rewards_from_real_steps_are_measured_step_times(
    two_towers: tuple[Any, Profile], monkeypatch: pytest.MonkeyPatch
) -> None:
    meta, profile = two_towers
    ran: list[list[RealRun]] = []

    def watched(*given: Any) -> list[RealRun]:
        ran.append(compared(*given))
        return ran[-1]

    monkeypatch.setattr(api_training, "compared", watched)
    real = api.RealSteps(meta, two_cpus(), steps=2)
    trained = api.train(SMALL[0], [profile], num_placements=10, real=real)
    means_us = [np.mean([run.times.median_us for run in runs]) for runs in ran]
    assert [len(runs) for runs in ran] == [5, 5]
    assert [point.mean_us for point in trained.state.curve] == pytest.approx(means_us)
    assert not any(run.verification.departures for runs in ran for run in runs)
    policy = SMALL[0]
    profile = replace(profile, problem=profile.problem.constrained(headroom=1e-9))
    environment = policy.environment(profile.problem)
    solution = environment.solution(np.zeros(environment.num_decisions, dtype=np.int64))
    costs_us = real.costs_us(policy, profile, [solution])  # it does not fit, so it does not run
    assert costs_us == pytest.approx(policy.out_of_memory_factor * solution.schedule.makespan_us)
    assert len(ran) == 2


def test_a_placement_that_cannot_run_counts_as_one_that_does_not_fit(
    two_towers: tuple[Any, Profile], monkeypatch: pytest.MonkeyPatch
) -> None:
    meta, profile = two_towers
    policy = SMALL[0]
    environment = policy.environment(profile.problem)
    solutions = [
        environment.solution(np.full(environment.num_decisions, device)) for device in (0, 1)
    ]

    def no_second_device(meta: Any, cluster: Any, placements: Any, *more: Any) -> list[RealRun]:
        if any(1 in each.device for each in placements):
            raise EnvironmentFailedError("the devices could not run the step: out of memory")
        return compared(meta, cluster, placements, *more)

    monkeypatch.setattr(api_training, "compared", no_second_device)
    ran: list[float] = []
    real = api.RealSteps(meta, two_cpus(), 2, on_measured=lambda placed, us: ran.append(us))
    first_us, second_us = real.costs_us(policy, profile, solutions)
    simulated_us = policy.costs_us(solutions)
    assert ran == [first_us]
    assert second_us == policy.out_of_memory_factor * simulated_us[1]
    with pytest.raises(EnvironmentFailedError, match="out of memory"):
        real.costs_us(policy, profile, solutions[1:])


def test_real_steps_of_another_graph_or_of_several_profiles_are_refused(
    two_towers: tuple[Any, Profile],
) -> None:
    meta, profile = two_towers
    real = api.RealSteps(meta, two_cpus(), steps=2)
    other = replace(profile, provenance={**profile.provenance, "graph_hash": "1" * 64})
    with pytest.raises(BadInputError, match="the profile is of another graph"):
        api.train(SMALL[0], [other], num_placements=5, real=real)
    with pytest.raises(BadInputError, match="there are 2 profiles for the real steps of one graph"):
        api.train(SMALL[0], [profile, other], num_placements=5, real=real)


# Weights.


def test_weights_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "w.npz"
    limits = Limits(seed=2**64)
    written = api.train(SMALL[0], [profile_of(towers())], limits=limits, num_placements=10)
    write_weights(path, written)
    found = read_weights(path)
    assert (found.policy, found.seed) == ("spotlight", 2**64)
    assert found.state.curve == written.state.curve
    assert found.state.trials == written.state.trials
    assert list(found.state.trials) == ["0" * 64]
    assert found.state.moments.num_steps == 20
    for part in ("weights", "moments.mean", "moments.square"):
        ours, theirs = (eval(f"each.state.{part}", {"each": each}) for each in (written, found))
        assert ours.keys() == theirs.keys()
        assert all((ours[name] == theirs[name]).all() for name in ours)
    api.save(tmp_path / "again.npz", api.load(path))
    assert (tmp_path / "again.npz").read_bytes() == path.read_bytes()
    with np.load(path, allow_pickle=False) as arrays:  # it is an .npz file
        assert arrays["weights/output"].shape == (16, 3)


def test_weights_keep_the_settings_of_their_training(tmp_path: Path) -> None:
    path, asked = tmp_path / "w.npz", HeteroG(units=8, layers=1, heads=2, groups=3)
    api.save(path, api.train(asked, [profile_of(towers())], num_placements=5))
    found = read_weights(path)
    assert found.settings == {"units": 8, "layers": 1, "heads": 2, "groups": 3}
    assert found.configured(HeteroG()) == asked
    assert found.configured(HeteroG(groups=4)) == replace(asked, groups=4)
    more = api.train("heterog", [profile_of(towers())], found, num_placements=5)
    assert more.settings == found.settings
    changed(path, header=header(path, settings={"units": 8, "depth": 3}))
    with pytest.raises(BadInputError, match="a setting 'depth', which heterog does not know"):
        api.solve(profile_of(towers()), "heterog", weights=str(path), time_limit_s=0.01)


def changed(path: Path, **members: bytes | None) -> None:
    """Replace or remove members of a zip file; `_` stands for `/`, and names have no ending."""
    with zipfile.ZipFile(path) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    for key, data in members.items():
        name = next(each for each in content if each.replace("/", "_").startswith(key))
        content[name] = data
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in content.items():
            if data is not None:
                archive.writestr(name, data)


def npy(values: np.ndarray) -> bytes:
    data = io.BytesIO()
    np.save(data, values, allow_pickle=True)
    return data.getvalue()


def header(path: Path, **entries: Any) -> bytes:
    with zipfile.ZipFile(path) as archive:
        return json.dumps(json.loads(archive.read("header.json")) | entries).encode()


NO_TRIALS = {"count": 0, "mean": 0, "variance": 0, "best_us": 0, "kept": [], "recent_us": []}
CHANGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "text": (
        lambda p: p.write_text("hello") and None,
        "damaged, of another version or no file of weights",
    ),
    "empty": (lambda p: p.write_bytes(b""), "damaged, of another version or no file of weights"),
    "truncated": (
        lambda p: p.write_bytes(p.read_bytes()[:-300]),
        "damaged, of another version or no file of weights",
    ),
    "bit": (
        lambda p: p.write_bytes(p.read_bytes().replace(p.read_bytes()[9000:9008], b"\xff" * 8)),
        "damaged, of another version or no file of weights",
    ),
    "version": (lambda p: changed(p, header=header(p, version=2)), "is version 2 of pesto-weights"),
    "format": (lambda p: changed(p, header=header(p, format="x")), "format 'x', 'pesto-weights'"),
    "key": (lambda p: changed(p, header=header(p, more=1)), "more is an unknown key"),
    "devices": (lambda p: changed(p, header=header(p, num_devices=4)), "was expected"),
    "units": (lambda p: changed(p, header=header(p, sizes={"units": 10**12})), "was expected"),
    "negative": (lambda p: changed(p, header=header(p, sizes={"units": -8})), "is too small"),
    "seed": (lambda p: changed(p, header=header(p, seed=-1)), "greater than or equal to 0"),
    "steps": (lambda p: changed(p, header=header(p, num_steps=-1)), "greater than or equal to 0"),
    "network": (lambda p: changed(p, header=header(p, network="x")), "another version or no file"),
    "sizes": (lambda p: changed(p, header=header(p, sizes={})), "another version or no file"),
    "no header": (lambda p: changed(p, header=None), "no item named 'header.json'"),
    "no array": (lambda p: changed(p, weights_output=None), "no item named 'weights/output.npy'"),
    "pickle": (
        lambda p: changed(p, weights_output=npy(np.full((16, 3), None))),
        "weights/output.npy is object",
    ),
    "huge": (
        lambda p: changed(
            p, weights_output=npy(np.zeros((16, 3), "f4")).replace(b"(16, 3)", b"(9e9,3)")
        ),
        "damaged, of another version or no file of weights",
    ),
    "dictionary": (
        lambda p: changed(
            p, weights_output=npy(np.zeros((16, 3), np.float32)).replace(b"}", b" ", 1)
        ),
        "damaged, of another version or no file of weights",
    ),
    "order": (
        lambda p: changed(p, weights_output=npy(np.zeros((16, 3), np.float32, "F"))),
        "weights/output.npy is in Fortran order",
    ),
    "short": (
        lambda p: changed(p, weights_output=npy(np.zeros((16, 3), np.float32))[:-4]),
        "damaged, of another version or no file of weights",
    ),
    "nan": (
        lambda p: changed(p, weights_output=npy(np.full((16, 3), np.nan, np.float32))),
        "weights/output.npy has a number that is not finite",
    ),
    "square": (
        lambda p: changed(p, square_output=npy(np.full((16, 3), -1, np.float32))),
        "square/output.npy has a mean of squares that is negative",
    ),
    "mean": (
        lambda p: changed(p, header=header(p, trials={"g": {**NO_TRIALS, "mean": 1e200}})),
        "less than or equal to 1000000000000000",
    ),
}


def test_weights_that_are_not_finite_are_not_written(tmp_path: Path) -> None:
    found, path = trained(), tmp_path / "w.npz"
    next(iter(found.state.weights.values()))[:] = np.nan
    with pytest.raises(BadInputError, match="the training has diverged"):
        write_weights(path, found)
    assert not path.exists()


def with_compression(data: bytes, kind: int) -> bytes:
    """An archive whose first member says that it is compressed."""
    at = data.index(b"PK\x01\x02") + 10
    return data[:at] + bytes([kind]) + data[at + 1 :]


@pytest.mark.parametrize("kind", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_members_that_cannot_be_decompressed_are_refused(tmp_path: Path, kind: int) -> None:
    path = tmp_path / "w.npz"
    write_weights(path, trained())
    path.write_bytes(with_compression(path.read_bytes(), kind))
    with pytest.raises(BadInputError, match="another version or no file of weights"):
        read_weights(path)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_placements": 0}, "num_placements is 0"),
        ({"num_steps": 2.5}, "num_steps is 2.5"),
        ({"learning_rate": -1.0}, "learning_rate is -1.0"),
        ({"num_steps": 10**12}, "num_steps is 1000000000000; .* up to 10,000"),
        ({"num_placements": 10**9}, "num_placements is 1000000000; .* up to 10,000"),
        ({"prior": 1.0}, "prior is 1.0; .* less than 1 for prior"),
        ({"prior": 0.5}, "prior is 0.5; 0 was expected, because only heterog has one"),
    ],
)
def test_wrong_settings_of_weights_are_refused(
    tmp_path: Path, settings: dict[str, float], message: str
) -> None:
    path = tmp_path / "w.npz"
    write_weights(path, trained())
    changed(path, header=header(path, settings={"units": 8, **settings}))
    with pytest.raises(BadInputError, match=message):
        run(towers(), trained().policy, Context(), weights=str(path))


def test_weights_are_for_a_network_of_their_sizes(tmp_path: Path) -> None:
    path = str(tmp_path / "w.npz")
    write_weights(path, trained())
    with pytest.raises(BadInputError, match=r"are those of .*units=8.*; those of .*units=16"):
        run(towers(), trained().policy, Context(), weights=path, units=16)
    with pytest.raises(BadInputError, match="has weights of its own"):
        api.train(Spotlight(weights=path), [profile_of(towers())], num_placements=5)


@pytest.mark.parametrize("name", CHANGES)
def test_a_file_that_is_no_file_of_weights_is_refused(tmp_path: Path, name: str) -> None:
    change, message = CHANGES[name]
    path = tmp_path / "w.npz"
    write_weights(path, trained())
    change(path)
    with pytest.raises(BadInputError, match=message) as refused:
        read_weights(path)
    assert str(refused.value).startswith(str(path))


def test_weights_that_are_larger_than_the_limit_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "w.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", b" " * 10**6)
    with api.input_limit(10**5), pytest.raises(BadInputError, match="the limit for inputs"):
        read_weights(path)


# Strategies.


@pytest.mark.parametrize("name", LEARNED)
def test_schedules_are_valid_and_repeat(name: str) -> None:
    quick = Context(Limits(time_limit_s=1e-3, deterministic=True))
    for seed in range(2):
        problem = random_problem(seed, 8)
        first, second = (run(problem, name, quick, units=8) for _ in range(2))
        broken = violations(problem, first.schedule)
        assert [each for each in broken if each.rule != "memory"] == []
        assert 0 <= first.lower_bound_us <= first.makespan_us + 1e-9
        assert first.schedule.device.tolist() == second.schedule.device.tolist()
        assert first.schedule.rank.tolist() == second.schedule.rank.tolist()


@pytest.mark.parametrize("name", NEEDED)
def test_trained_weights_place_at_once_and_others_are_refused(name: str, tmp_path: Path) -> None:
    problem, path = towers(), str(tmp_path / "w.npz")
    write_weights(path, trained_on_towers(name))
    stages: list[str] = []
    context = Context(
        Limits(time_limit_s=1e-3, deterministic=True),
        on_progress=lambda progress: stages.append(progress.source),
    )
    result = run(problem, name, context, weights=path)
    assert (result.makespan_us, stages[-1]) == (400.0, "most probable")
    with pytest.raises(BadInputError, match=f"{path}: .* for 3 devices, and the machine has 2"):
        run(random_problem(1, 8, num_devices=2), name, context, weights=path)


@pytest.mark.parametrize("time_limit_s", [13, 16])
def test_an_iteration_begins_only_if_it_can_end_in_time(
    time_limit_s: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulated, solution = list[IntArray](), Placements.solution

    def simulate(self: Placements, chosen: IntArray) -> Solution:
        simulated.append(chosen)
        return solution(self, chosen)

    monkeypatch.setattr(Placements, "solution", simulate)
    monkeypatch.setattr(time, "monotonic", lambda: len(simulated))  # each takes a second
    Spotlight()(towers(num_layers=20), Context(Limits(time_limit_s=time_limit_s)))
    # The most probable placement, and then five placements in each iteration.
    assert len(simulated) == 1 + (time_limit_s - 1) // 5 * 5


def test_a_warm_start_is_never_made_worse() -> None:
    problem = towers()
    best = run(problem, "metis", Context()).schedule
    context = Context(Limits(time_limit_s=1e-3, deterministic=True), warm_start=best.placement)
    assert run(problem, "grl", context, units=8).makespan_us <= best.makespan_us


def test_ops_of_types_that_were_never_seen_are_placed(tmp_path: Path) -> None:
    path = str(tmp_path / "w.npz")
    write_weights(path, trained())
    problem = towers()
    other = on_gpus(replace(problem.graph, types=("Unknown>Op",) * 8), [100.0] * 8)
    quick = Context(Limits(time_limit_s=1e-3, deterministic=True))
    assert violations(other, run(other, "spotlight", quick, weights=path).schedule) == []


def test_comparing_all_strategies_leaves_out_those_that_learn() -> None:
    found = api.compare(profile_of(towers()), time_limit_s=0.1)
    assert not {*LEARNED} & {each.strategy for each in found}
    assert {"spotlight", "grl", "heterog"} == {*LEARNED}


# The command.


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the profile of two towers."""
    monkeypatch.chdir(tmp_path)
    write_profile("x.profile.json", profile_of(towers()))
    return tmp_path


def test_train_writes_weights_and_a_curve_and_solve_uses_them(pesto: Pesto, folder: Path) -> None:
    argv = ("train", "grl", "x.profile.json", "--placements", "20")
    plain = pesto(*argv, "-o", "w.npz", "--plot", "curve.svg")
    assert plain.code == 0, plain.err
    assert len(plain.err.splitlines()) == 3  # after 1, 2 and 4 iterations
    assert "x.profile.json" in plain.out
    assert (folder / "curve.svg").read_text().count("best so far")
    more = pesto(*argv, "-o", "w.npz", "--weights", "w.npz", "--json", "--quiet")
    curve = json.loads(more.out)
    assert [point["num_placements"] for point in curve] == [5, 10, 15, 20, 25, 30, 35, 40]
    assert more.err == ""
    solve = ("solve", "x.profile.json", "-o", "p.json", "--deterministic", "--time-limit", "0.01")
    assert pesto(*solve, "--strategy", "grl", "--weights", "w.npz", "--quiet").code == 0
    parameters = json.loads(Path("p.json").read_text())["provenance"]["parameters"]
    assert parameters["weights"] == read_weights("w.npz").file_hash
    wrong = pesto(*solve, "--strategy", "heft", "--weights", "w.npz")
    assert (wrong.code, "--weights is not an option of 'heft'" in wrong.err) == (2, True)
    Path("other").mkdir()
    write_profile("other/x.profile.json", profile_of(towers(2)))
    both = (*argv[:3], "other/x.profile.json", *argv[3:])
    assert pesto(*both, "-o", "both.npz").out.count("x.profile.json") == 2
    refused = pesto(*argv, "-o", "v.npz", "--weights", "w.npz", "--seed", "1")
    assert (refused.code, "leave out one of them" in refused.err) == (2, True)
    other = pesto("train", "spotlight", *argv[2:], "-o", "v.npz", "--weights", "w.npz")
    assert (other.code, "w.npz: the weights are those of policy 'grl'" in other.err) == (2, True)
    damaged = pesto(*argv, "-o", "v.npz", "--weights", "x.profile.json")
    assert (damaged.code, "x.profile.json is damaged, of another" in damaged.err) == (2, True)


def test_train_by_real_steps(
    pesto: Pesto, two_towers: tuple[Any, Profile], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    meta, profile = two_towers
    write_meta_graph("towers.meta", meta)
    write_profile("towers.profile.json", profile)
    monkeypatch.setattr(cli_training, "connected", lambda *given: nullcontext(two_cpus()))
    argv = ("train", "spotlight", "towers.profile.json", "--placements", "5", "-o", "w.npz")
    machine = ("-m", "local-workers:2", "--steps", "2")
    files = ("--graph", "towers.meta", "--best", "best.json")
    done = pesto(*argv, *machine, *files, "--json", "--quiet")
    assert done.code == 0, done.err
    assert json.loads(done.out)[0]["mean_us"] > 0
    before = Path("best.json").read_bytes()
    again = (*machine, *files, "--weights", "w.npz")
    monkeypatch.setattr(api_training, "compared", slowly)
    slower = pesto(*argv, *again)
    assert (slower.code, slower.err.splitlines()[-1][:18]) == (0, "best.json is kept:")
    assert Path("best.json").read_bytes() == before
    failing = chain([compared], repeat(dead))
    monkeypatch.setattr(api_training, "compared", lambda *given: next(failing)(*given))
    more = ("--placements", "10", "-o", "v.npz", "--graph", "towers.meta")
    failed = pesto("train", "spotlight", "towers.profile.json", *machine, *more)
    assert (failed.code, "v.npz has the weights from before the failure" in failed.err) == (5, True)
    assert read_weights("v.npz").state.num_placements == 5
    measured = api.read_placement("best.json")
    assert measured.predicted["measured_us"] > 0
    assert json.loads(done.out)[0]["best_us"] == measured.predicted["measured_us"]
    without = pesto(*argv, *machine)
    assert (without.code, "--graph GRAPH was expected" in without.err) == (2, True)
    alone = pesto(*argv, "--graph", "towers.meta")
    assert (alone.code, "--machine was expected with them" in alone.err) == (2, True)


def slowly(*given: Any) -> list[RealRun]:
    """Run the steps, and count an hour for each."""
    return [
        replace(run, times=replace(run.times, us=run.times.us + 3.6e9)) for run in compared(*given)
    ]


def dead(*given: Any) -> list[RealRun]:
    raise EnvironmentFailedError("worker 1 of local-workers:2 has died")


def test_ctrl_c_keeps_the_weights_and_exits_130(folder: Path) -> None:
    command = [sys.executable, "-m", "pesto_cli", "train", "grl", "x.profile.json", "-o", "w.npz"]
    program = (
        "from pesto_cli.cli import main; import sys; sys.argv = ['pesto'] + sys.argv[1:]; main()"
    )
    command[1:3] = ["-c", program]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        while "placements" not in (line := process.stderr.readline()):
            assert line, "the training ended"
        process.send_signal(signal.SIGINT)
        _, rest = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "Interrupted: the weights so far are in w.npz." in rest
    assert read_weights("w.npz").state.num_placements >= 5


def test_without_an_iteration_no_weights_are_written(
    pesto: Pesto, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    argv = ("train", "grl", "x.profile.json", "-o", "w.npz")
    late = pesto(*argv, "--time-limit", "1e-9")
    assert (late.code, "the time limit ended before the first iteration" in late.err) == (4, True)
    monkeypatch.setattr(cli_training, "stoppable", lambda: nullcontext(stopped()))
    done = pesto(*argv)
    assert (done.code, done.out) == (130, "")
    assert done.err.splitlines()[-1] == (
        "Interrupted before the first iteration: nothing was learned, so w.npz is not written."
    )
    assert not Path("w.npz").exists()


def stopped() -> threading.Event:
    event = threading.Event()
    event.set()
    return event
