"""Meshes: parts of the batch, stages of layers, micro-batches, and the search that tries them."""

import math
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count, takewhile
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from split_models import weights
from test_split_search import on_machine, two_hosts
from training_graphs import exported

from benchmarks.problems import layered
from pesto_cli import api
from pesto_cli.data.columns import BoolArray
from pesto_cli.data.limits import Limits
from pesto_cli.data.machine import Machine
from pesto_cli.data.presets import (
    HOST_TO_V100,
    NETWORK,
    PRESETS,
    TWO_NVLINKS,
    cluster,
    v100_server,
)
from pesto_cli.data.problem import Problem
from pesto_cli.data.result import SolveStatus
from pesto_cli.data.solution import Solution
from pesto_cli.errors import UnfitError
from pesto_cli.files import Profile
from pesto_cli.sharding.problems import rewritten
from pesto_cli.strategies import STRATEGIES, time_shares
from pesto_cli.strategies.context import Context, Strategy
from pesto_cli.strategies.data_parallel import DataParallel, VariableLayout, batch_plan, dealt
from pesto_cli.strategies.devices import accelerators
from pesto_cli.strategies.intra_op import ALPA, HIDDEN, IntraOp
from pesto_cli.strategies.meshes import Mesh, meshes, stages_of_layers
from pesto_cli.strategies.pesto import BASELINES, Pesto
from pesto_cli.strategies.run import judged, run
from pesto_cli.strategies.split_search import ways_in_time
from pesto_cli.strategies.split_search.forms import (
    BUCKETS_BYTES,
    every_way,
    gradients_take_longer_than_ops,
)
from pesto_cli.strategies.split_search.ways import AsStrategy, OnMeshes, Way
from pesto_cli.strategies.split_search.ways_in_time import WaysInTime


def chain(tf: Any) -> list[Any]:
    """Four dense layers with so many examples that their parts are as efficient as the layers."""
    tf1 = tf.compat.v1
    hidden = tf1.placeholder(tf.float32, [2**14, 512], name="rows")
    for layer in range(4):
        matrix = weights(tf, f"layer_{layer}/weights", [512, 512])
        hidden = tf.tanh(tf.matmul(hidden, matrix, name=f"layer_{layer}/product"))
    loss = tf.reduce_mean(tf.square(hidden), name="loss")
    return [tf1.train.MomentumOptimizer(0.1, 0.9).minimize(loss, name="train"), loss]


@pytest.fixture(scope="module")
def problem() -> Problem:
    profile: Profile = api.profile(exported(chain), "v100x4-nvlink", parts=(2, 4, 8))
    return profile.problem


def slow_network(latency_us: float, **others: float) -> Machine:
    """Two hosts of two GPUs each, with long transfers between the hosts.

    others: fields of the communication model between hosts.
    """
    machine = two_hosts()
    hosts = {device.name: device.name.partition("/")[0] for device in machine.devices}
    links = [
        replace(link, comm=replace(link.comm, latency_us=latency_us, **others))
        if hosts[link.src] != hosts[link.dst]
        else link
        for link in machine.links
    ]
    return replace(machine, links=tuple(links))


def test_each_device_adds_an_equal_share_of_the_gradients_of_mirrored_variables(
    problem: Problem,
) -> None:
    split = DataParallel(variables=VariableLayout.MIRRORED)(problem, Context())
    graph, gpus = split.problem.graph, slice(1, 5)
    adds = np.array(
        [
            op_type == "AddN" and ".split_0_4.part_" in name
            for name, op_type in zip(graph.names, graph.types, strict=True)
        ]
    )
    assert np.bincount(split.schedule.device[adds])[gpus].tolist() == [4] * 4
    transfers = split.schedule.transfers
    is_share = graph.tensor_bytes[transfers.tensor] == 2**20 // 4
    source = split.schedule.device[graph.tensor_producer[transfers.tensor]]
    for device in (source[is_share], transfers.dst[is_share]):
        # Of each of four gradients, three shares for the sums and three sums.
        assert np.bincount(device)[gpus].tolist() == [4 * 6] * 4


def test_meshes_have_all_factors_and_subsets(problem: Problem) -> None:
    shapes = {(len(mesh.stages), mesh.width, mesh.num_parts) for mesh in meshes(problem, 8)}
    of_all = {(1, 4, 4), (2, 2, 2), (2, 2, 4), (2, 2, 8), (4, 1, 2), (4, 1, 4)}
    of_two = {(1, 2, 2), (2, 1, 2), (2, 1, 4)}
    assert shapes == of_all | of_two
    assert {mesh.num_parts for mesh in meshes(problem, 4)} == {2, 4}


