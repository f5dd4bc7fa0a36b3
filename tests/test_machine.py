"""Tests of machines and problems: matrices, and refused values."""

from dataclasses import replace

import numpy as np
import pytest
from conftest import on_gpus, two_gpus

from pesto_cli.data.constraints import Constraints, Rule
from pesto_cli.data.graph import OpGraph
from pesto_cli.data.machine import CommModel, Device, Link, Machine
from pesto_cli.data.problem import Problem
from pesto_cli.errors import BadInputError, InfeasibleError


def test_each_link_has_its_own_channel_unless_it_names_one() -> None:
    machine = two_gpus()
    assert sorted(machine.channel[machine.channel >= 0]) == list(range(6))
    shared = replace(machine, links=tuple(replace(link, channel="bus") for link in machine.links))
    assert set(shared.channel[shared.channel >= 0]) == {0}
    assert shared.channel_names == ("bus",)


def machine_of(devices: list[Device], links: list[Link]) -> Machine:
    return Machine(tuple(devices), tuple(links))


A, B = Device("A", "GPU", 1), Device("B", "GPU", 1)
COMM = CommModel(1, 1)


@pytest.mark.parametrize(
    ("devices", "links", "message"),
    [
        ([], [], "no device"),
        ([A, A], [], "two devices named 'A'"),
        ([replace(A, speed=0)], [], "'A' has speed 0; a number from 1e-09"),
        ([replace(A, memory_bytes=-1)], [], "'A' has memory_bytes -1"),
        ([replace(A, op_overhead_us=-1)], [], "'A' has op_overhead_us -1"),
        ([A, B], [Link("A", "B", COMM)], "no link B -> A"),
        ([A], [Link("A", "A", COMM)], "joins a device with itself"),
        ([A], [Link("A", "C", COMM)], "names device 'C'; one of A was"),
        ([A, B], [Link("A", "B", COMM)] * 2, "two links A -> B; .*: remove one"),
        ([A, B], [Link("A", "B", CommModel(-1, 0))], "has latency_us -1"),
        ([A, B], [Link("A", "B", CommModel(1, float("inf")))], "has us_per_byte inf"),
    ],
)
def test_a_wrong_machine_is_refused_with_the_name_of_the_device_or_link(
    devices: list[Device], links: list[Link], message: str
) -> None:
    with pytest.raises(BadInputError, match=message):
        machine_of(devices, links)


def test_time_depends_on_kind_speed_and_overhead() -> None:
    machine = two_gpus()
    slow = replace(machine.devices[2], speed=0.5, op_overhead_us=3)
    machine = replace(machine, devices=(*machine.devices[:2], slow))
    graph = OpGraph.build(["a"], num_members=[2])
    problem = on_gpus(graph, [10], machine)
    assert problem.duration_us.tolist() == [[np.inf, 10, 26]]


def test_a_group_is_allowed_only_on_devices_that_can_run_all_members() -> None:
    graph = OpGraph.build(["a", "b"], colocation_group=[0, 0])
    times = {"GPU": np.array([1, 1.0]), "CPU": np.array([1, np.nan])}
    assert Problem.build(graph, times, two_gpus()).allowed[:, 0].tolist() == [False, False]


def test_an_op_without_a_device_is_infeasible() -> None:
    graph = OpGraph.build(["a"], types=["Weird"])
    with pytest.raises(InfeasibleError, match=r"op 'a' \(Weird\) can run on no device"):
        on_gpus(graph, [np.nan])
    with pytest.raises(InfeasibleError, match="it has a time on TPU, the machine has"):
        Problem.build(graph, {"TPU": np.array([1.0])}, two_gpus())


def test_a_group_without_a_common_device_is_infeasible() -> None:
    graph = OpGraph.build(["a", "b"], colocation_group=[0, 0])
    times = {"GPU": np.array([1, np.nan]), "CPU": np.array([np.nan, 1])}
    with pytest.raises(InfeasibleError, match=r"group of 2 ops .*'a'.*'b'"):
        Problem.build(graph, times, two_gpus())


@pytest.mark.parametrize("cost", [-1.0, np.inf])
def test_a_negative_or_infinite_time_is_refused(cost: float) -> None:
    with pytest.raises(BadInputError, match="op 'a' has time_us"):
        on_gpus(OpGraph.build(["a"]), [cost])


def test_constraints_pin_forbid_and_keep_together() -> None:
    graph = OpGraph.build(["x/a", "x/b", "y/a"])
    problem = on_gpus(graph, [1, 1, 1])
    bound = Constraints(
        pin=[Rule("x/a", "GPU:1")], forbid=[Rule("y/*", "GPU:1")], together=["x/*"], headroom=0.5
    ).apply(problem)
    assert bound.allowed[:, 1:].tolist() == [[False, True], [False, True], [True, False]]
    assert bound.capacity_bytes[0] == problem.capacity_bytes[0] / 2


def test_constraints_that_match_nothing_or_contradict_are_refused() -> None:
    problem = on_gpus(OpGraph.build(["a"]), [1])
    with pytest.raises(BadInputError, match="'z\\*' matches none"):
        Constraints(pin=[Rule("z*", "GPU")]).apply(problem)
    with pytest.raises(BadInputError, match="device 'TPU'"):
        Constraints(pin=[Rule("a", "TPU")]).apply(problem)
    with pytest.raises(InfeasibleError, match="the constraints forbid these"):
        Constraints(forbid=[Rule("a", "GPU")]).apply(problem)
    with pytest.raises(BadInputError, match="headroom is 2"):
        Constraints(headroom=2).apply(problem)
