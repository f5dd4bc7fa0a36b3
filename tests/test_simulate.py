"""Tests of the simulator against times by hand and against the independent check."""

from dataclasses import replace

import numpy as np
import pytest
from conftest import on_gpus, two_gpus
from random_problems import every_third_contended, random_devices

from pesto_cli.bounds import lower_bound_us
from pesto_cli.data.graph import OpGraph, Tensor
from pesto_cli.data.machine import CommModel, Link
from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import Placement, Schedule
from pesto_cli.errors import BadInputError
from pesto_cli.evaluation.simulator import (
    Simulator,
    list_schedule,
    replay,
    transfers_us,
    upward_rank,
)
from pesto_cli.evaluation.violations import violations
from pesto_cli.files.tensorflow_names import labelled

CPU, GPU0, GPU1 = 0, 1, 2


def by_rank(problem: Problem, device: list[int]) -> Schedule:
    placed = np.array(device)
    return list_schedule(problem, placed, upward_rank(problem, placed))


def test_diamond_on_one_device_takes_the_sum(diamond: Problem) -> None:
    assert by_rank(diamond, [GPU0] * 4).makespan_us == 22


def test_diamond_on_two_devices_pays_for_both_transfers(diamond: Problem) -> None:
    # a ends at 1, its tensor arrives at 3, c ends at 13, its tensor arrives at 15; d ends at 16.
    assert by_rank(diamond, [GPU0, GPU0, GPU1, GPU0]).makespan_us == 16


def test_a_tensor_is_sent_once_to_a_device_for_all_its_consumers() -> None:
    graph = OpGraph.build(["a", "b", "c"], [Tensor(0, 1000, [1, 2])])
    schedule = by_rank(on_gpus(graph, [1, 1, 1]), [GPU0, GPU1, GPU1])
    assert len(schedule.transfers) == 1
    assert schedule.makespan_us == 1 + 2 + 1 + 1


def test_transfers_on_a_link_queue_and_opposite_links_do_not() -> None:
    graph = OpGraph.build(
        list("abcd"), [Tensor(0, 1000, [1]), Tensor(0, 1000, [2]), Tensor(3, 1000, [2])]
    )
    schedule = by_rank(on_gpus(graph, [1, 0, 0, 1]), [GPU0, GPU1, GPU1, GPU1])
    assert schedule.transfers.start_us.tolist() == [1, 3]
    assert schedule.transfers.end_us.tolist() == [3, 5]


def test_links_of_one_channel_share_a_queue() -> None:
    graph = OpGraph.build(list("abcd"), [Tensor(0, 1000, [2]), Tensor(1, 1000, [3])])
    apart = on_gpus(graph, [1, 1, 1, 1])
    device = [GPU0, GPU1, GPU1, GPU0]
    assert by_rank(apart, device).makespan_us == 1 + 2 + 1
    links = tuple(replace(link, channel="bus") for link in apart.machine.links)
    shared = replace(apart, machine=replace(apart.machine, links=links))
    assert by_rank(shared, device).makespan_us == 1 + 2 + 2 + 1


def test_first_come_first_served_by_end_of_producer_then_its_index() -> None:
    # b ends first, so its tensor goes first; then a and c end together and a's goes first.
    graph = OpGraph.build(
        ["a", "b", "c", "x", "y", "z"],
        [Tensor(0, 1000, [3]), Tensor(1, 1000, [4]), Tensor(2, 1000, [5])],
    )
    machine = two_gpus()
    gpu2 = replace(machine.devices[1], name="GPU:2")
    names = [*(device.name for device in machine.devices), "GPU:2"]
    links = tuple(
        Link(src, dst, CommModel(1.0, 0.001), channel=f"to {dst}")
        for src in names
        for dst in names
        if src != dst
    )
    wide = replace(machine, devices=(*machine.devices, gpu2), links=links)
    problem = on_gpus(graph, [2, 1, 2, 0, 0, 0], wide)
    schedule = list_schedule(problem, np.array([1, 3, 3, 2, 2, 2]), np.array([9, 9, 8, 0, 0, 0.0]))
    # On GPU:2, b runs before c; c ends at 3, a at 2.
    assert schedule.transfers.tensor.tolist() == [1, 0, 2]
    together = on_gpus(graph, [2, 1, 1, 0, 0, 0], wide)
    schedule = list_schedule(together, np.array([1, 3, 3, 2, 2, 2]), np.array([9, 9, 8, 0, 0, 0.0]))
    assert schedule.transfers.tensor.tolist() == [1, 0, 2]
    assert schedule.transfers.start_us.tolist() == [1, 3, 5]