def test_a_stage_has_devices_of_one_host(problem: Problem) -> None:
    placed = on_machine(problem, two_hosts())
    names = [device.name.partition("/")[0] for device in placed.machine.devices]
    for mesh in meshes(placed, 8):
        if mesh.width == 2:
            assert all(len({names[device] for device in stage}) == 1 for stage in mesh.stages)


def test_stages_have_balanced_work() -> None:
    on_each_us = np.array([3.0, 1, 1, 1, 2, 4])
    assert stages_of_layers(np.stack([on_each_us] * 2, axis=1)).tolist() == [0, 0, 0, 0, 1, 1]
    on_slow_and_fast_us = np.stack([2 * on_each_us, on_each_us], axis=1)
    assert stages_of_layers(on_slow_and_fast_us).tolist() == [0, 0, 1, 1, 1, 1]
    work_us = np.array([5.0, 1, 2, 1, 6, 1])
    stage = stages_of_layers(np.stack([work_us] * 3, axis=1))
    assert (np.diff(stage) >= 0).all()
    assert np.bincount(stage, work_us).max() == 7


@pytest.mark.parametrize("num_micro_batches", [1, 2, 4])
def test_layers_and_parts_run_where_the_mesh_says(problem: Problem, num_micro_batches: int) -> None:
    mesh = Mesh(((1, 2), (3, 4)), num_micro_batches)
    split = rewritten(problem, batch_plan(problem, range(mesh.num_parts)))
    solution = dealt(problem, split, mesh)
    judged("stages", solution, 0.0)  # no rule is violated
    device = dict(zip(split.problem.graph.names, solution.schedule.device.tolist(), strict=True))
    for part in range(mesh.num_parts):
        assert device[f"layer_0/product.part_{part}"] == mesh.stages[0][part % 2]
        assert device[f"layer_3/product.part_{part}"] == mesh.stages[1][part % 2]
    assert {device["layer_0/weights"]} <= {1, 2}
    assert {device["layer_3/weights"]} <= {3, 4}


def test_micro_batches_overlap_the_stages(problem: Problem) -> None:
    took_us = {}
    for num_micro_batches in (1, 4):
        mesh = Mesh(((1,), (2,)), num_micro_batches)
        plan = batch_plan(problem, range(max(2, mesh.num_parts)))
        took_us[num_micro_batches] = dealt(problem, rewritten(problem, plan), mesh).makespan_us
    assert took_us[4] < took_us[1]


def test_stages_are_the_best_start_across_a_slow_network(problem: Problem) -> None:
    placed = on_machine(problem, slow_network(2000.0))
    found, context = {}, Context(Limits(deterministic=True))
    for way in every_way(placed):
        with suppress(UnfitError):  # one integer program splits no op
            source, solution = way(placed, context)
            found[source] = min(solution.makespan_us, found.get(source, np.inf))
    flat = DataParallel()(placed, Context()).makespan_us
    assert min(found.values()) < 0.8 * flat


@pytest.mark.parametrize(("latency_us", "by_host"), [(1.0, False), (2000.0, True)])
def test_intra_op_adds_sums_by_host_if_the_network_is_slow(
    problem: Problem, latency_us: float, by_host: bool
) -> None:
    solution = IntraOp(HIDDEN)(on_machine(problem, slow_network(latency_us)), Context(Limits(30.0)))
    assert solution.plan is not None
    assert solution.plan.hosts == ((0, 0, 1, 1) if by_host else ())


@pytest.mark.parametrize("latency_us", [1.0, 2000.0])
def test_the_all_reduce_is_flat_or_by_host(problem: Problem, latency_us: float) -> None:
    placed = on_machine(problem, slow_network(latency_us))
    best, flat, by_host = (
        DataParallel(variables=VariableLayout.MIRRORED, by_host=each)(placed, Context())
        for each in (None, False, True)
    )
    assert STRATEGIES.find("ev-ar")(placed, Context()).makespan_us == best.makespan_us
    assert best.makespan_us == min(flat.makespan_us, by_host.makespan_us)
    assert flat.makespan_us != by_host.makespan_us


