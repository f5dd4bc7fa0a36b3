"""HeteroG: its network, its groups, the plans of its actions, and what it learns from."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Pesto, on_gpus, two_gpus
from random_problems import random_problem
from split_model import dense, dense_with
from split_training import check_equal, trained
from training_graphs import exported

from benchmarks import zero_shot
from pesto_cli import api
from pesto_cli.apply.splitting import split_graph
from pesto_cli.data.graph import OpGraph, Tensor
from pesto_cli.data.limits import Limits
from pesto_cli.data.plan import Choice, Plan
from pesto_cli.data.problem import Problem
from pesto_cli.data.solution import Solution
from pesto_cli.errors import BadInputError
from pesto_cli.evaluation.violations import violations
from pesto_cli.files import PlacementFile, Profile
from pesto_cli.learned import graph_attention
from pesto_cli.learned.graph_attention import GraphAttention
from pesto_cli.learned.groups import around_longest
from pesto_cli.learned.heterog import PAPER, PROGRAM, HeteroG
from pesto_cli.learned.network import allowed_logits
from pesto_cli.learned.plans import Plans
from pesto_cli.learned.prior import best_action, one_action, preferring
from pesto_cli.learned.training import State, Trainer
from pesto_cli.learned.trials import Trials
from pesto_cli.learned.weights import read_weights, write_weights
from pesto_cli.strategies import STRATEGIES, Context
from pesto_cli.strategies.run import run

WAYS = ("ev-ps", "ev-ar", "cp-ps", "cp-ar")
SMALL = HeteroG(units=8, heads=2, layers=1, learning_rate=0.02, groups=12)


@pytest.fixture(scope="module")
def priced() -> Profile:
    return api.profile(exported(dense), "v100x2-nvlink", parts=(2, 4))


def choices_of(solution: Solution) -> Mapping[str, Choice]:
    return {} if solution.plan is None else solution.plan.choices


# The network.


def weights_of(network: GraphAttention, num_devices: int = 2) -> dict[str, np.ndarray]:
    """Random weights; those of the output are not zero."""
    rng, weights = np.random.default_rng(0), network.initial_weights(3, num_devices, seed=1)
    return weights | {
        name: rng.normal(size=value.shape).astype(np.float32)
        for name, value in weights.items()
        if name == "output" or name.endswith("_bias")
    }


def test_an_op_attends_to_its_neighbours() -> None:
    network = GraphAttention(4, layers=1, heads=2, strategy_layers=0)
    weights, rng = weights_of(network), np.random.default_rng(1)
    ops = rng.normal(size=(3, 3)).astype(np.float32)
    edges = np.array([[0, 0], [1, 1], [2, 2], [0, 1], [2, 1]])
    found = network._neighbours(
        weights, "graph_0", graph_attention.tensorflow().constant(ops), edges
    )
    values = (ops @ weights["graph_0/kernel"]).reshape(3, 2, 2)
    expected = np.zeros((3, 2, 2))
    for op, neighbours in enumerate(([0], [0, 1, 2], [2])):
        for head in range(2):
            score = np.array(
                [
                    values[op, :, head] @ weights["graph_0/receiver"][:, head]
                    + values[other, :, head] @ weights["graph_0/sender"][:, head]
                    for other in neighbours
                ]
            )
            share = np.exp(np.where(score > 0, score, 0.2 * score))
            expected[op, :, head] = share / share.sum() @ values[neighbours, :, head]
    expected = np.where(expected > 0, expected, np.exp(expected) - 1).reshape(3, 4)
    assert found.numpy() == pytest.approx(expected, abs=1e-5)


def test_scores_by_distance_become_scores_by_pairs() -> None:
    distance = np.arange(2, -3, -1.0)  # 2, 1, 0, -1, -2
    by_distance = np.stack([distance + 10 * group for group in range(3)])[None].astype(np.float32)
    expected = [[10 * i + i - j for j in range(3)] for i in range(3)]
    assert graph_attention._shifted(by_distance).numpy()[0].tolist() == expected
    codes = graph_attention._sinusoids(3, 4)
    assert codes[2].tolist() == [0, 0, 1, 1]  # of distance 0
    assert codes[0] == pytest.approx(np.array([np.sin(2), np.sin(0.02), np.cos(2), np.cos(0.02)]))


@pytest.mark.parametrize("separate_heads", [False, True])
def test_samples_follow_the_probabilities(separate_heads: bool) -> None:
    network = GraphAttention(4, 1, 2, 1, separate_heads)
    weights, rng = weights_of(network), np.random.default_rng(2)
    edges = np.array([[0, 0], [1, 1], [2, 2], [0, 1], [1, 0]])
    allowed = np.ones((2, 6), np.bool_)
    allowed[0, 0] = False
    inputs = rng.normal(size=(3, 3)).astype(np.float32), edges, np.array([0, 0, 1])
    inputs = (*inputs, allowed_logits(allowed))
    noise = rng.gumbel(size=(2, 8000, 6)).astype(np.float32)
    drawn = network.sample(weights, inputs, noise).numpy()
    q = np.exp(network.log_probabilities(weights, inputs, drawn).numpy()[:, 0])
    assert q.sum(axis=1) == pytest.approx([1.0, 1.0])
    assert q[0, 0] == 0
    for group in range(2):
        counted = np.bincount(drawn[group], minlength=6) / 8000
        assert counted == pytest.approx(q[group], abs=0.03)
    products = q[:, 2] * q[:, 5], q[:, 3] * q[:, 4]  # ev-ps and cp-ar, ev-ar and cp-ps
    assert (products[0] == pytest.approx(products[1])) == separate_heads


def test_sizes_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="8 units are no multiple of 3 heads"):
        GraphAttention(8, 1, 3, 1)
    assert (PAPER.network.layers, PROGRAM.network.strategy_layers) == (12, 12)  # type: ignore[attr-defined]


# Groups and plans.


def test_ops_join_the_nearest_of_the_longest_ops() -> None:
    chain = [Tensor(op, 8, [op + 1]) for op in range(5)]
    graph = OpGraph.build([f"op_{op}" for op in range(7)], chain)
    problem = on_gpus(graph, [1.0, 9.0, 1.0, 1.0, 8.0, 1.0, 1.0])
    # Op 2 is near op 1, op 3 near op 4. Op 6 has no edges: it joins the longest op.
    assert around_longest(problem, 2).of_op.tolist() == [0, 0, 0, 1, 1, 1, 0]
    assert len(around_longest(problem, 100)) == 7
    tie = on_gpus(graph, [1.0, 9.0, 1.0, 8.0, 1.0, 1.0, 1.0])
    assert around_longest(tie, 2).of_op.tolist() == [0, 0, 0, 1, 1, 1, 0]


@pytest.mark.parametrize("machine", ["v100x2-nvlink", "heterog-4"])
def test_one_way_for_all_groups_is_the_step_of_a_baseline(machine: str) -> None:
    problem = api.profile(exported(dense), machine, parts=(2, 4, 8)).problem
    slower = 2.0 ** np.arange(len(problem.kinds))  # the ops are so short that all GPUs are alike
    problem = replace(problem, time_us=problem.time_us * slower)
    plans = Plans.of(problem, 100)
    found = []
    for number, name in enumerate(WAYS):
        ours = plans.solution(np.full(plans.num_decisions, problem.num_devices + number))
        assert choices_of(ours) == choices_of(STRATEGIES.find(name)(problem, Context()))
        assert violations(ours.problem, ours.schedule) == []
        assert ours.plan is not None
        assert bool(ours.plan.hosts) == (machine == "heterog-4" and name.endswith("ar"))
        found.append(choices_of(ours))
    assert found[0] != found[1]
    assert (found[0] == found[2]) == (machine == "v100x2-nvlink")


def test_with_prices_of_fewer_parts_only_the_fastest_devices_have_parts() -> None:
    problem = api.profile(exported(dense), "heterog-4", parts=(2,)).problem
    plans = Plans.of(problem, 100)
    ours = plans.solution(np.full(plans.num_decisions, problem.num_devices))
    theirs = STRATEGIES.find("ev-ps")(problem, Context())
    assert choices_of(ours) == choices_of(theirs)
    assert {each.num_parts for each in choices_of(ours).values()} == {2}


def test_the_benchmark_replicates_all_groups(priced: Profile) -> None:
    problem = priced.problem
    found = zero_shot.placed(problem, problem)
    assert found.num_ops == STRATEGIES.find("cp-ar")(problem, Context()).problem.num_ops
    assert min(found.ways_s, found.network_s, found.plan_s) > 0


def test_groups_take_different_actions(priced: Profile) -> None:
    problem, rng = priced.problem, np.random.default_rng(0)
    plans = Plans.of(problem, 100)
    group_of, split = plans.groups.of_op, 0
    for _ in range(20):
        chosen = rng.integers(1, plans.num_actions, plans.num_decisions)
        solution = plans.solution(chosen)
        assert violations(solution.problem, solution.schedule) == []
        choices = choices_of(solution)
        split += len(choices)
        for op in np.flatnonzero(group_of >= 0).tolist():
            action = chosen[group_of[op]]
            if action < problem.num_devices:
                assert problem.graph.names[op] not in choices
                place = np.flatnonzero(solution.origin == op)
                is_wait = problem.graph.types[op] == "NoOp"  # waits are split between parts
                assert is_wait or (solution.schedule.device[place] == action).all()
    assert split > 100


def test_ops_that_the_user_splits_are_split(priced: Profile) -> None:
    every = choices_of(STRATEGIES.find("ev-ps")(priced.problem, Context()))
    problem = replace(priced.problem, chosen=Plan({"product": every["product"]}))
    plans = Plans.of(problem, 100)
    assert choices_of(plans.solution(np.full(plans.num_decisions, 1))).keys() == {"product"}


@pytest.mark.parametrize(
    ("parts", "machine", "ways", "words"),
    [
        ((), "v100x2-nvlink", 0, "no group is replicated: the profile has no prices of parts"),
        ((2,), "heterog-4", 4, None),
        ((2, 4), "heterog-4", 4, None),
        ((2,), "v100x2-nvlink", 4, None),
    ],
)
def test_ways_without_prices_are_left_out(
    parts: tuple[int, ...], machine: str, ways: int, words: str | None
) -> None:
    problem = api.profile(exported(dense), machine, parts=parts).problem
    plans = Plans.of(problem, 5)
    allowed = (plans.inputs[-1] == 0).all(axis=0)
    assert allowed[problem.num_devices :].sum() == ways
    quick = Context(Limits(time_limit_s=1e-3, deterministic=True))
    result = run(problem, SMALL, quick)
    assert result.solution.notes == plans.notes
    assert len(plans.notes) == (words is not None)
    if words:
        assert words in plans.notes[0]


# Rewards and replays.


def test_rewards_are_square_roots_and_their_average_moves() -> None:
    policy = HeteroG(new_share=0.5)
    trials = policy.extended(Trials(), np.array([16.0, 16.0]))
    trials = policy.extended(trials, np.array([4.0, 4.0]))
    assert (trials.mean, trials.best_us) == (-3.0, 4.0)
    assert trials.variance == pytest.approx(1.0)
    # A later iteration counts as much as all before it: -3 and -1 give -2.
    trials = policy.extended(trials, np.array([1.0] * 2))
    assert trials.mean == -2.0
    advantage = policy.advantage(trials, np.array([1.0, 9.0]))
    assert advantage == pytest.approx(np.array([1.0, -1.0]) / np.sqrt(trials.variance))
    in_ms = replace(policy, is_scaled=False).advantage(trials, np.array([1.0, 9.0]))
    assert in_ms == pytest.approx(np.array([1.0, -1.0]) / np.sqrt(1000.0))


def test_the_entropy_counts_more_while_the_policy_is_stuck() -> None:
    policy = replace(PROGRAM, new_share=0.5)
    trials = Trials()
    for iteration in range(19):
        trials = policy.extended(trials, np.array([100.0 + iteration, 200.0]))
    assert policy.at(trials) == policy
    for _ in range(16):
        trials = policy.extended(trials, np.array([100.0, 200.0]))
    assert len(trials.recent_us) == 20
    assert policy.at(trials) == policy  # five different best placements
    trials = policy.extended(trials, np.array([100.0, 300.0]))
    assert policy.at(trials).entropy_weight == 50 * policy.entropy_weight == 1250
    assert replace(SMALL, new_share=0.5).at(trials) == replace(SMALL, new_share=0.5)


def test_random_actions_are_allowed_and_the_most_probable_ones_come_last(priced: Profile) -> None:
    policy = replace(SMALL, with_most_probable=True, random_share=1.0, num_placements=40)
    environment = policy.environment(priced.problem)
    state = State.initial(policy, priced.problem.num_devices, 0)
    trainer = Trainer(policy, state.network)
    chosen = trainer.drawn(state, environment)
    assert len(chosen) == policy.num_timed == 41
    assert (chosen[-1] == trainer.most_probable(state, environment)).all()
    logits = environment.inputs[-1]
    assert (logits[np.arange(environment.num_decisions), chosen] == 0).all()
    plain = Trainer(replace(policy, random_share=0.0), state.network).drawn(state, environment)
    redrawn = (chosen != plain)[:-1].mean(axis=1)
    assert 0 < redrawn.min(initial=1.0, where=redrawn > 0) < redrawn.max() < 1
    learned = api.train(policy, [priced], num_placements=1)
    assert learned.state.num_placements == 41


def test_the_best_placements_are_kept_once() -> None:
    costs_us, chosen = np.array([5.0, 3.0, 4.0]), np.array([[0, 1], [1, 1], [0, 0]])
    trials = Trials().keeping(2, costs_us, chosen).keeping(2, costs_us[:1], chosen[1:2])
    assert [each.actions for each in trials.kept] == [(0, 0), (1, 1)]
    assert Trials().keeping(0, costs_us, chosen).kept == ()


def test_the_first_placements_have_one_action(priced: Profile, tmp_path: Path) -> None:
    policy = replace(SMALL, num_kept=20, num_placements=2)
    first = api.train(policy, [priced], num_placements=1)
    names = ("single", *WAYS)
    best_us = min(run(priced.problem, name, Context()).makespan_us for name in names)
    assert first.state.curve[0].num_placements == 6  # two GPUs, four ways
    assert first.state.curve[0].best_us <= best_us * 1.001
    longer = api.train(policy, [priced], first, num_placements=20)
    whole = api.train(policy, [priced], num_placements=26)
    for name, each in (("longer", longer), ("whole", whole)):
        write_weights(tmp_path / f"{name}.npz", each)
    assert (tmp_path / "longer.npz").read_bytes() == (tmp_path / "whole.npz").read_bytes()
    (trials,) = read_weights(tmp_path / "whole.npz").state.trials.values()
    assert trials.kept == next(iter(whole.state.trials.values())).kept
    assert trials.kept[0].cost_us == trials.best_us


def test_a_search_begins_near_the_best_plan_with_one_action(
    priced: Profile, tmp_path: Path
) -> None:
    problem, policy = priced.problem, replace(SMALL, prior=0.9)
    environment, uniform = preferred_by_hand(policy, problem, 2)
    stages = dict[str, float]()
    context = Context(
        Limits(time_limit_s=1e-3, deterministic=True),
        on_progress=lambda progress: stages.update({progress.stage: progress.makespan_us}),
    )
    best_us = run(problem, policy, context).makespan_us
    simulated = [environment.solution(actions).schedule.makespan_us for actions in uniform]
    assert best_us <= min(simulated)
    assert "one action" in stages
    path = str(tmp_path / "w.npz")
    write_weights(path, api.train(policy, [priced], num_placements=1))
    assert run(problem, policy, context, weights=path).makespan_us <= min(simulated)
    stages.clear()
    run(problem, replace(policy, prior=0.0), context)
    assert "one action" not in stages


def preferred_by_hand(policy: HeteroG, problem: Problem, action: int) -> tuple[Plans, np.ndarray]:
    """Check the probabilities of a policy with a prior; return its environment and uniform rows."""
    environment = policy.environment(problem)
    assert isinstance(environment, Plans)
    state = State.initial(policy, problem.num_devices, 0)
    for each in (1 - action % 2, action):  # the second one takes the place of the first one
        state = replace(state, weights=preferring(state.weights, each, policy.prior))
    uniform, trainer = environment.uniform(), Trainer(policy, state.network)
    q = np.exp(
        policy.network.log_probabilities(state.weights, environment.inputs, uniform[:1].T).numpy()
    )[:, 0]
    odds = policy.prior / (1 - policy.prior) * (environment.num_actions - 1)
    num_others = environment.allowed.sum(axis=1) - 1
    assert q[:, action] == pytest.approx(odds / (odds + num_others), abs=1e-4)
    assert (q[:, action] >= policy.prior - 1e-4).all()
    assert (trainer.most_probable(state, environment) == action).all()
    return environment, uniform


def sigmoid(tf: Any) -> Sequence[Any]:
    """Another model."""
    return dense_with(tf, tf.nn.sigmoid, num_classes=400)


def test_a_training_begins_near_the_action_that_is_best_on_all_graphs(priced: Profile) -> None:
    profiles = [priced, api.profile(exported(sigmoid), "v100x2-nvlink", parts=(2, 4))]
    costs_us = [
        {action: us for action, us, _ in one_action(SMALL, environment, lambda: False)}
        for environment in (SMALL.environment(each.problem) for each in profiles)
    ]
    products = {action: costs_us[0][action] * costs_us[1][action] for action in costs_us[0]}
    best = min(sorted(products), key=products.__getitem__)
    assert best_action(costs_us) == best
    learned = api.train(SMALL, profiles, num_placements=10)
    assert learned.state.num_placements == 10  # sampled ones alone
    assert learned.state.weights["preference"].argmax() == best
    longer = api.train(SMALL, profiles, learned, num_placements=10)
    assert [*longer.state.curve] == [*api.train(SMALL, profiles, num_placements=20).state.curve]
    without = api.train(replace(SMALL, prior=0.0), profiles, num_placements=10)
    assert abs(without.state.weights["preference"]).max() < 1


def test_a_graph_without_an_action_of_all_leaves_the_policy_as_it_is() -> None:
    assert best_action([{0: 1.0}, {1: 1.0}]) is None
    assert best_action([{}]) is None
    assert best_action([{0: 3.0, 1: 2.0}, {0: 3.0, 1: 4.0}]) == 1


def test_it_learns_to_put_what_exchanges_much_on_one_device(tmp_path: Path) -> None:
    problem, path = pairs(), str(tmp_path / "w.npz")
    policy = replace(SMALL, prior=0.0)
    learned = api.train(policy, [Profile(problem, {"graph_hash": "0" * 64})], num_placements=600)
    means_us = [point.mean_us for point in learned.state.curve]
    assert np.mean(means_us[:10]) > 1.5 * np.mean(means_us[-10:])
    write_weights(path, learned)
    at_once = Context(Limits(time_limit_s=0.0))
    result = run(problem, policy, at_once, weights=path)
    assert result.makespan_us < np.mean(means_us[:10])
    with pytest.raises(BadInputError, match="those of policy 'heterog'; weights of 'grl' were"):
        run(problem, "grl", at_once, weights=path)
    with pytest.raises(BadInputError, match="for 3 devices, and the machine has 4"):
        run(random_problem(1, 8, num_devices=4), "heterog", at_once, weights=path)
    write_weights(path, replace(learned, policy="grl"))
    with pytest.raises(BadInputError, match="a setting 'groups', which grl does not know"):
        run(problem, "grl", at_once, weights=path)


def pairs() -> Problem:
    """Six pairs of ops with a large tensor between them."""
    names = [f"pair_{pair}/{end}" for pair in range(6) for end in ("x", "y")]
    tensors = [Tensor(2 * pair, 10**6, [2 * pair + 1]) for pair in range(6)]
    return on_gpus(OpGraph.build(names, tensors), [10.0] * 12, two_gpus())


def seeded(tf: Any) -> Sequence[Any]:
    """The model with the same initial values in each session."""
    tf.compat.v1.set_random_seed(3)
    return dense_with(tf, tf.nn.relu, num_classes=5)


def test_plans_of_random_actions_train_as_the_whole_graph() -> None:
    meta, rng = exported(seeded), np.random.default_rng(4)
    problem = api.profile(meta, "v100x2-nvlink", parts=(2, 4)).problem
    environment, whole = SMALL.environment(problem), trained(meta)
    is_split = []
    for _ in range(4):
        drawn = environment.inputs[-1] + rng.gumbel(size=environment.inputs[-1].shape)
        solution = environment.solution(drawn.argmax(axis=1))
        if solution.plan is not None:
            check_equal(whole, trained(split_graph(meta, solution.plan)), 1e-5)
        is_split.append(solution.plan is not None)
    assert any(is_split)


def test_it_learns_from_real_steps() -> None:
    meta, policy = exported(seeded), replace(SMALL, num_placements=2, prior=0.0)
    ran = list[tuple[PlacementFile, float]]()
    with api.connected("local-workers:2") as cluster:
        profile = api.profile_by_run(meta, cluster, steps=3, parts=(2,))
        real = api.RealSteps(
            meta, cluster, steps=2, on_measured=lambda placed, us: ran.append((placed, us))
        )
        learned = api.train(policy, [profile], num_placements=4, real=real)
        placed, _ = min(ran, key=lambda each: each[1])
        whole, best = api.run_steps(meta, cluster, [None, placed], steps=4)
    measured_us = np.reshape([us for _, us in ran], (2, 2)).mean(axis=1)
    assert [point.mean_us for point in learned.state.curve] == pytest.approx(measured_us)
    assert any(placed.plan for placed, _ in ran)
    assert best.times.losses == pytest.approx(whole.times.losses, rel=1e-5)


def test_a_solution_is_written_and_simulated(priced: Profile, tmp_path: Path) -> None:
    policy = replace(SMALL, num_kept=20)
    result = api.solve(priced, policy, time_limit_s=1e-3, deterministic=True)
    api.save(tmp_path / "p.json", api.placement(priced, result))
    assert api.simulate(priced, api.load(tmp_path / "p.json")).makespan_us == result.makespan_us


def test_published_sizes_are_trained_and_used_again(
    pesto: Pesto, priced: Profile, tmp_path: Path
) -> None:
    profile, weights, out = (tmp_path / name for name in ("x.profile.json", "w.npz", "p.json"))
    api.save(profile, priced)
    argv = ("train", "heterog", profile, "--placements", 5, "-o", weights)
    done = pesto(*argv, "--settings", "paper", "--quiet")
    assert done.code == 0, done.err
    learned = read_weights(weights)
    assert learned.state.network == PAPER.network
    assert learned.configured(HeteroG()) == PAPER
    placed = ("solve", profile, "--strategy", "heterog", "--weights", weights)
    done = pesto(*placed, "--time-limit", 0.01, "-o", out, "--quiet")
    assert done.code == 0, done.err
    for policy, settings, words in (
        ("grl", "paper", "grl has the defaults alone"),
        ("spotlight", "program", "spotlight has only paper"),
        ("heterog", "program", "has the settings of its own"),
    ):
        more = ("--settings", settings, "--weights", weights)
        refused = pesto("train", policy, *argv[2:], *more[: 4 if policy == "heterog" else 2])
        assert (refused.code, words in refused.err) == (2, True), refused.err