def test_signals_delay_and_occupy_no_link() -> None:
    graph = OpGraph.build(list("abc"), [Tensor(0, 10**6, [1], [True])], control_edges=[(0, 2)])
    schedule = by_rank(on_gpus(graph, [1, 1, 1]), [GPU0, GPU1, GPU1])
    assert len(schedule.transfers) == 0
    assert schedule.makespan_us == 1 + 0.5 + 1 + 1
    assert by_rank(on_gpus(graph, [1, 1, 1]), [GPU0, GPU0, GPU0]).makespan_us == 3


def test_feeds_come_from_the_host_and_fetches_return_to_it() -> None:
    graph = OpGraph.build(
        ["x", "a", "out"],
        [Tensor(0, 1000, [1]), Tensor(1, 2000, [2])],
        types=["Placeholder", "MatMul", "_Retval"],
    )
    times = {"GPU": np.array([5.0, 4, np.nan]), "CPU": np.array([5.0, np.nan, 7])}
    problem = Problem.build(labelled(graph), times, two_gpus())
    assert problem.allowed.tolist() == [
        [True, False, False],
        [False, True, True],
        [True, False, False],
    ]
    assert by_rank(problem, [CPU, GPU1, CPU]).makespan_us == 2 + 4 + 3


def test_feeds_run_at_time_0_before_other_ops_of_the_host() -> None:
    graph = OpGraph.build(
        ["busy", "x", "use"], [Tensor(1, 1000, [2])], types=["Work", "Placeholder", "Work"]
    )
    times = {"GPU": np.array([np.nan, np.nan, 4]), "CPU": np.array([100, 0, np.nan])}
    problem = Problem.build(labelled(graph), times, two_gpus())
    device = np.array([CPU, CPU, GPU0])
    schedule = list_schedule(problem, device, np.array([9.0, 1, 1]))
    assert schedule.start_us.tolist() == [0, 0, 2]
    late_feed = Placement(device, np.array([0, 1, 0]))
    assert replay(problem, late_feed).start_us.tolist() == [0, 0, 2]


@pytest.mark.parametrize("host", [None, "CPU:0"])
def test_a_feed_that_the_host_cannot_run_is_an_op_like_any_other(host: str | None) -> None:
    graph = labelled(OpGraph.build(["work", "x"], types=["Work", "Placeholder"]))
    machine = two_gpus()
    if host is None:
        devices, links = machine.devices[1:], machine.links
        machine = replace(
            machine,
            devices=devices,
            links=tuple(link for link in links if "CPU:0" not in (link.src, link.dst)),
        )
    times = {"GPU": np.array([4.0, 3.0]), "CPU": np.array([4.0, np.nan])}
    problem = Problem.build(graph, times, machine)
    device = np.full(2, machine.index_of["GPU:0"])
    first = list_schedule(problem, device, np.array([2.0, 1.0]))
    assert first.start_us.tolist() == [0, 4]
    for rank in ([0, 1], [1, 0]):
        schedule = replay(problem, Placement(device, np.array(rank)))
        assert schedule.rank.tolist() == rank
        assert violations(problem, schedule) == []