def test_sums_by_host_on_one_host_are_flat(problem: Problem) -> None:
    placed = on_machine(problem, PRESETS["v100x4-nvlink"])
    flat, by_host = (DataParallel(by_host=each)(placed, Context()) for each in (False, True))
    assert by_host.plan is not None
    assert by_host.plan == flat.plan
    assert by_host.makespan_us == flat.makespan_us


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        (
            slow_network(100.0),
            DataParallel(
                proportional=True,
                by_host=True,
                variables=VariableLayout.MIRRORED,
                bucket_bytes=BUCKETS_BYTES[0],
            ),
        ),
        (PRESETS["v100x4-nvlink"], DataParallel(proportional=True, by_host=False)),
    ],
)
def test_unequal_devices_get_parts_by_speed_and_sums_by_host(
    problem: Problem, machine: Machine, expected: DataParallel
) -> None:
    *others, last = machine.devices
    unequal = replace(machine, devices=(*others, replace(last, speed=2 * last.speed)))
    first, *_ = every_way(on_machine(problem, unequal))
    assert isinstance(first, AsStrategy)
    assert first.strategy == expected


@pytest.mark.parametrize("us_per_byte", [1e-5, 1.0])
@pytest.mark.parametrize("speed", [1.0, 2.0])
def test_stages_come_first_if_gradients_take_longer_than_ops(
    problem: Problem, us_per_byte: float, speed: float
) -> None:
    """Four matrices of 2**20 bytes; the ops take some milliseconds."""
    machine = slow_network(100.0, us_per_byte=us_per_byte)
    *others, last = machine.devices
    devices = (*others, replace(last, speed=speed * last.speed))
    placed = on_machine(problem, replace(machine, devices=devices))
    first, *_ = every_way(placed)
    assert gradients_take_longer_than_ops(placed) == (us_per_byte == 1.0)
    assert isinstance(first, OnMeshes if us_per_byte == 1.0 else AsStrategy)


def test_the_first_ways_over_a_slow_network_can_keep_the_parts_of_an_op_on_one_host(
    problem: Problem,
) -> None:
    placed = on_machine(problem, slow_network(100.0, us_per_byte=1.0))
    every = [*every_way(placed)]
    on_meshes = [way for way in every if isinstance(way, OnMeshes) and not way.hosts]
    num_parts = [way.num_parts for way in on_meshes]
    assert every[: len(on_meshes)] == on_meshes
    assert num_parts[:2] == [2, 4]
    assert num_parts == sorted(num_parts)
    assert any(len(mesh.stages) == 1 for mesh in on_meshes[1].meshes)
    assert every[len(on_meshes) + 1] == AsStrategy(IntraOp(ALPA))


def test_more_parts_are_not_tried_if_they_were_worse_than_fewer(problem: Problem) -> None:
    placed = on_machine(problem, slow_network(100.0, us_per_byte=1.0))
    context = Context(Limits(time_limit_s=600.0))
    tried = {}
    for worse in (math.inf, 4):
        ways = WaysInTime(placed, context, 1.0)
        tried[worse] = set[tuple[int, bool]]()
        for way in ways.each():
            if isinstance(way, OnMeshes):
                tried[worse].add((way.num_parts, bool(way.hosts)))
                _, solution = way(placed, context)
                step_us = 2.0 if way.num_parts >= worse else 1.0 / way.num_parts
                ways.note(way, of_length(solution, step_us))
    assert {(2, False), (4, False), (8, False), (8, True)} <= tried[math.inf]
    assert tried[4] == {each for each in tried[math.inf] if each[0] < 4} | {(4, False)}


def of_length(solution: Solution, step_us: float) -> Solution:
    """Return a solution as if its step took so long."""
    schedule = solution.schedule
    return replace(
        solution, schedule=replace(schedule, end_us=np.full_like(schedule.end_us, step_us))
    )


def test_parts_that_fit_into_hosts_come_before_other_numbers_of_parts(problem: Problem) -> None:
    machine = cluster([v100_server(2, HOST_TO_V100, TWO_NVLINKS)] * 3, [NETWORK] * 3)
    every = every_way(on_machine(problem, machine))
    on_meshes = [way for way in every if isinstance(way, OnMeshes) and not way.hosts]
    num_parts = [way.meshes[0].num_parts for way in on_meshes]
    assert num_parts[:3] == [4, 2, 8]
    assert {3, 6} <= {*num_parts[3:]}


def test_over_a_slow_network_the_batch_is_first_cut_into_few_parts_that_fit_into_hosts(
    problem: Problem,
) -> None:
    slow = replace(NETWORK, us_per_byte=1.0)
    machine = cluster([v100_server(2, HOST_TO_V100, TWO_NVLINKS)] * 3, [slow] * 3)
    placed = on_machine(problem, machine)
    assert gradients_take_longer_than_ops(placed)
    first = takewhile(lambda way: isinstance(way, OnMeshes), every_way(placed))
    num_parts = [way.num_parts for way in first if isinstance(way, OnMeshes)]
    assert num_parts == [2, 4, 8]


