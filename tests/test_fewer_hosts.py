"""A search over several hosts begins on the faster half of them."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from test_meshes import chain, slow_network
from test_split_search import on_machine
from training_graphs import exported

from benchmarks.problems import layered
from pesto_cli import api
from pesto_cli.data.columns import BoolArray
from pesto_cli.data.graph import OpGraph
from pesto_cli.data.limits import Limits
from pesto_cli.data.machine import Machine
from pesto_cli.data.presets import HOST_TO_V100, NETWORK, TWO_NVLINKS, cluster, v100_server
from pesto_cli.data.problem import Problem
from pesto_cli.data.result import Progress
from pesto_cli.data.schedule import Schedule
from pesto_cli.data.solution import Solution
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.files.tensorflow_names import labelled
from pesto_cli.strategies.context import Context
from pesto_cli.strategies.devices import accelerators, hosts_of_devices, on_faster_hosts
from pesto_cli.strategies.fewer_hosts import FEWER_HOSTS, SUFFIX, on_hosts_used_first
from pesto_cli.strategies.incumbent import Incumbent
from pesto_cli.strategies.order import ordered
from pesto_cli.strategies.pesto import Pesto
from pesto_cli.strategies.run import judged, run
from pesto_cli.strategies.split_search.ways import OnMeshes, share_of
from pesto_cli.strategies.split_search.ways_in_time import WaysInTime

LIMITS = Limits(time_limit_s=1.0, deterministic=True)


@pytest.fixture(scope="module")
def problem() -> Problem:
    return api.profile(exported(chain), "v100x4-nvlink", parts=(2, 4, 8)).problem


def servers(*num_gpus: int) -> Machine:
    return cluster(
        [v100_server(number, HOST_TO_V100, TWO_NVLINKS) for number in num_gpus],
        [NETWORK] * len(num_gpus),
    )


def of_machine(machine: Machine) -> Problem:
    return Problem.build(
        OpGraph.build([f"op_{number}" for number in range(64)]), {"GPU": [100.0] * 64}, machine
    )


def hosts_used(problem: Problem) -> list[str]:
    used: BoolArray = problem.permitted.any(axis=0)
    return [*dict.fromkeys(np.array(hosts_of_devices(problem))[used].tolist())]


def test_half_of_the_hosts_is_left_until_there_is_one() -> None:
    whole = of_machine(servers(2, 2, 2, 2))
    hosts = hosts_used(whole)
    two = on_faster_hosts(whole)
    assert two is not None
    assert hosts_used(two) == hosts[:2]
    one = on_faster_hosts(two)
    assert one is not None
    assert hosts_used(one) == hosts[:1]
    assert on_faster_hosts(one) is None


def test_the_faster_hosts_are_kept() -> None:
    problem = of_machine(servers(1, 4, 2))
    one = on_faster_hosts(problem)
    assert one is not None
    assert hosts_used(one) == hosts_used(problem)[1:2]


def test_ops_that_cannot_be_on_the_faster_hosts_keep_their_devices() -> None:
    problem = of_machine(servers(2, 2))
    permitted = problem.permitted.copy()
    permitted[3, : permitted.shape[1] // 2] = False
    pinned = replace(problem, permitted=permitted)
    one = on_faster_hosts(pinned)
    assert one is not None
    assert (one.permitted[3] == permitted[3]).all()
    assert not one.permitted[:3, permitted.shape[1] // 2 :].any()
    assert on_faster_hosts(one) is None


def test_hosts_of_feeds_alone_have_no_accelerators() -> None:
    names, nan = [f"op_{number}" for number in range(64)], float("nan")
    graph = labelled(OpGraph.build(names, types=["Placeholder", *["Op"] * 63]))
    times_us = {"GPU": [nan, *[100.0] * 63], "CPU": [1.0, *[nan] * 63]}
    fed = Problem.build(graph, times_us, servers(1, 4))
    assert not fed.allowed[0, 2:].any()  # feeds are on the first CPU
    fewer = on_faster_hosts(fed)
    assert fewer is not None
    names = [fed.machine.devices[index].name for index in accelerators(fewer)]
    assert names == [each.name for each in fed.machine.devices if each.kind != "CPU"][1:]


def test_workers_of_one_computer_are_one_host() -> None:
    machine = servers(2, 2)
    devices = tuple(replace(device, host="here") for device in machine.devices)
    assert on_faster_hosts(of_machine(machine)) is not None
    assert on_faster_hosts(of_machine(replace(machine, devices=devices))) is None


def test_hosts_whose_memory_is_too_small_are_not_searched_first() -> None:
    problem = layered(400, machine=slow_network(1e5))
    graph = problem.graph
    num_bytes = problem.machine.devices[1].memory_bytes // 150
    needs_all = replace(
        problem, graph=replace(graph, resident_bytes=np.full(graph.num_ops, num_bytes))
    )
    found = stages_of(needs_all, Context(LIMITS))
    assert not any(each.stage.endswith(FEWER_HOSTS) for each in found)


def stages_of(problem: Problem, context: Context) -> list[Progress]:
    found: list[Progress] = []
    Pesto()(problem, replace(context, on_progress=found.append))
    return found


@pytest.mark.parametrize("split", [False, True])
def test_the_answer_is_not_worse_than_for_one_host(problem: Problem, split: bool) -> None:
    """Between hosts, nothing should be sent."""
    limits = replace(LIMITS, time_limit_s=2.0)
    placed = on_machine(problem, slow_network(1e6))
    placed = placed if split else replace(placed, parts=None)
    one = on_faster_hosts(placed)
    assert one is not None
    alone, both = (Pesto()(each, Context(limits)) for each in (one, placed))
    assert both.makespan_us <= 1.02 * alone.makespan_us
    judged("pesto", both, 0.0)  # no rule is violated
    # The search may use all devices, except where the constraints forbid it.
    assert both.asked is placed
    assert both.problem.permitted.all()


def test_whole_ops_of_fewer_hosts_are_a_start_also_if_the_answer_splits_ops(
    problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts, place = list[Mapping[str, Schedule]](), Pesto.place

    def recorded(
        self: Pesto, problem: Problem, context: Context, found: Mapping[str, Schedule]
    ) -> Solution:
        starts.append(found)
        return place(self, problem, context, found)

    monkeypatch.setattr(Pesto, "place", recorded)
    placed = on_machine(problem, slow_network(100.0))
    one = on_faster_hosts(placed)
    assert one is not None
    Pesto()(placed, Context(LIMITS))
    on_one, on_both = starts[0], next(each for each in starts if FEWER_HOSTS in each)
    assert not on_one
    used = np.unique(on_both[FEWER_HOSTS].device).tolist()
    assert set(used) & set(accelerators(placed)) <= set(accelerators(one))
    assert len(on_both[FEWER_HOSTS].device) == placed.num_ops


def test_the_best_step_never_becomes_longer_and_the_bound_holds_for_all_hosts() -> None:
    problem = layered(400, machine=slow_network(1e5))
    found = stages_of(problem, Context(LIMITS))
    assert any(each.stage.endswith(FEWER_HOSTS) for each in found)
    assert not found[-1].stage.endswith(FEWER_HOSTS)
    steps_us = [each.makespan_us for each in found]
    assert steps_us == sorted(steps_us, reverse=True)
    assert all(each.lower_bound_us <= steps_us[-1] for each in found)


@pytest.mark.parametrize(("num_away", "moves"), [(1, True), (40, False), (0, True)])
def test_a_refinement_stays_on_the_hosts_that_have_the_work(num_away: int, moves: bool) -> None:
    """Its start has `num_away` ops of 64 on the second host."""
    problem = of_machine(slow_network(100.0))
    gpus = accelerators(problem)
    device = np.array([gpus[op % 2] for op in range(64)])
    device[:num_away] = gpus[2]
    short = problem.time_us.copy()
    short[:1] = 1.0
    simulator = Simulator(replace(problem, time_us=short))
    start = ordered(simulator, device)
    incumbent = Incumbent(simulator.problem, Context())
    incumbent.offer("start", start)
    first, *others = on_hosts_used_first(simulator, incumbent, Limits(8.0, deterministic=True))
    *_, last = first, *others
    assert last[0] is simulator
    assert last[1] is start
    assert sum(limits.time_limit_s for _, _, limits in (first, *others)) == 8.0
    assert bool(others) == moves
    if moves:
        on_hosts, moved, _ = first
        assert hosts_used(on_hosts.problem) == hosts_used(problem)[:1]
        assert on_hosts.problem.allowed[np.arange(64), moved.device].all()
        assert (moved.device[num_away:] == device[num_away:]).all()
        assert moved.makespan_us <= 1.02 * start.makespan_us


def test_a_start_that_needs_a_second_host_is_not_moved() -> None:
    """Its only op there takes little time, but all the memory that the first host lacks."""
    problem = of_machine(slow_network(100.0))
    gpus = accelerators(problem)
    most = problem.machine.devices[gpus[0]].memory_bytes
    resident, time_us = problem.graph.resident_bytes.copy(), problem.time_us.copy()
    resident[:3], time_us[0] = most * 2 // 3, 1.0
    graph = replace(problem.graph, resident_bytes=resident)
    simulator = Simulator(replace(problem, graph=graph, time_us=time_us))
    device = np.array([gpus[2], gpus[0], gpus[1], *(gpus[op % 2] for op in range(3, 64))])
    incumbent = Incumbent(simulator.problem, Context())
    incumbent.offer("start", ordered(simulator, device))
    parts = [*on_hosts_used_first(simulator, incumbent, Limits(8.0))]
    assert [on_hosts for on_hosts, _, _ in parts] == [simulator]


def test_ways_that_were_tried_on_fewer_hosts_are_not_tried_again(problem: Problem) -> None:
    placed = on_machine(problem, slow_network(100.0))
    first_host = set(accelerators(placed)[:2])
    used = {
        again: [
            {device for stage in mesh.stages for device in stage}
            for way in WaysInTime(placed, Context(Limits(600.0)), 1.0, on_fewer_hosts=again).each()
            if isinstance(way, OnMeshes)
            for mesh in way.meshes
        ]
        for again in (False, True)
    }
    assert first_host in used[False]
    assert [devices for devices in used[False] if not devices <= first_host] == used[True]


def test_a_search_with_a_warm_start_uses_all_hosts_at_once() -> None:
    problem = layered(400, machine=slow_network(1e5))
    start = Pesto()(problem, Context(LIMITS)).schedule.placement
    found = stages_of(problem, Context(LIMITS, warm_start=start))
    assert not any(each.stage.endswith(FEWER_HOSTS) for each in found)


def test_a_short_search_is_on_all_hosts_at_once_and_constructs_one_way(problem: Problem) -> None:
    placed = on_machine(problem, slow_network(100.0))
    first = next(WaysInTime(placed, Context(Limits(600.0)), 1.0).each())
    one_way = share_of(first.us_per_op(placed), placed, LIMITS) * LIMITS.time_limit_s
    short, long = (replace(LIMITS, time_limit_s=one_way / share) for share in (0.7, 0.1))
    assert not any(each.stage.endswith(SUFFIX) for each in stages_of(placed, Context(short)))
    assert any(each.stage.endswith(SUFFIX) for each in stages_of(placed, Context(long)))
    assert len([*WaysInTime(placed, Context(short), 0.25).each()]) == 1
    too_short = replace(LIMITS, time_limit_s=one_way / 3)
    assert not [*WaysInTime(placed, Context(too_short), 0.25).each()]


def test_all_stages_have_names(problem: Problem) -> None:
    found = stages_of(on_machine(problem, slow_network(1e6)), Context(LIMITS))
    stages = {each.stage.removesuffix(SUFFIX) for each in found}
    assert {"refinement", "refinement of parts"} <= stages
    assert "" not in stages


def test_one_accelerator_alone_is_not_searched(problem: Problem) -> None:
    machine = slow_network(1e6)
    kept = {device.name for device in machine.devices if not device.name.endswith("GPU:1")}
    one_each = replace(
        machine,
        devices=tuple(device for device in machine.devices if device.name in kept),
        links=tuple(link for link in machine.links if {link.src, link.dst} <= kept),
    )
    placed = on_machine(problem, one_each)
    assert on_faster_hosts(placed) is None
    result = run(placed, "pesto", Context(LIMITS))
    assert not [note for note in result.solution.notes if "one accelerator" in note]
