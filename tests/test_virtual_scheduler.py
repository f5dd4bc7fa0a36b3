"""The simulator agrees with a scheduler that others wrote: the one in TensorFlow's grappler.

Real training steps, placed at random so that they communicate a lot, are replayed by both in the
same order on every device.
"""

import re
from dataclasses import dataclass, replace

import numpy as np
import pytest
from virtual_scheduler import end_us, op_start_us, op_time_us, placed_run

from pesto_cli.graph import FloatArray, IntArray
from pesto_cli.graphdef.export import export
from pesto_cli.graphdef.read import read_step
from pesto_cli.machine import PRESETS, CommModel, Machine
from pesto_cli.problem import Problem
from pesto_cli.profile import profile
from pesto_cli.profile.virtual_cluster import run_all
from pesto_cli.schedule import Placement
from pesto_cli.simulate import list_schedule, replay, upward_rank

SERVER = PRESETS["v100x2-nvlink"]
LATENCIES_US = (0.0, 40.77)
SEEDS = (0, 1, 2)
# What of an op's name says its layer and time step.
PART = re.compile(
    r"\b(layer_\d+|step_\d+|encoder|decoder|self_attention|cross_attention|feed_forward)\b"
)


@dataclass(frozen=True)
class Replayed:
    """One placement and order, and what the virtual scheduler makes of it.

    problem: with the times that the virtual scheduler itself gives the ops.
    """

    problem: Problem
    placement: Placement
    virtual_start_us: FloatArray
    virtual_makespan_us: float

    def error(self, machine: Machine | None = None) -> float:
        """How far the virtual makespan is from the simulated one."""
        problem = replace(self.problem, machine=machine or self.problem.machine)
        return abs(self.virtual_makespan_us / replay(problem, self.placement).makespan_us - 1)


@pytest.fixture(scope="module", params=["RNNLM-2-2048", "Transformer-6-16-2048"])
def model(request):
    return export(f"zoo:{request.param}")


@pytest.fixture(scope="module")
def replays(model) -> dict[str, list[Replayed]]:
    """By how the ops were placed: `by part` (layer and time step) or `by op`."""
    problem = profile(model, SERVER).problem
    by_part = [random_devices(problem, part_of, seed) for seed in SEEDS]
    by_op = random_devices(problem, str, seed=3)
    machines = [with_latency(latency_us) for latency_us in LATENCIES_US]
    cases = [(machine, device) for machine in machines for device in (*by_part, by_op)]
    replayed = replayed_by_both(model, problem, cases)
    per_machine = len(SEEDS) + 1
    return {
        "by op": replayed[len(SEEDS) :: per_machine],
        "by part": [case for i, case in enumerate(replayed) if i % per_machine < len(SEEDS)],
    }


@pytest.mark.parametrize("how", ["by part", "by op"])
def test_the_makespan_is_that_of_the_virtual_scheduler(replays, how):
    for case in replays[how]:
        assert case.error() < 1e-4


@pytest.mark.parametrize("how", ["by part", "by op"])
def test_every_op_starts_when_the_virtual_scheduler_starts_it(replays, how):
    for case in replays[how]:
        simulated = replay(case.problem, case.placement)
        np.testing.assert_allclose(simulated.start_us, case.virtual_start_us, rtol=0, atol=10)


@pytest.mark.parametrize(("how", "least"), [("by part", 0.01), ("by op", 0.5)])
def test_without_communication_they_do_not_agree(replays, how, least):
    free = replace(
        SERVER,
        links=tuple(replace(link, comm=CommModel(0.0, 0.0)) for link in SERVER.links),
        signal_us=0.0,
    )
    for case in replays[how]:
        assert case.error(free) > least


def test_links_that_share_a_bus_serve_who_comes_first():
    apart = PRESETS["v100x2-pcie"]
    bus = replace(apart, links=tuple(replace(link, channel="bus") for link in apart.links))
    meta_graph = export("zoo:Transformer-tiny")
    problem = profile(meta_graph, bus).problem
    cases = [(bus, random_devices(problem, str, seed)) for seed in SEEDS]
    for case in replayed_by_both(meta_graph, problem, cases):
        assert case.error() < 1e-4
        assert case.error(apart) > 0.01


def with_latency(latency_us: float) -> Machine:
    """The server with another latency between its GPUs."""
    links = tuple(
        replace(link, comm=replace(link.comm, latency_us=latency_us))
        if "CPU:0" not in (link.src, link.dst)
        else link
        for link in SERVER.links
    )
    return replace(SERVER, links=links)


def part_of(name: str) -> str:
    return "/".join(PART.findall(name)) or name


def random_devices(problem: Problem, part_of, seed: int) -> IntArray:
    """A GPU drawn for every part, the CPU for what must be there; groups follow their first op."""
    random = np.random.default_rng(seed)
    gpu_of_part: dict[str, int] = {}
    gpus = [gpu_of_part.setdefault(part_of(n), random.integers(1, 3)) for n in problem.graph.names]
    groups = problem.graph.groups
    gpu = np.array(gpus)[groups.indices[groups.offsets[:-1]]][problem.graph.colocation_group]
    return np.where(problem.allowed[np.arange(problem.num_ops), gpu], gpu, 0)


def replayed_by_both(
    meta_graph, problem: Problem, cases: list[tuple[Machine, IntArray]]
) -> list[Replayed]:
    """Order the ops of each case by upward rank, and have the virtual scheduler replay that."""
    step = read_step(meta_graph)
    orders = [ordered(replace(problem, machine=machine), device) for machine, device in cases]
    runs = run_all(
        [
            placed_run(meta_graph, step, machine, placement)
            for (machine, _), placement in zip(cases, orders, strict=True)
        ]
    )
    replayed = []
    for (machine, _), placement, run in zip(cases, orders, runs, strict=True):
        time_us = op_time_us(step, run)
        timed = Problem.build(step.graph, {"CPU": time_us, "GPU": time_us}, machine)
        replayed.append(Replayed(timed, placement, op_start_us(step, run), end_us(run)))
    return replayed


def ordered(problem: Problem, device: IntArray) -> Placement:
    priority = upward_rank(problem, device)
    priority[problem.is_feed] = np.inf  # Feeds are there before anything starts.
    return list_schedule(problem, device, priority).placement
