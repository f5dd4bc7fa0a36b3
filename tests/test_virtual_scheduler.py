"""The simulator agrees with an independent one: the virtual scheduler of TensorFlow's grappler.

Real training steps are placed at random, so that they communicate a lot. Both simulators replay
them in the same order on every device, over NVLink and over PCIe. Over PCIe, communication takes
most of the step. With PESTO_EXAMPLES=10, the models are larger, and `pytest -rP
tests/test_virtual_scheduler.py` prints each case of the table in docs/profiling.md.
"""

import os
import re
from dataclasses import dataclass, replace

import numpy as np
import pytest
from virtual_scheduler import end_us, op_start_us, op_time_us, placed_run

from pesto_cli.data.graph import FloatArray, IntArray
from pesto_cli.data.machine import CommModel, Machine
from pesto_cli.data.presets import PRESETS
from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import Placement
from pesto_cli.evaluation.simulator import list_schedule, replay, upward_rank
from pesto_cli.graphdef.export import export
from pesto_cli.graphdef.read import read_step
from pesto_cli.profile import profile
from pesto_cli.profile.analytic.virtual_cluster import run_all

LINKS = ("v100x2-nvlink", "v100x2-pcie")
LATENCIES_US = (0.0, 40.77)
IS_LONG = int(os.environ.get("PESTO_EXAMPLES", "1")) > 1
MODELS = ("RNNLM-2-2048@steps=4", "Transformer-2-16-2048")
LARGE_MODELS = ("RNNLM-2-2048", "Transformer-6-16-2048")
SEEDS = (0, 1, 2) if IS_LONG else (0,)
# Parts of an op's name that give its layer and time step.
PART = re.compile(
    r"\b(layer_\d+|step_\d+|encoder|decoder|self_attention|cross_attention|feed_forward)\b"
)


@dataclass(frozen=True)
class Replayed:
    """One placement with ranks, and its replay by the virtual scheduler.

    problem: its op times are those of the virtual scheduler.
    """

    problem: Problem
    placement: Placement
    virtual_start_us: FloatArray
    virtual_makespan_us: float

    def error(self, problem: Problem | None = None) -> float:
        """Return the relative difference between the simulated and the virtual makespan."""
        simulated = replay(problem or self.problem, self.placement)
        return abs(simulated.makespan_us / self.virtual_makespan_us - 1)

    def error_without_communication(self) -> float:
        """Return the relative difference if transfers and signals take no time in the simulator."""
        machine = self.problem.machine
        free = tuple(replace(link, comm=CommModel(0.0, 0.0)) for link in machine.links)
        return self.error(
            replace(self.problem, machine=replace(machine, links=free, signal_us=0.0))
        )

    def start_error_us(self) -> float:
        """Return the largest difference between the simulated and the virtual start of an op."""
        simulated = replay(self.problem, self.placement)
        return float(np.abs(simulated.start_us - self.virtual_start_us).max())


@pytest.fixture(scope="module", params=LARGE_MODELS if IS_LONG else MODELS)
def model(request):
    return export(f"zoo:{request.param}")


@pytest.fixture(scope="module", params=LINKS)
def replays(model, request) -> list[Replayed]:
    """Replay placements by part (layer, time step, direction) and by op, for each latency."""
    server = PRESETS[request.param]
    problem = profile(model, server).problem
    placed = [random_devices(problem, part_of, seed) for seed in SEEDS]
    placed.append(random_devices(problem, str, seed=3))
    machines = [with_latency(server, latency_us) for latency_us in LATENCIES_US]
    return replayed_by_both(model, problem, [(m, device) for m in machines for device in placed])


def test_the_makespan_is_that_of_the_virtual_scheduler(replays):
    for case in replays:
        print(
            f"{case.virtual_makespan_us / 1e3:.0f} ms, off by {case.error():.4%}, starts by "
            f"{case.start_error_us():.1f} us; {case.error_without_communication():.0%} without "
            "communication"
        )
        assert case.error() < 1e-4


def test_every_op_starts_when_the_virtual_scheduler_starts_it(replays):
    for case in replays:
        assert case.start_error_us() < 10


@pytest.mark.parametrize("replays", ["v100x2-pcie"], indirect=True)
def test_without_communication_the_makespans_differ_a_lot(replays):
    for case in replays:
        assert case.error_without_communication() > 0.5


def test_links_that_share_a_bus_serve_transfers_first_come_first_served():
    apart = PRESETS["v100x2-pcie"]
    bus = replace(apart, links=tuple(replace(link, channel="bus") for link in apart.links))
    meta_graph = export("zoo:Transformer-tiny")
    problem = profile(meta_graph, bus).problem
    cases = [(bus, random_devices(problem, str, seed)) for seed in SEEDS]
    for case in replayed_by_both(meta_graph, problem, cases):
        assert case.error() < 1e-4
        assert case.error(replace(case.problem, machine=apart)) > 0.01


def with_latency(server: Machine, latency_us: float) -> Machine:
    """Return the server with another latency between its GPUs."""
    links = tuple(
        replace(link, comm=replace(link.comm, latency_us=latency_us))
        if "CPU:0" not in (link.src, link.dst)
        else link
        for link in server.links
    )
    return replace(server, links=links)


def part_of(name: str) -> str:
    direction = "backward" if name.startswith("gradients/") else "forward"
    part = PART.findall(name)
    return "/".join([direction, *part]) if part else name


def random_devices(problem: Problem, part_of, seed: int) -> IntArray:
    """Return a random GPU for every part, and the CPU for ops that cannot run on a GPU.

    A colocation group is on the device of its first op.
    """
    random = np.random.default_rng(seed)
    gpu_of_part: dict[str, int] = {}
    gpus = [gpu_of_part.setdefault(part_of(n), random.integers(1, 3)) for n in problem.graph.names]
    groups = problem.graph.groups
    gpu = np.array(gpus)[groups.indices[groups.offsets[:-1]]][problem.graph.colocation_group]
    return np.where(problem.allowed[np.arange(problem.num_ops), gpu], gpu, 0)


def replayed_by_both(
    meta_graph, problem: Problem, cases: list[tuple[Machine, IntArray]]
) -> list[Replayed]:
    """Order the ops of each case by upward rank, and replay this with the virtual scheduler."""
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
    priority[problem.is_feed] = np.inf  # Feeds start before all other ops.
    return list_schedule(problem, device, priority).placement
