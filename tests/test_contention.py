"""Contention: ops are slower while other devices of the same kind and host run ops."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pesto_cli.data.graph import OpGraph, Tensor
from pesto_cli.data.machine import CommModel, Device, Link, Machine
from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import Schedule
from pesto_cli.data.symmetry import interchangeable
from pesto_cli.errors import BadInputError
from pesto_cli.evaluation.simulator import list_schedule
from pesto_cli.evaluation.violations import violations
from pesto_cli.files.machine import machine_json, read_machine

COMM = CommModel(latency_us=1.0, us_per_byte=0.0)


def machine(
    hosts: str, contention: Mapping[str, float], comm: CommModel = COMM, kind: str = "CPU"
) -> Machine:
    """A machine with one device for each letter, which is its host."""
    devices = tuple(Device(f"d{i}", kind, 100, host=host) for i, host in enumerate(hosts))
    pairs = [(a.name, b.name) for a in devices for b in devices if a != b]
    links = tuple(Link(src, dst, comm) for src, dst in pairs)
    return Machine(devices, links, contention={"CPU": contention})


def problem(times_us: list[float], types: list[str], on: Machine) -> Problem:
    """Ops without edges."""
    graph = OpGraph.build([f"op{i}" for i in range(len(times_us))], [], types=types)
    return Problem.build(graph, {on.devices[0].kind: times_us}, on)


def ends_us(of: Problem, device: list[int]) -> list[float]:
    """The ends of the ops; the schedule breaks no rule."""
    schedule = list_schedule(of, np.array(device), -np.arange(of.num_ops, dtype=float))
    assert violations(of, schedule) == []
    return schedule.end_us.tolist()


def test_an_op_is_slower_while_another_device_of_the_host_runs_an_op() -> None:
    two = problem([10.0, 4.0], ["A", "B"], machine("hh", {"A": 0.5}))
    # B ends at 4. Until then A has done 4 / 1.5 us of its work.
    assert ends_us(two, [0, 1]) == pytest.approx([4 + 10 - 4 / 1.5, 4])


def test_devices_of_other_hosts_and_kinds_and_a_device_alone_change_nothing() -> None:
    times_us, types = [10.0, 4.0], ["A", "B"]
    assert ends_us(problem(times_us, types, machine("hg", {"A": 0.5})), [0, 1]) == [10, 4]
    assert ends_us(problem(times_us, types, machine("hh", {"A": 0.5})), [0, 0]) == [10, 14]
    gpus = machine("hh", {"A": 0.5}, kind="GPU")
    assert ends_us(problem(times_us, types, gpus), [0, 1]) == [10, 4]


def test_each_other_device_that_runs_an_op_slows_down_an_op() -> None:
    three = problem([8.0, 100.0, 100.0], ["A", "B", "B"], machine("hhh", {"A": 0.5}))
    assert ends_us(three, [0, 1, 2]) == [16, 100, 100]


def test_the_empty_type_stands_for_all_types_that_are_not_named() -> None:
    two = problem([10.0, 10.0], ["A", "B"], machine("hh", {"A": 0.0, "": 1.0}))
    assert ends_us(two, [0, 1]) == [10, 15]


def test_an_op_that_starts_later_slows_down_the_rest_of_one_that_runs() -> None:
    graph = OpGraph.build(["a", "b", "c"], [Tensor(1, 1, [2])], types=["A", "", ""])
    on = machine("hh", {"A": 1.0})
    late = Problem.build(graph, {"CPU": [10.0, 2.0, 3.0]}, on)
    # "a" runs alone while the tensor of "b" is on its link, from 2 to 3; "b" is on another device.
    assert ends_us(late, [0, 1, 1]) == pytest.approx([10 + 2 / 2 + 3 / 2, 2, 5])


def test_overheads_of_transfers_are_slowed_down_too() -> None:
    comm = CommModel(latency_us=1.0, us_per_byte=0.0, sender_us=2.0)
    graph = OpGraph.build(["a", "b", "c", "d"], [Tensor(0, 1, [2])], types=["", "", "", "D"])
    on = machine("hh", {"D": 1.0}, comm)
    of = Problem.build(graph, {"CPU": [1.0, 100.0, 1.0, 10.0]}, on)
    # "d" starts at 1 beside "b", with the overhead of the tensor of "a": 2 * (10 + 2) us.
    assert ends_us(of, [0, 1, 1, 0]) == [1, 100, 101, 25]


def test_contention_of_zero_changes_nothing() -> None:
    on = machine("hh", {"A": 0.0})
    assert not on.has_contention
    assert ends_us(problem([10.0, 4.0], ["A", "B"], on), [0, 1]) == [10, 4]


def test_violations_find_an_op_that_ends_too_early_or_too_late() -> None:
    two = problem([10.0, 4.0], ["A", "B"], machine("hh", {"A": 0.5}))
    schedule = list_schedule(two, np.array([0, 1]), np.array([1.0, 0.0]))
    for late_us in (-0.01, 0.01):
        end_us = schedule.end_us + np.array([late_us, 0.0])
        shifted: Schedule = replace(schedule, end_us=end_us)
        assert [found.rule for found in violations(two, shifted)] == ["duration"]


def test_devices_of_a_host_are_only_interchangeable_with_all_their_rivals() -> None:
    assert interchangeable(problem([1.0], ["A"], machine("hhg", {"A": 1.0}))) == [[0, 1]]
    assert interchangeable(problem([1.0], ["A"], machine("hhg", {}))) == [[0, 1, 2]]


def test_a_machine_file_keeps_contention_and_hosts(tmp_path: Path) -> None:
    on = machine("hh", {"A": 0.5, "": 0.25})
    path = tmp_path / "machine.toml"
    rows = [
        "signal_us = 1.0",
        *(
            f'[[devices]]\nname = "{each.name}"\nkind = "CPU"\nmemory_bytes = 100\nhost = "h"'
            for each in on.devices
        ),
        *(
            f'[[links]]\nsrc = "{link.src}"\ndst = "{link.dst}"\nlatency_us = 1\nus_per_byte = 0'
            for link in on.links
        ),
        '[contention.CPU]\nA = 0.5\n"" = 0.25',
    ]
    path.write_text("\n".join(rows))
    assert read_machine(str(path)).contention == on.contention
    assert read_machine(str(path)).devices == on.devices
    assert machine_json(on)["contention"] == {"CPU": {"A": 0.5, "": 0.25}}
    plain = machine_json(machine("--", {}))
    assert "contention" not in machine_json(replace(on, contention={}))
    assert plain["devices"][0]["host"] == "-"


def test_a_slow_down_below_zero_is_refused() -> None:
    with pytest.raises(BadInputError, match="slow-down of -1.0 for A; a number from 0 to 1000"):
        machine("hh", {"A": -1.0})
    with pytest.raises(BadInputError, match="slow-down of nan for all other ops"):
        machine("hh", {"": float("nan")})