def test_priority_decides_and_ties_go_to_the_lowest_index() -> None:
    problem = on_gpus(OpGraph.build(list("abc")), [1, 1, 1])
    device = np.array([GPU0] * 3)
    assert list_schedule(problem, device, np.array([1.0, 2, 2])).rank.tolist() == [2, 0, 1]


def test_zero_time_ops_have_a_rank() -> None:
    graph = OpGraph.build(list("abc"), [Tensor(0, 0, [1]), Tensor(1, 0, [2])])
    problem = on_gpus(graph, [0, 0, 0])
    schedule = by_rank(problem, [GPU0] * 3)
    assert schedule.makespan_us == 0
    assert schedule.rank.tolist() == [0, 1, 2]


def test_replay_waits_for_the_next_op_in_rank_order() -> None:
    graph = OpGraph.build(list("abc"), [Tensor(0, 1000, [1])])
    problem = on_gpus(graph, [1, 1, 5])
    device = np.array([GPU0, GPU1, GPU1])
    assert replay(problem, Placement(device, np.array([0, 0, 1]))).makespan_us == 1 + 2 + 1 + 5
    assert replay(problem, Placement(device, np.array([0, 1, 0]))).makespan_us == 5 + 1


def test_an_order_against_precedence_is_refused(diamond: Problem) -> None:
    backwards = Placement(np.array([GPU0] * 4), np.array([3, 2, 1, 0]))
    with pytest.raises(BadInputError, match="'d' is next on its device"):
        replay(diamond, backwards)


def test_memory_counts_copies_and_ends_with_the_last_consumer() -> None:
    graph = OpGraph.build(
        list("abcd"),
        [Tensor(0, 1000, [1]), Tensor(1, 4000, [2]), Tensor(2, 2000, [3])],
        resident_bytes=[10, 0, 20, 0],
    )
    problem = on_gpus(graph, [1, 1, 1, 1])
    chain = by_rank(problem, [GPU0] * 4)
    assert chain.peak_bytes.tolist() == [0, 30 + 4000 + 2000, 0]
    split = by_rank(problem, [GPU0, GPU0, GPU1, GPU1])
    # b's output is held on its device until it is sent; the copy is held until c ends.
    assert split.peak_bytes.tolist() == [0, 10 + 1000 + 4000, 20 + 4000 + 2000]


def test_an_alias_uses_no_memory_and_its_source_is_held() -> None:
    tensors = [Tensor(0, 4000, [1]), Tensor(1, 4000, [3]), Tensor(2, 500, [3])]
    plain = OpGraph.build(list("abcd"), tensors, control_edges=[(1, 2)])
    alias = OpGraph.build(list("abcd"), tensors, control_edges=[(1, 2)], alias_of=[-1, 0, -1, -1])
    times = [1.0, 1, 1, 1]
    assert by_rank(on_gpus(plain, times), [GPU0] * 4).peak_bytes[GPU0] == 8000
    assert by_rank(on_gpus(alias, times), [GPU0] * 4).peak_bytes[GPU0] == 4500


def test_the_output_of_a_resident_op_uses_memory_only_as_a_copy() -> None:
    graph = OpGraph.build(
        list("ab"), [Tensor(0, 4000, [1])], resident_bytes=[4000, 0], alias_of=[0, -1]
    )
    problem = on_gpus(graph, [1.0, 1])
    assert by_rank(problem, [GPU0, GPU0]).peak_bytes.tolist() == [0, 4000, 0]
    assert by_rank(problem, [GPU0, GPU1]).peak_bytes.tolist() == [0, 4000, 4000]


