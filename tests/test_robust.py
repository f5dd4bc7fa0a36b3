"""Robust search: the least mean makespan over samples of op times and delays."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Pesto, on_gpus, two_gpus
from priced_problems import priced, random_step
from random_problems import every_third_contended, random_placement, random_problem

from pesto_cli import api
from pesto_cli.coarsen import coarsen
from pesto_cli.data.graph import FloatArray, OpGraph, Tensor
from pesto_cli.data.limits import Limits
from pesto_cli.data.problem import Problem
from pesto_cli.data.result import Progress, Result
from pesto_cli.data.schedule import Schedule, objective
from pesto_cli.errors import BadInputError
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.files import Profile
from pesto_cli.files.profile import Spread
from pesto_cli.refine import refine
from pesto_cli.refine.cost import CostData
from pesto_cli.refine.sampled_cost import evaluate_state
from pesto_cli.refine.samples import Samples
from pesto_cli.strategies.context import Context
from pesto_cli.strategies.run import run

TOGETHER_US, APART_US = 400.0, 398.0


def crossing() -> Problem:
    """Two ops of 100 us, and two that need both; a transfer takes 198 us.

    On one device the step takes 400 us. On two devices it takes 398 us, but then it ends with the
    later one of two paths, so its mean is longer if op times vary.
    """
    graph = OpGraph.build(["a", "b", "c", "d"], [Tensor(0, 1, [2, 3]), Tensor(1, 1, [2, 3])])
    machine = two_gpus()
    links = [replace(link, comm=replace(link.comm, latency_us=198.0)) for link in machine.links]
    return on_gpus(graph, [100.0] * 4, replace(machine, links=tuple(links)))


def measured(problem: Problem, deviation: float) -> Profile:
    mean_us = np.full(problem.num_ops, 100.0)
    runs = np.full(problem.num_ops, 5)
    spread = Spread(runs, {"GPU": mean_us}, {"GPU": mean_us}, {"GPU": mean_us * deviation})
    return Profile(problem, spread=spread)


def solved(profile: Profile, **options: Any) -> Result:
    return api.solve(profile, time_limit_s=0.1, deterministic=True, **options)


def deviations(problem: Problem, size: float = 0.3) -> FloatArray:
    return np.full((problem.num_ops, problem.num_devices), size)


def test_less_mean_is_preferred_to_less_makespan() -> None:
    profile = measured(crossing(), 0.5)
    plain, robust = solved(profile), solved(profile, robust=True)
    assert plain.makespan_us == pytest.approx(APART_US, abs=1)
    assert robust.makespan_us == pytest.approx(TOGETHER_US, abs=1)
    means = [api.sampled_makespans_us(profile, each, 2000).mean() for each in (plain, robust)]
    assert means[1] < 0.98 * means[0]


def test_the_result_has_the_means_of_both_schedules() -> None:
    profile = measured(crossing(), 0.5)
    sampled = solved(profile, robust=True).solution.sampled
    assert sampled is not None
    assert sampled.plain_makespan_us == pytest.approx(APART_US, abs=1)
    assert TOGETHER_US < sampled.mean_us < sampled.plain_mean_us


def test_a_schedule_that_is_best_in_both_ways_stays() -> None:
    graph = OpGraph.build(["a", "b"], [Tensor(0, 4, [1])])
    result = solved(measured(on_gpus(graph, [100.0, 100.0]), 0.5), robust=True)
    sampled = result.solution.sampled
    assert sampled is not None
    assert result.makespan_us == sampled.plain_makespan_us == 200
    assert sampled.mean_us == sampled.plain_mean_us


def test_makespan_and_bound_are_those_of_the_profile() -> None:
    profile = measured(crossing(), 0.5)
    plain, robust = solved(profile), solved(profile, robust=True)
    assert robust.makespan_us == api.simulate(profile, robust).makespan_us
    assert robust.lower_bound_us == plain.lower_bound_us


def test_a_deterministic_robust_search_gives_the_same_result() -> None:
    profile = measured(random_problem(3, 14, memory=False), 0.5)
    one, other = (solved(profile, robust=True) for _ in range(2))
    assert one.schedule.device.tolist() == other.schedule.device.tolist()
    assert one.schedule.rank.tolist() == other.schedule.rank.tolist()
    assert one.solution.sampled == other.solution.sampled


def test_other_searches_do_not_depend_on_deviations() -> None:
    problem = random_problem(3, 14, memory=False)
    one, other = solved(Profile(problem)), solved(measured(problem, 0.5))
    assert one.schedule.device.tolist() == other.schedule.device.tolist()
    assert one.schedule.rank.tolist() == other.schedule.rank.tolist()
    assert one.solution.sampled is None
    assert other.solution.sampled is None


@pytest.mark.parametrize("profile", [Profile(crossing()), measured(crossing(), 0.0)])
def test_a_profile_without_any_variation_is_refused(profile: Profile) -> None:
    with pytest.raises(BadInputError, match="all samples would be equal") as caught:
        solved(profile, robust=True)
    assert "--source run" in str(caught.value)


def test_delays_alone_are_enough() -> None:
    problem = crossing()
    links = [replace(link, comm=replace(link.comm, wait_us=50.0)) for link in problem.machine.links]
    delayed = replace(problem, machine=replace(problem.machine, links=tuple(links)))
    assert solved(Profile(delayed), robust=True).solution.sampled is not None


@pytest.mark.parametrize("seed", range(10))
def test_the_cost_of_a_state_is_the_mean_of_replays(seed: int) -> None:
    simulator, schedule, samples = sampled_schedule(seed)
    data, zeros = CostData.of(simulator, samples), np.zeros(len(schedule.device))
    found = evaluate_state(data, schedule.device, zeros, np.inf)
    mean_us = samples.mean_us(simulator, schedule.placement)
    assert found.makespan_us == pytest.approx(mean_us)
    transfers_us = 0.05 * found.transfers_us
    for share, expected in ((1.01, [mean_us]), (0.99, [mean_us, np.inf])):
        limited = evaluate_state(data, schedule.device, zeros, share * mean_us + transfers_us)
        assert limited.makespan_us in map(pytest.approx, expected)


@pytest.mark.parametrize("seed", range(10))
def test_refinement_never_increases_the_mean(seed: int) -> None:
    simulator, start, samples = sampled_schedule(seed)
    limits = api.Limits(time_limit_s=0.005, deterministic=True)
    found = refine(simulator, [start], limits, samples=samples)

    def quality(schedule: Schedule) -> tuple[int, float]:
        shortfall, _ = objective(simulator.problem, schedule)
        return shortfall, samples.mean_us(simulator, schedule.placement)

    assert quality(found) <= quality(start)


def sampled_schedule(seed: int) -> tuple[Simulator, Schedule, Samples]:
    problem = random_problem(seed, 14, num_devices=2 + seed % 3)
    simulator = Simulator(every_third_contended(problem, seed))
    device = random_placement(simulator.problem, seed)
    samples = Samples.drawn(simulator, deviations(simulator.problem), 4, seed)
    return simulator, simulator.list_schedule(device, simulator.upward_rank(device)), samples


def test_the_time_of_a_node_in_a_sample_is_the_sum_of_its_members() -> None:
    simulator, _, samples = sampled_schedule(1)
    coarsening = coarsen(simulator.problem, 4)
    nodes = samples.of_nodes(coarsening)
    members = coarsening.node_of_op == 0
    assert nodes.duration_us[2, 0] == pytest.approx(samples.duration_us[2, members].sum(axis=0))
    graph = coarsening.problem.graph
    assert nodes.delay_factor.shape == (4, 2, graph.num_tensors + graph.num_ops)


def test_solve_shows_both_means(pesto: Pesto, tmp_path: Path) -> None:
    api.save(tmp_path / "p.json", measured(crossing(), 0.5))
    command = ("solve", tmp_path / "p.json", "-o", tmp_path / "a.json", "--robust")
    limits = ("--time-limit", 0.1, "--deterministic")
    shown = pesto(*command, *limits).out
    assert "Robust: the mean step in 50 samples of op times and delays" in shown
    assert "search without samples" in shown
    robust = json.loads(pesto(*command, *limits, "--json").out)["robust"]
    assert robust["mean_us"] < robust["plain_mean_us"]
    made = json.loads((tmp_path / "a.json").read_text())["provenance"]["parameters"]
    assert made["robust"] is True


def test_solve_refuses_what_has_nothing_to_sample(pesto: Pesto, tmp_path: Path) -> None:
    api.save(tmp_path / "p.json", Profile(crossing()))
    command = ("solve", tmp_path / "p.json", "-o", tmp_path / "a.json", "--robust")
    failed = pesto(*command)
    assert failed.code == 2
    assert "all samples would be equal" in failed.err
    assert not (tmp_path / "a.json").exists()


def test_after_a_stop_the_answer_is_the_best_schedule_that_was_shown() -> None:
    profile = api.read_profile(Path(__file__).parents[1] / "examples/dense.profile.json.gz")
    limits, shown_us = Limits(time_limit_s=0.5, deterministic=True), list[float]()

    def stop_while_parts_are_refined(progress: Progress) -> None:
        shown_us.append(progress.makespan_us)
        if progress.stage == "refinement of parts":
            limits.stop.set()

    context = Context(
        limits, deviation=deviations(profile.problem), on_progress=stop_while_parts_are_refined
    )
    found = run(profile.problem, "pesto", context, robust=True)
    assert limits.stop.is_set()
    assert found.makespan_us == shown_us[-1]


@pytest.mark.parametrize("seed", range(4))
def test_the_answer_was_refined_robustly_also_if_ops_may_be_split(seed: int) -> None:
    rng = np.random.default_rng(seed)
    step = random_step(rng, 14)
    problem = priced(step.graph(), step.specs, two_gpus(), rng)
    deviation = rng.uniform(0.2, 1.0, (problem.num_ops, problem.num_devices))
    context = Context(Limits(time_limit_s=0.05, deterministic=True), deviation=deviation)
    assert run(problem, "pesto", context, robust=True).solution.sampled is not None
