"""Tests of makespans with random op times and delays."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import Pesto, on_gpus, two_gpus

from pesto_cli import api
from pesto_cli.data.graph import OpGraph, Tensor
from pesto_cli.data.machine import Machine
from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import Placement
from pesto_cli.errors import BadInputError
from pesto_cli.evaluation.sampling import sampled_makespans_us
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.files import Profile
from pesto_cli.files.profile import Spread

GPU0, GPU1 = 1, 2


def delaying(wait_us: float) -> Machine:
    machine = two_gpus()
    links = [replace(link, comm=replace(link.comm, wait_us=wait_us)) for link in machine.links]
    return replace(machine, links=tuple(links))


def chain() -> Problem:
    """Two ops of 100 us on one device."""
    return on_gpus(OpGraph.build(["a", "b"], [Tensor(0, 4, [1])]), [100.0, 100.0])


def on_one_device(problem: Problem) -> Placement:
    return Placement(np.full(problem.num_ops, GPU0), np.arange(problem.num_ops))


def test_op_times_have_the_median_and_the_deviation_of_the_profile() -> None:
    problem = chain()
    sampled = sampled_makespans_us(
        Simulator(problem), on_one_device(problem), np.array([[0.3], [0.0]]), 4000
    )
    of_a = sampled - 100
    assert np.median(of_a) == pytest.approx(100, rel=0.02)
    assert of_a.std() / of_a.mean() == pytest.approx(0.3, rel=0.1)
    assert of_a.min() > 0


def test_delays_are_uniform_up_to_twice_their_mean() -> None:
    # a sends to c on the other device, while b runs for longer than any delay.
    graph = OpGraph.build(["a", "b", "c"], [Tensor(0, 1000, [2])])
    problem = on_gpus(graph, [10.0, 500.0, 1000.0], delaying(100.0))
    placement = Placement(np.array([GPU0, GPU0, GPU1]), np.array([0, 1, 0]))
    sampled = sampled_makespans_us(Simulator(problem), placement, np.zeros((3, 1)), 2000)
    delay_us = sampled - (10 + 2 + 1000)
    assert (delay_us.min(), delay_us.max()) == pytest.approx((0, 200), abs=2)
    assert delay_us.mean() == pytest.approx(100, rel=0.05)
    quarters = np.histogram(delay_us, 4, (0, 200))[0] / 2000
    assert quarters == pytest.approx([0.25] * 4, abs=0.04)


def test_signals_are_delayed_too() -> None:
    graph = OpGraph.build(["a", "b", "c"], [], control_edges=[(0, 2)])
    problem = on_gpus(graph, [10.0, 500.0, 1000.0], delaying(100.0))
    placement = Placement(np.array([GPU0, GPU0, GPU1]), np.array([0, 1, 0]))
    sampled = sampled_makespans_us(Simulator(problem), placement, np.zeros((3, 1)), 500)
    assert sampled.mean() - (10 + 0.5 + 1000) == pytest.approx(100, rel=0.1)


def test_a_step_that_waits_for_several_tensors_takes_longer_than_with_mean_delays() -> None:
    """The last of ten delayed tensors decides, which a schedule with the mean delay misses."""
    tensors = [Tensor(op, 1, [11]) for op in range(10)]
    graph = OpGraph.build([f"op{op}" for op in range(12)], tensors)
    problem = on_gpus(graph, [1.0] * 10 + [500.0, 1000.0], delaying(100.0))
    placement = Placement(np.array([GPU0] * 11 + [GPU1]), np.array([*range(11), 0]))
    sampled = sampled_makespans_us(Simulator(problem), placement, np.zeros((12, 1)), 300)
    plain_us = Simulator(problem).replay(placement).makespan_us
    assert sampled.mean() > plain_us + 50


def test_the_seed_decides_the_samples() -> None:
    problem = chain()
    rows = [
        sampled_makespans_us(
            Simulator(problem), on_one_device(problem), np.full((2, 1), 0.2), 5, seed
        ).tolist()
        for seed in (1, 1, 2)
    ]
    assert rows[0] == rows[1] != rows[2]


def measured(problem: Problem) -> Profile:
    mean_us, std_us = np.array([100.0, np.nan]), np.array([20.0, np.nan])
    spread = Spread(np.array([5, 0]), {"GPU": mean_us}, {"GPU": mean_us}, {"GPU": std_us})
    return Profile(problem, spread=spread)


def test_deviations_come_from_the_spread_of_the_profile() -> None:
    profile = measured(chain())
    result = api.solve(profile, "single")
    sampled = api.sampled_makespans_us(profile, result, 2000)
    assert sampled.std() == pytest.approx(20, rel=0.1)
    # The second op was not measured, so its time does not vary.
    assert sampled.min() > 100


def test_a_profile_without_any_variation_is_refused() -> None:
    profile = Profile(chain())
    with pytest.raises(BadInputError, match="all samples would be equal") as caught:
        api.sampled_makespans_us(profile, api.solve(profile, "single"))
    assert "--source run" in str(caught.value)


def test_simulate_prints_mean_median_and_90th_percentile(pesto: Pesto, tmp_path: Path) -> None:
    profile = measured(chain())
    api.save(tmp_path / "p.json", profile)
    api.save(tmp_path / "a.json", api.placement(profile, api.solve(profile, "single")))
    command = ("simulate", tmp_path / "p.json", "--placement", tmp_path / "a.json")
    assert "50 samples of op times and delays" in pesto(*command, "--samples", 50).out
    found = pesto(*command, "--samples", 50, "--seed", 3, "--json").out
    record = json.loads(found)["samples"]
    sampled = api.sampled_makespans_us(profile, api.load(tmp_path / "a.json"), 50, 3)
    assert record["makespan_us"] == sampled.tolist()
    assert record["mean_us"] == pytest.approx(sampled.mean())
    assert record["median_us"] == pytest.approx(np.median(sampled))
    assert record["p90_us"] == pytest.approx(np.quantile(sampled, 0.9))
