"""Tests of memory peaks: small cases by hand, and sums on random problems."""

from dataclasses import replace

import numpy as np
import pytest
from conftest import on_gpus, two_gpus
from random_problems import random_devices
from test_simulate import random_problem

from pesto_cli.data.graph import OpGraph, Tensor
from pesto_cli.data.problem import Problem
from pesto_cli.data.result import Held, MemoryPeak
from pesto_cli.data.schedule import Schedule
from pesto_cli.evaluation.copies import MemoryColumns, surely_fits
from pesto_cli.evaluation.memory import memory_peak
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.evaluation.times import Times
from pesto_cli.report.memory import memory_text

GPU0, GPU1 = 1, 2


def scheduled(problem: Problem, device: list[int]) -> Schedule:
    """Return the list schedule with priority to ops of lower index."""
    return Simulator(problem).list_schedule(np.array(device), -np.arange(len(device), dtype=float))


@pytest.fixture
def chain() -> Problem:
    """A chain a -> b -> c -> d of 1 us each, with 1000, 4000 and 2000 bytes between them.

    a and c have variables of 10 and 20 bytes; 5000 bytes may be used.
    """
    graph = OpGraph.build(
        list("abcd"),
        [Tensor(0, 1000, [1]), Tensor(1, 4000, [2]), Tensor(2, 2000, [3])],
        resident_bytes=[10, 0, 20, 0],
    )
    return on_gpus(graph, [1, 1, 1, 1], two_gpus(memory_bytes=5000))


def test_on_one_device_the_peak_has_the_input_and_the_output_of_c(
    chain: Problem,
) -> None:
    # b's output is held from 1 us until c ends at 3, c's from 2 us; a's was freed at 2 us.
    peak = memory_peak(chain, scheduled(chain, [GPU0] * 4), GPU0)
    assert (peak.device, peak.capacity_bytes, peak.at_us) == ("GPU:0", 5000, 2.0)
    assert peak.held == (
        Held("b", "output", 4000, 1.0),
        Held("c", "output", 2000, 2.0),
        Held("c", "variable", 20, 0.0),
        Held("a", "variable", 10, 0.0),
    )
    assert (peak.peak_bytes, peak.resident_bytes) == (6030, 30)


def test_a_copy_is_held_from_the_start_of_its_transfer(chain: Problem) -> None:
    # b ends at 2; its 4000 bytes take 1 + 4 us to GPU:1, where c runs from 7 to 8.
    schedule = scheduled(chain, [GPU0, GPU0, GPU1, GPU1])
    sender, receiver = memory_peak(chain, schedule, GPU0), memory_peak(chain, schedule, GPU1)
    assert sender.at_us == 1.0
    assert [each.op for each in sender.held] == ["b", "a", "a"]
    assert receiver.at_us == 7.0
    assert receiver.held == (
        Held("b", "copy", 4000, 2.0),
        Held("c", "output", 2000, 7.0),
        Held("c", "variable", 20, 0.0),
    )


def test_the_source_of_an_alias_is_held_and_the_alias_is_not_listed() -> None:
    # b aliases a's output, which is held until d ends, at the same time as c's output.
    graph = OpGraph.build(
        list("abcd"),
        [Tensor(0, 4000, [1]), Tensor(1, 4000, [3]), Tensor(2, 500, [3])],
        control_edges=[(1, 2)],
        alias_of=[-1, 0, -1, -1],
    )
    problem = on_gpus(graph, [1, 1, 1, 1])
    peak = memory_peak(problem, scheduled(problem, [GPU0] * 4), GPU0)
    assert peak.held == (Held("a", "output", 4000, 0.0), Held("c", "output", 500, 2.0))


def test_a_device_with_only_variables_holds_them_from_the_start() -> None:
    problem = on_gpus(OpGraph.build(["a"], resident_bytes=[7]), [1])
    peak = memory_peak(problem, scheduled(problem, [GPU1]), GPU1)
    assert (peak.at_us, peak.held) == (0.0, (Held("a", "variable", 7, 0.0),))
    nothing = memory_peak(problem, scheduled(problem, [GPU1]), GPU0)
    assert (nothing.peak_bytes, nothing.held) == (0, ())


def fits_surely(problem: Problem, schedule: Schedule, capacity: np.ndarray) -> bool:
    resident = np.bincount(schedule.device, problem.graph.resident_bytes, problem.num_devices)
    columns = MemoryColumns.of(problem.graph)
    times = Times.of(schedule.start_us, schedule.end_us, schedule.transfers)
    return bool(surely_fits(columns, schedule.device, times, resident.astype(np.int64), capacity))


@pytest.mark.parametrize("seed", range(5))
def test_surely_fits_is_true_only_for_schedules_that_fit(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(40):
        problem = random_problem(rng)
        device = random_devices(problem, rng)
        schedule = Simulator(problem).list_schedule(device, rng.random(problem.num_ops))
        graph = problem.graph
        most = graph.resident_bytes.sum() + problem.num_devices * graph.tensor_bytes.sum()
        ample = np.full(problem.num_devices, most)
        assert fits_surely(problem, schedule, ample)
        for here in np.flatnonzero(schedule.peak_bytes):
            scarce = ample.copy()
            scarce[here] = schedule.peak_bytes[here] - 1
            assert not fits_surely(problem, schedule, scarce)


@pytest.mark.parametrize("seed", range(5))
def test_held_data_adds_up_to_the_peak_on_every_device(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(40):
        problem = random_problem(rng)
        device = random_devices(problem, rng)
        schedule = Simulator(problem).list_schedule(device, rng.random(problem.num_ops))
        peaks = [memory_peak(problem, schedule, each) for each in range(problem.num_devices)]
        assert [peak.peak_bytes for peak in peaks] == schedule.peak_bytes.tolist()
        resident = np.bincount(device, problem.graph.resident_bytes, problem.num_devices)
        assert [peak.resident_bytes for peak in peaks] == resident.tolist()


def test_the_table_has_five_rows_and_the_sum_of_the_others() -> None:
    sizes = [9, 8, 7, 6, 5, 4, 3]
    names = [*"abcde", "f", "x" * 500]
    held = [
        Held(name, "output", size * 2**20, 1500.0) for name, size in zip(names, sizes, strict=True)
    ]
    held[0] = replace(held[0], what="variable", since_us=0.0)
    text = memory_text([MemoryPeak("GPU:0", 10 * 2**20, 2500.0, tuple(held))])
    assert "At 2.500 ms GPU:0 holds 42.00 MiB, 9.00 MiB of it variables; 10.00 MiB may be" in text
    rows = [line.split() for line in text.splitlines()]
    assert ["a", "variable", "9.00", "MiB", "throughout"] in rows
    assert ["e", "output", "5.00", "MiB", "1.500", "ms"] in rows
    assert ["2", "others", "7.00", "MiB"] in rows
    assert "x" not in text


def test_a_long_name_is_shown_in_full() -> None:
    name = "[scope]/" * 40
    text = memory_text([MemoryPeak("GPU:0", 1, 0.0, (Held(name, "output", 3, 0.0),))])
    assert name in text