def test_the_first_way_over_a_fast_network_has_buckets(problem: Problem) -> None:
    first, second, *_ = every_way(on_machine(problem, slow_network(100.0, us_per_byte=1e-5)))
    assert isinstance(first, AsStrategy)
    assert isinstance(first.strategy, DataParallel)
    assert first.strategy.variables is VariableLayout.MIRRORED
    assert first.strategy.bucket_bytes == 25 * 2**20
    assert isinstance(second, OnMeshes)
    assert second.meshes[0].num_parts == len(accelerators(problem))


CHAINED = layered(400, machine=slow_network(1e5))


def test_fastt_is_the_first_baseline_on_more_than_two_accelerators(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits = Limits(1.5 * CHAINED.num_ops * 150e-6 / 0.15, deterministic=True)  # time for one
    used: list[str] = []
    for name, baseline in BASELINES.items():
        monkeypatch.setitem(BASELINES, name, _Recorded(name, baseline, used))
    for problem in (CHAINED, replace(CHAINED, permitted=_only_two(CHAINED))):
        Pesto()(problem, Context(limits))
    assert used == ["fastt", "metis"]


@dataclass(frozen=True)
class _Recorded:
    """A strategy that notes its calls."""

    name: str
    strategy: Strategy
    calls: list[str]

    def __call__(self, problem: Problem, context: Context) -> Solution:
        self.calls.append(self.name)
        return self.strategy(problem, context)


@dataclass(frozen=True)
class _RecordedWay:
    """A way that notes its calls."""

    way: Way
    calls: list[Way]
    name: str = "recorded"

    def us_per_op(self, problem: Problem) -> float:
        return self.way.us_per_op(problem)

    def __call__(self, problem: Problem, context: Context) -> tuple[str, Solution]:
        self.calls.append(self.way)
        return self.way(problem, context)


def _only_two(problem: Problem) -> BoolArray:
    permitted = problem.permitted.copy()
    permitted[:, accelerators(problem)[2:]] = False
    return permitted


def test_a_machine_that_is_slower_than_the_estimates_leaves_ways_out(
    problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look at the clock takes 40 s, so the time for ways is over after the first one."""
    used, clock = list[Way](), count(0.0, 40.0)
    monkeypatch.setattr(time_shares, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    found = [_RecordedWay(way, used) for way in every_way(problem)]
    monkeypatch.setattr(ways_in_time, "every_way", lambda *_: found)
    Pesto()(problem, Context(Limits(100.0)))
    assert len(found) > len(used) == 1


def test_the_first_two_ways_get_up_to_half_of_a_short_limit(problem: Problem) -> None:
    every = [*every_way(problem)]
    two_s = sum(way.us_per_op(problem) for way in every[:2]) * problem.num_ops / 1e6
    assert [*WaysInTime(problem, Context(Limits(two_s / 0.45)), 0.1).each()] == every[:2]


def test_ways_follow_from_the_time_limit(problem: Problem) -> None:
    every = [*every_way(problem)]
    ways = WaysInTime(problem, Context(Limits(time_limit_s=60.0)), 0.2)
    assert [*ways.each()] == every
    assert ways.notes == ()
    estimate_s = sum(way.us_per_op(problem) for way in every) * problem.num_ops / 1e6
    assert ways.share_used == pytest.approx(estimate_s / 60.0)
    limit_s = 1.5 * every[0].us_per_op(problem) * problem.num_ops / 1e6
    ways = WaysInTime(problem, Context(Limits(time_limit_s=limit_s)), 1.0)
    kept = [*ways.each()]
    assert 1 <= len(kept) < len(every)
    assert ways.notes == (
        f"the time limit was too short to try {len(every) - len(kept)} of {len(every)} ways to "
        "split",
    )
    two = on_machine(problem, PRESETS["v100x2-nvlink"])
    assert len([*every_way(two)]) < len(every)


def test_ops_that_fit_on_no_device_are_split_until_they_do(problem: Problem) -> None:
    """A whole op has inputs and outputs of 96 MiB."""
    devices = tuple(
        replace(device, memory_bytes=80 * 2**20) if device.kind == "GPU" else device
        for device in problem.machine.devices
    )
    small = replace(problem, machine=replace(problem.machine, devices=devices))
    context = Context(Limits(time_limit_s=2.0, deterministic=True))
    whole, split = (run(each, "pesto", context) for each in (replace(small, parts=None), small))
    assert whole.status is SolveStatus.OUT_OF_MEMORY
    assert split.status is SolveStatus.FEASIBLE
    assert (split.schedule.peak_bytes[1:] <= 80 * 2**20).all()
