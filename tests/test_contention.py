"""Contention: ops are slower while other devices of the same kind and host run ops."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pesto_cli import api
from pesto_cli.bounds.canonical import canonical_order
from pesto_cli.coarsen import coarsen
from pesto_cli.data.graph import OpGraph, Tensor
from pesto_cli.data.machine import CommModel, Device, Link, Machine
from pesto_cli.data.presets import PRESETS
from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import Placement, Schedule
from pesto_cli.data.symmetry import interchangeable
from pesto_cli.errors import BadInputError
from pesto_cli.evaluation.simulator import list_schedule
from pesto_cli.evaluation.violations import violations
from pesto_cli.evaluation.work import work_us
from pesto_cli.files import Profile
from pesto_cli.files.machine import machine_json, read_machine
from pesto_cli.profile.run.contention import slow_downs, text
from pesto_cli.report.explanation.op import OpFacts
from pesto_cli.report.explanation.tables import op_text
from pesto_cli.report.notebook.cards import machine_card
from pesto_cli.tuning.seen import WHOLE, Placed

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


def test_devices_of_a_host_are_only_interchangeable_with_all_their_peers() -> None:
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
    with pytest.raises(BadInputError, match=r"slow-down of -1\.0 for A; a number from 0 to 1000"):
        machine("hh", {"A": -1.0})
    with pytest.raises(BadInputError, match="slow-down of nan for all other ops"):
        machine("hh", {"": float("nan")})


def test_the_work_of_an_op_is_its_time_without_contention() -> None:
    comm = CommModel(latency_us=1.0, us_per_byte=0.0, sender_us=2.0)
    graph = OpGraph.build(["a", "b", "c", "d"], [Tensor(0, 1, [2])], types=["", "", "", "D"])
    of = Problem.build(graph, {"CPU": [1.0, 100.0, 1.0, 10.0]}, machine("hh", {"D": 1.0}, comm))
    schedule = list_schedule(of, np.array([0, 1, 1, 0]), -np.arange(4.0))
    assert work_us(of, schedule) == pytest.approx([1, 100, 1, 12])  # "d": with overhead
    plain = replace(of, machine=replace(of.machine, contention={}))
    assert work_us(plain, schedule).tolist() == (schedule.end_us - schedule.start_us).tolist()


def test_an_explanation_tells_contention_from_transfers() -> None:
    profile = Profile(problem([10.0, 4.0], ["A", "B"], machine("hh", {"A": 0.5})))
    (result,) = api.compare(profile, ["round-robin"])
    facts = api.explain(profile, api.placement(profile, result), "op0")
    assert isinstance(facts, OpFacts)
    assert (facts.lost_us, facts.contended_us) == (0, pytest.approx(4 - 4 / 1.5))
    longer = "ran 1.333 us longer because other devices of its host computed meanwhile (contention)"
    assert longer in op_text(facts)


def test_the_card_of_a_machine_names_the_largest_slow_down() -> None:
    (_, fact) = machine_card(machine("hh", {"A": 0.5, "": 0.25})).facts
    assert fact == "ops up to 50% slower for each other busy device of the host"
    assert len(machine_card(machine("hg", {"A": 0.5})).facts) == 1


def test_measured_times_of_a_plan_are_compared_without_its_contention() -> None:
    of = problem([10.0, 4.0, 0.0], ["A", "B", "B"], machine("hh", {"A": 0.5}))
    placement = Placement(np.array([0, 1, 1]), np.array([0, 0, 1]))
    placed = Placed(of, placement, np.arange(3), np.full(3, WHOLE), ())
    assert placed.contention == pytest.approx([(14 - 4 / 1.5) / 10, 1, 1])
    alone = replace(of, machine=replace(of.machine, contention={}))
    assert replace(placed, problem=alone).contention.tolist() == [1, 1, 1]


def test_ops_that_differ_only_in_their_slow_down_have_a_canonical_order() -> None:
    on = machine("hh", {"A": 0.5})
    orders = [
        [types[op] for op in canonical_order(problem([1.0, 1.0], types, on))]
        for types in (["A", "B"], ["B", "A"])
    ]
    assert orders[0] == orders[1]


def test_a_coarse_node_has_the_slow_down_of_its_heaviest_member() -> None:
    graph = OpGraph.build(["a", "b"], [Tensor(0, 1, [1])], types=["A", "B"])
    of = Problem.build(graph, {"CPU": [1.0, 9.0]}, machine("hh", {"A": 1.0, "B": 0.25}))
    coarse = coarsen(of, 1).problem
    assert coarse.num_ops == 1
    assert coarse.slow_down.tolist() == [[0.25, 0.25]]


def test_servers_of_a_preset_are_different_hosts() -> None:
    two = PRESETS["2x4-v100"]
    assert [device.host for device in two.devices] == ["worker:0"] * 5 + ["worker:1"] * 5


# Measured slow-downs, from times in pairs of steps: alone, and beside other devices.


def pairs_of(alone_us: float, beside_us: list[float]) -> np.ndarray:
    return np.array([[alone_us, us] for us in beside_us])


def test_a_slow_down_is_the_median_ratio_of_pairs_for_each_other_device() -> None:
    times = {
        "MatMul": pairs_of(100.0, [110, 112, 114, 130, 111]),
        "AddN": pairs_of(50.0, [75, 75, 75, 75, 75]),
    }
    assert slow_downs(times, 1) == pytest.approx({"MatMul": 0.12, "AddN": 0.5})
    assert slow_downs(times, 2) == pytest.approx({"MatMul": 0.06, "AddN": 0.25})


def test_a_slow_down_that_may_be_chance_is_0() -> None:
    # In two of five pairs, the ops were not slower.
    times = {"MatMul": pairs_of(100.0, [99, 100, 120, 120, 120]), "Relu": pairs_of(9.0, [8.0] * 5)}
    assert slow_downs(times, 1) == {"MatMul": 0, "Relu": 0}


def test_types_with_little_work_are_measured_together() -> None:
    times = {
        "MatMul": pairs_of(1000.0, [1000.0] * 5),
        "Relu": pairs_of(3.0, [4.0] * 5),
        "Exp": pairs_of(1.0, [2.0] * 5),
    }
    assert slow_downs(times, 1) == {"MatMul": 0, "": pytest.approx(0.5)}


def test_types_that_take_no_time_have_no_slow_down() -> None:
    times = {"MatMul": pairs_of(10.0, [20.0] * 5), "NoOp": pairs_of(0.0, [0.0] * 5)}
    assert slow_downs(times, 1) == pytest.approx({"MatMul": 1.0})
    assert slow_downs({}, 1) == {}


def test_pairs_without_a_time_alone_do_not_count() -> None:
    times = {"MatMul": np.array([[0.0, 5.0], *[[10.0, 15.0]] * 4])}
    assert slow_downs(times, 1) == pytest.approx({"MatMul": 0.5})


def test_a_note_names_the_largest_slow_downs() -> None:
    found = {"A": 0.02, "B": 0.23, "C": 0.0, "D": 0.05, "": 0.01}
    assert text("CPU", found) == (
        "ops are slower while another CPU of the host computes: B 23%, D 5%, A 2%, types with "
        "little work 1%."
    )
    many = text("CPU", {str(number): number / 100 for number in range(1, 9)})
    assert many.endswith("computes: 8 8%, 7 7%, 6 6%, 5 5%, 4 4%.")
    assert text("CPU", {"A": 0.0}) == "ops are not slower while another CPU of the host computes."
