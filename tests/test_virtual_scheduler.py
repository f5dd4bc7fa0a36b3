"""The simulator agrees with a scheduler that others wrote: the one in TensorFlow's grappler.

Real training steps, placed at random so that they communicate a lot, are replayed by both in the
same order on every device.
"""

import re
from collections.abc import Hashable
from dataclasses import dataclass, replace

import numpy as np
import pytest
from virtual_scheduler import end_us, op_start_us, op_time_us, placed_run

from pesto_cli.graph import FloatArray
from pesto_cli.graphdef.export import export
from pesto_cli.graphdef.read import StepGraph, read_step
from pesto_cli.machine import PRESETS, CommModel, Machine
from pesto_cli.problem import Problem
from pesto_cli.profile import profile
from pesto_cli.profile.virtual_cluster import run_all
from pesto_cli.schedule import Placement, Schedule
from pesto_cli.simulate import list_schedule, replay, upward_rank

SERVER = PRESETS["v100x2-nvlink"]
LATENCIES_US = (0.0, 40.77)
SEEDS_BY_PART, SEED_BY_OP = (0, 1, 2), 3
# What of an op's name says its layer and time step.
PART = re.compile(
    r"\b(layer_\d+|step_\d+|encoder|decoder|self_attention|cross_attention|feed_forward)\b"
)


@dataclass(frozen=True)
class Replayed:
    """What both say of one placement.

    problem: with the times that the virtual scheduler itself gives the ops.
    """

    problem: Problem
    placement: Placement
    simulated: Schedule
    virtual_start_us: FloatArray
    virtual_makespan_us: float

    def error_of(self, makespan_us: float) -> float:
        return abs(makespan_us / self.virtual_makespan_us - 1)


@pytest.fixture(scope="module", params=["RNNLM-2-2048", "Transformer-6-16-2048"])
def replays(request) -> list[Replayed]:
    meta_graph = export(f"zoo:{request.param}")
    step = read_step(meta_graph)
    machines = [_with_latency(latency_us) for latency_us in LATENCIES_US]
    problem = profile(meta_graph, SERVER).problem
    cases = [
        (machine, _ordered(problem, machine, device))
        for machine in machines
        for device in _random_devices(problem)
    ]
    runs = run_all(
        [placed_run(meta_graph, step, machine, placement) for machine, placement in cases]
    )
    return [
        _replayed(step, machine, placement, run)
        for (machine, placement), run in zip(cases, runs, strict=True)
    ]


def test_the_makespan_is_that_of_the_virtual_scheduler(replays):
    for case in replays:
        assert case.error_of(case.simulated.makespan_us) < 1e-4


def test_every_op_starts_when_the_virtual_scheduler_starts_it(replays):
    for case in replays:
        np.testing.assert_allclose(case.simulated.start_us, case.virtual_start_us, atol=10, rtol=0)


def test_without_communication_they_would_not_agree(replays):
    for case in replays:
        free = replace(case.problem, machine=_without_communication())
        assert case.error_of(replay(free, case.placement).makespan_us) > 0.5


def _with_latency(latency_us: float) -> Machine:
    """The server with another latency between the GPUs."""
    return replace(
        SERVER,
        links=tuple(
            replace(link, comm=replace(link.comm, latency_us=latency_us))
            if link.src.startswith("GPU") and link.dst.startswith("GPU")
            else link
            for link in SERVER.links
        ),
    )


def _without_communication() -> Machine:
    links = tuple(replace(link, comm=CommModel(0.0, 0.0)) for link in SERVER.links)
    return replace(SERVER, links=links, signal_us=0.0)


def _random_devices(problem: Problem) -> list[FloatArray]:
    """A device for every op: by layer and time step, and by op; groups stay together."""
    names = problem.graph.names
    parts = [tuple(PART.findall(name)) or name for name in names]
    return [
        *(_random_device(problem, parts, seed) for seed in SEEDS_BY_PART),
        _random_device(problem, names, SEED_BY_OP),
    ]


def _random_device(problem: Problem, parts: list[Hashable], seed: int) -> FloatArray:
    random = np.random.default_rng(seed)
    gpu_of_part: dict[Hashable, int] = {}
    for part in parts:
        if part not in gpu_of_part:
            gpu_of_part[part] = int(random.integers(1, 3))
    first_of_group = problem.graph.groups.indices[problem.graph.groups.offsets[:-1]]
    gpu_of_group = np.array([gpu_of_part[parts[op]] for op in first_of_group])
    gpu = gpu_of_group[problem.graph.colocation_group]
    return np.where(problem.allowed[np.arange(problem.num_ops), gpu], gpu, 0)


def _ordered(problem: Problem, machine: Machine, device: FloatArray) -> Placement:
    problem = replace(problem, machine=machine)
    priority = upward_rank(problem, device)
    priority[problem.is_feed] = np.inf  # Feeds are there before anything starts.
    return list_schedule(problem, device, priority).placement


def _replayed(step: StepGraph, machine: Machine, placement: Placement, run) -> Replayed:
    time_us = op_time_us(step, run)
    problem = Problem.build(step.graph, {"CPU": time_us, "GPU": time_us}, machine)
    return Replayed(
        problem, placement, replay(problem, placement), op_start_us(step, run), end_us(run)
    )