def random_problem(rng: np.random.Generator) -> Problem:
    num_ops = int(rng.integers(2, 40))
    tensors = []
    for op in range(num_ops - 1):
        for _ in range(rng.integers(1, 3)):
            consumers = rng.integers(op + 1, num_ops, size=rng.integers(0, 3)).tolist()
            hosts = (rng.random(len(consumers)) < 0.1).tolist()
            tensors.append(Tensor(op, int(rng.integers(0, 20_000)), consumers, hosts))
    source = {consumer: t.producer for t in tensors for consumer in t.consumers}
    edges = [(op, int(rng.integers(op + 1, num_ops))) for op in range(0, num_ops - 1, 5)]
    graph = OpGraph.build(
        [f"op{op}" for op in range(num_ops)],
        tensors,
        types=["Placeholder", *["MatMul"] * (num_ops - 2), "_Retval"],
        control_edges=edges,
        resident_bytes=rng.integers(0, 100, num_ops),
        alias_of=[source.get(op, -1) if rng.random() < 0.2 else -1 for op in range(num_ops)],
    )
    gpu = np.round(rng.exponential(5, num_ops)) * (rng.random(num_ops) < 0.8)
    cpu = np.where(rng.random(num_ops) < 0.5, 2 * gpu, np.nan)
    cpu[[0, -1]] = 0
    return Problem.build(labelled(graph), {"GPU": gpu, "CPU": cpu}, two_gpus())


def with_overhead(problem: Problem, **comm: float) -> Problem:
    """Return the problem with transfer overhead at the endpoints."""
    machine = problem.machine
    links = tuple(replace(link, comm=replace(link.comm, **comm)) for link in machine.links)
    return replace(problem, machine=replace(machine, links=links))


OVERHEAD = {
    "sender_us": 2.0,
    "sender_us_per_byte": 0.001,
    "receiver_us": 3.0,
    "receiver_us_per_byte": 0.002,
}
DELAYS = {"wait_us": 7.0}


@pytest.mark.parametrize(
    "comm", [{}, OVERHEAD, DELAYS, OVERHEAD | DELAYS], ids=["plain", "overhead", "delays", "both"]
)
@pytest.mark.parametrize("seed", range(5))
def test_every_schedule_passes_the_checker_and_replays_exactly(
    seed: int, comm: dict[str, float]
) -> None:
    rng = np.random.default_rng(seed)
    for number in range(40):
        problem = every_third_contended(with_overhead(random_problem(rng), **comm), number)
        device = random_devices(problem, rng)
        simulator = Simulator(problem)
        schedule = simulator.list_schedule(device, rng.random(problem.num_ops).round(1))
        assert violations(problem, schedule) == []
        again = simulator.replay(schedule.placement)
        assert (again.start_us == schedule.start_us).all()
        assert (again.end_us == schedule.end_us).all()
        assert (again.rank == schedule.rank).all()
        assert (again.transfers.start_us == schedule.transfers.start_us).all()
        assert (again.peak_bytes == schedule.peak_bytes).all()
        assert schedule.makespan_us >= lower_bound_us(problem) - 1e-6


def test_upward_rank_without_queueing_bounds_the_makespan() -> None:
    rng = np.random.default_rng(1)
    for _ in range(50):
        problem = random_problem(rng)
        device = random_devices(problem, rng)
        rank = upward_rank(problem, device)
        assert rank.max() <= list_schedule(problem, device, rank).makespan_us + 1e-9
        assert (upward_rank(problem) <= rank + 1e-9).all()


def test_the_sum_of_transfer_times_does_not_depend_on_the_order() -> None:
    rng = np.random.default_rng(2)
    for _ in range(50):
        problem = random_problem(rng)
        device = random_devices(problem, rng)
        simulator = Simulator(problem)
        transfers = simulator.list_schedule(device, rng.random(problem.num_ops)).transfers
        together = transfers_us(simulator.kernel_graph, simulator.kernel_machine, device)
        assert together == pytest.approx((transfers.end_us - transfers.start_us).sum())


def test_a_transfer_lengthens_the_ops_on_sender_and_receiver() -> None:
    # op0 sends 1,000 bytes from GPU:0 to op3 on GPU:1, while op1 and op2 run.
    graph = OpGraph.build([f"op{op}" for op in range(4)], [Tensor(0, 1000, [3])])
    times = {"GPU": [10.0, 100.0, 100.0, 5.0]}
    problem = with_overhead(Problem.build(graph, times, two_gpus()), **OVERHEAD)
    device, priority = np.array([GPU0, GPU0, GPU1, GPU1]), np.array([4.0, 3.0, 2.0, 1.0])
    schedule = Simulator(problem).list_schedule(device, priority)
    assert schedule.end_us[1] == pytest.approx(10 + 100 + 2 + 1)
    assert schedule.end_us[2] == pytest.approx(100 + 3 + 2)
    assert violations(problem, schedule) == []
    assert {
        found.rule for found in violations(with_overhead(problem, sender_us=0.0), schedule)
    } == {"duration"}


def test_the_overhead_of_a_transfer_counts_when_it_starts_on_its_link() -> None:
    # op0 sends two tensors to op3: at 10 us, and when the link is free at 12 us. op1 ends at 11 us,
    # after the first overhead it ends at 14 us, and op2 at 14 + 100.
    tensors = [Tensor(0, 1000, [3]), Tensor(0, 1000, [3])]
    graph = OpGraph.build([f"op{op}" for op in range(4)], tensors)
    times = {"GPU": [10.0, 1.0, 100.0, 5.0]}
    problem = with_overhead(Problem.build(graph, times, two_gpus()), sender_us=1.5)
    device, priority = np.array([GPU0, GPU0, GPU0, GPU1]), np.array([4.0, 3.0, 2.0, 1.0])
    schedule = list_schedule(problem, device, priority)
    assert schedule.transfers.start_us == pytest.approx([10, 12])
    assert schedule.end_us[1:3] == pytest.approx([12.5 + 1.5, 14 + 100])
    assert violations(problem, schedule) == []


@pytest.mark.parametrize(
    ("ready_us", "share"), [(10.0, 1.0), (10.5, 0.75), (11.5, 0.25), (12.0, 0)]
)
def test_an_op_that_starts_during_a_transfer_has_the_share_that_is_left(
    ready_us: float, share: float
) -> None:
    # The tensor of op0 is on its link from 10 to 12 us. op1 starts at `ready_us` on the receiver,
    # after op2, which takes no time there; op3 starts next.
    graph = OpGraph.build(
        ["op0", "op1", "op2", "op3", "late"], [Tensor(0, 1000, [3])], control_edges=[(4, 2), (2, 1)]
    )
    times = [10.0, 20.0, 0.0, 1.0, ready_us - 0.5]
    overhead = {"receiver_us": 3.0, "receiver_us_per_byte": 0.001}
    plain = Problem.build(graph, {"GPU": times, "CPU": times}, two_gpus())
    machine = plain.machine
    links = tuple(
        replace(link, comm=replace(link.comm, **overhead)) if link.src == "GPU:0" else link
        for link in machine.links
    )
    problem = replace(plain, machine=replace(machine, links=links))
    device = np.array([GPU0, GPU1, GPU1, GPU1, CPU])
    schedule = list_schedule(problem, device, np.array([5.0, 4.0, 3.0, 2.0, 1.0]))
    assert schedule.start_us[1] == pytest.approx(ready_us)
    assert schedule.end_us[1] - schedule.start_us[1] == pytest.approx(20 + 4 * share)
    assert violations(problem, schedule) == []


def test_a_signal_has_the_overhead_and_the_delays_of_a_tensor_without_bytes() -> None:
    # op0 signals its end at 10 us to op1; op2 runs on the sender, op3 on the receiver.
    graph = OpGraph.build([f"op{op}" for op in range(4)], [], control_edges=[(0, 1)])
    problem = Problem.build(graph, {"GPU": [10.0, 5.0, 30.0, 12.0]}, two_gpus())
    comm = OVERHEAD | {"wait_us": 1.0}
    device, priority = np.array([GPU0, GPU1, GPU0, GPU1]), np.array([4.0, 3.0, 2.0, 1.0])
    schedule = list_schedule(with_overhead(problem, **comm), device, priority)
    # It is sent at 11 us. Both ops end later; op1 starts after op3, before the end of the delay.
    assert schedule.end_us[[2, 3]] == pytest.approx([10 + 30 + 2, 12 + 3])
    assert schedule.start_us[1] == pytest.approx(15)
    assert violations(with_overhead(problem, **comm), schedule) == []
    # On an idle receiver, op1 starts when the signal arrives.
    alone = replace(schedule.placement, device=np.array([GPU0, GPU1, GPU0, CPU]))
    idle = Problem.build(graph, {"GPU": [10.0, 5, 30, np.nan], "CPU": [10, 5, 30, 12]}, two_gpus())
    schedule = list_schedule(with_overhead(idle, **comm), alone.device, priority)
    assert schedule.start_us[1] == pytest.approx(11.5)
    assert len(schedule.transfers) == 0


@pytest.mark.parametrize(("busy_us", "waits_us"), [(0.0, 0.0), (3.0, 3.0), (5.0, 4.0), (50.0, 4.0)])
def test_an_endpoint_that_computes_delays_a_tensor_until_it_is_idle(
    busy_us: float, waits_us: float
) -> None:
    # op0 sends to op1 on GPU:1; both devices compute: GPU:0 from 10 us on, when the tensor
    # is produced, GPU:1 when it arrives. op1 is the next op on GPU:1.
    graph = OpGraph.build([f"op{op}" for op in range(4)], [Tensor(0, 1000, [1])])
    delays, none = {"wait_us": 4.0}, np.array([4.0, 1.0, 3.0, 3.0])

    def scheduled(at_sender_us: float, at_receiver_us: float) -> Schedule:
        times = {"GPU": [10.0, 5.0, at_sender_us, at_receiver_us]}
        problem = with_overhead(Problem.build(graph, times, two_gpus()), **delays)
        device = np.array([GPU0, GPU1, GPU0, GPU1])
        schedule = Simulator(problem).list_schedule(device, none)
        assert violations(problem, schedule) == []
        longer = with_overhead(problem, wait_us=1000.0)
        is_delayed = min(at_sender_us, 1000.0) > waits_us
        broken = {"transfer"} if is_delayed else set()
        assert {found.rule for found in violations(longer, schedule)} == broken
        return schedule

    sent_us = scheduled(busy_us, 0.0).transfers.start_us
    assert sent_us == pytest.approx([10 + waits_us])
    # The op on the receiver ends `busy_us` after the arrival of the tensor at 12 us.
    schedule = scheduled(0.0, 12.0 + busy_us)
    assert schedule.transfers.end_us == pytest.approx([12.0])
    assert schedule.start_us[1] == pytest.approx(12.0 + busy_us)


def test_consumers_cannot_take_a_tensor_that_the_receiver_delays() -> None:
    # It arrives at 12 us, while GPU:1 runs op2 to 13 us and then op3: op1 comes after both.
    graph = OpGraph.build([f"op{op}" for op in range(4)], [Tensor(0, 1000, [1]), Tensor(2, 0, [3])])
    problem = Problem.build(graph, {"GPU": [10.0, 5.0, 13.0, 20.0]}, two_gpus())
    device, priority = np.array([GPU0, GPU1, GPU1, GPU1]), np.array([4.0, 3.0, 2.0, 1.0])
    first = list_schedule(problem, device, priority)
    later = list_schedule(with_overhead(problem, wait_us=4.0), device, priority)
    assert (first.start_us[1], later.start_us[1]) == (13.0, 33.0)


def test_idle_devices_have_no_overhead() -> None:
    graph = OpGraph.build(["op0", "op1"], [Tensor(0, 1000, [1])])
    plain = Problem.build(graph, {"GPU": [10.0, 5.0]}, two_gpus())
    device, priority = np.array([GPU0, GPU1]), np.zeros(2)
    slowed = list_schedule(with_overhead(plain, **OVERHEAD), device, priority)
    assert (slowed.end_us == list_schedule(plain, device, priority).end_us).all()
