"""Baechi's placers: the defining rules of each, on small problems."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from conftest import on_gpus, two_gpus
from random_problems import random_problem

from pesto_cli.data.graph import OpGraph, Tensor, topological_order
from pesto_cli.data.limits import Limits
from pesto_cli.data.machine import CommModel, Device, Link, Machine
from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import shortfall_bytes
from pesto_cli.evaluation.violations import violations
from pesto_cli.files.tensorflow_names import labelled
from pesto_cli.strategies import Context
from pesto_cli.strategies.baechi import RECIPE, SETTINGS, MEtf, MSct, MTopo, Settings
from pesto_cli.strategies.baechi.columns import NONE
from pesto_cli.strategies.baechi.earliest import earliest_first
from pesto_cli.strategies.baechi.favourites import favourite_children, rounded, solve_relaxation
from pesto_cli.strategies.baechi.forward import forward_op
from pesto_cli.strategies.baechi.m_topo import filled_in_turn
from pesto_cli.strategies.baechi.memory import needs
from pesto_cli.strategies.baechi.placement_graph import prepared
from pesto_cli.strategies.baechi.preprocessing import fused, united, with_one_consumer

PLAIN = Settings(gradients="free", co_placement=False, fusion=False)
PLACERS = {"m-topo": MTopo(), "m-etf": MEtf(), "m-sct": MSct()}
GPU0, GPU1 = 1, 2


def never() -> bool:
    return False


def chain(num_ops: int, num_bytes: int = 100) -> list[Tensor]:
    return [Tensor(op, num_bytes, [op + 1]) for op in range(num_ops - 1)]


def planned(problem: Problem, favourite: list[int] | None = None) -> tuple[list[int], list[float]]:
    """Return the devices and starts of ops by `earliest_first`, in the order of the problem."""
    graph = prepared(problem, PLAIN)
    no_favourites = [NONE] * problem.num_ops
    children = [favourite[op] if favourite else NONE for op in range(problem.num_ops)]
    by_node = np.array(no_favourites)
    for op, child in enumerate(children):
        by_node[graph.node_of_op[op]] = graph.node_of_op[child] if child != NONE else NONE
    plan = earliest_first(problem, graph, PLAIN, by_node)
    assert plan.num_forced == 0
    return plan.device[graph.node_of_op].tolist(), plan.start_us[graph.node_of_op].tolist()


# Preprocessing


def test_an_op_with_one_consumer_is_placed_on_its_device() -> None:
    graph = OpGraph.build(list("abcd"), [Tensor(0, 1, [1]), Tensor(1, 1, [2, 3])])
    all_ops, no_ops = np.ones(4, dtype=bool), np.zeros(4, dtype=bool)
    pairs = with_one_consumer(graph.edges, all_ops, no_ops)
    assert pairs.tolist() == [[0, 1]]
    group = united(graph.colocation_group, np.ones((4, 3), dtype=bool), pairs)
    assert [group[0] == group[op] for op in range(4)] == [True, True, False, False]


def test_with_reads_per_use_a_shared_read_counts_as_one_read_for_each_use() -> None:
    graph = OpGraph.build(list("abc"), [Tensor(0, 1, [1, 2])])
    is_read = np.array([True, False, False])
    pairs = with_one_consumer(graph.edges, np.ones(3, dtype=bool), is_read)
    assert pairs.tolist() == [[0, 1], [0, 2]]


def test_ops_of_different_devices_are_not_placed_together() -> None:
    graph = labelled(OpGraph.build(["feed", "a", "b"], chain(3), types=["Placeholder", "A", "B"]))
    times = {"GPU": np.array([np.nan, 1, 1]), "CPU": np.array([0.0, np.nan, np.nan])}
    found = prepared(Problem.build(graph, times, two_gpus()), RECIPE)
    assert found.num_nodes == 2
    assert found.group_allowed.tolist() == [[True, False, False], [False, True, True]]


def test_fusion_never_closes_a_cycle() -> None:
    graph = OpGraph.build(list("abc"), [Tensor(0, 1, [1, 2]), Tensor(1, 1, [2])])
    together, position = np.zeros(3, dtype=np.int64), np.arange(3)
    all_ops = np.ones(3, dtype=bool)
    assert fused(graph.edges, together, all_ops, position).tolist() == [0, 0, 0]
    around_b = np.array([0, 1, 0])
    assert fused(graph.edges, around_b, all_ops, position).tolist() == [0, 1, 2]


def test_fused_graphs_are_acyclic_and_fuse_only_within_groups() -> None:
    for seed in range(60):
        problem = random_problem(seed, num_ops=14)
        group = np.random.default_rng(seed).integers(0, 3, 14)
        graph = problem.graph
        position = np.argsort(graph.topological_order)
        into = fused(graph.edges, group, np.ones(14, dtype=bool), position)
        assert (group[into] == group).all()
        settings = Settings(gradients="free", late_sources=bool(seed % 2))
        found = prepared(problem, settings)
        assert len(topological_order(found.successors)) == found.num_nodes


def test_late_sources_come_before_their_first_use() -> None:
    graph = OpGraph.build(list("vwab"), [Tensor(0, 1, [3]), Tensor(1, 1, [2]), Tensor(2, 1, [3])])
    problem = on_gpus(graph, [1] * 4)
    assert prepared(problem, PLAIN).node_of_op.tolist() == [0, 1, 2, 3]
    late = prepared(problem, replace(PLAIN, late_sources=True))
    assert late.node_of_op.tolist() == [2, 0, 1, 3]


TRAINING = [
    "variable",
    "layer/MatMul",
    "loss",
    "gradients/loss_grad/Mul",
    "gradients/AddN",
    "gradients/layer/MatMul_grad/MatMul_1",
    "update_variable/Apply",
]


def training_step() -> OpGraph:
    """A layer, its loss, their gradients and the update of the variable."""
    graph = OpGraph.build(
        TRAINING,
        [
            Tensor(0, 8, [1]),
            Tensor(1, 40, [2, 5]),
            Tensor(2, 4, [3]),
            Tensor(3, 4, [4]),
            Tensor(4, 4, [5]),
            Tensor(5, 8, [6]),
        ],
        colocation_group=["variable", None, None, None, None, None, "variable"],
        resident_bytes=[8, 0, 0, 0, 0, 0, 0],
    )
    return labelled(graph)


def test_gradients_and_updates_belong_to_their_forward_ops() -> None:
    # The sum of gradients belongs to its consumer, the update to its variable.
    assert forward_op(training_step()).tolist() == [0, 1, 2, 2, 1, 1, 0]
    names = ["dense/MatMul", "gradient_tape/dense/MatMul/MatMul_1"]
    assert forward_op(labelled(OpGraph.build(names, chain(2)))).tolist() == [0, 0]
    nothing_else = labelled(OpGraph.build(["gradients/a", "gradients/b"], chain(2)))
    assert forward_op(nothing_else).tolist() == [0, 1]


def test_gradients_are_not_placed_and_get_the_device_of_their_forward_op() -> None:
    problem = on_gpus(training_step(), [1.0] * 7)
    found = prepared(problem, Settings(co_placement=False, fusion=False))
    assert found.node_of_op.tolist() == [0, 1, 2, -1, -1, -1, -1]
    device = found.device_of_ops(problem, np.array([GPU0, GPU1, GPU0]))
    assert device.tolist() == [GPU0, GPU1, GPU0, GPU0, GPU1, GPU1, GPU0]
    together = prepared(problem, replace(PLAIN, gradients="colocated"))
    assert together.num_nodes == 7
    with_first_of = [together.group.tolist().index(group) for group in together.group]
    assert with_first_of == [0, 1, 2, 2, 1, 1, 0]


def test_an_op_needs_memory_for_its_variables_and_outputs() -> None:
    problem = on_gpus(training_step(), [1.0] * 7)
    need = needs(problem, prepared(problem, RECIPE))
    # Variable, layer and loss are one op by co-placement; only the loss's tensor is used outside.
    assert (need.variables.tolist(), need.outputs.tolist()) == ([8], [0])
    plain = needs(problem, prepared(problem, PLAIN))
    assert plain.variables.tolist() == [8, 0, 0, 0, 0, 0, 0]
    assert plain.outputs.tolist() == [0, 40, 4, 4, 4, 8, 0]


# m-TOPO


def test_m_topo_fills_each_device_to_an_equal_share_and_the_largest_op() -> None:
    # There are five outputs of 100 bytes. The share is 500 / 2 + 100, full after the fourth op.
    problem = on_gpus(OpGraph.build(list("abcdef"), chain(6)), [1] * 6)
    placed = filled_in_turn(problem, prepared(problem, PLAIN), PLAIN, never)
    assert placed.device.tolist() == [GPU0] * 4 + [GPU1] * 2


def test_m_topo_uses_the_next_device_when_variables_would_reach_the_share() -> None:
    graph = OpGraph.build(list("abcd"), chain(4, 0), resident_bytes=[60, 60, 60, 60])
    problem = on_gpus(graph, [1] * 4)
    # The share is 240 / 2 + 60 = 180. The third op would reach it.
    placed = filled_in_turn(problem, prepared(problem, PLAIN), PLAIN, never)
    assert placed.device.tolist() == [GPU0, GPU0, GPU1, GPU1]


def test_m_topo_can_fill_a_device_to_its_memory() -> None:
    graph = OpGraph.build(list("abcd"), chain(4, 0), resident_bytes=[60, 60, 60, 60])
    problem = on_gpus(graph, [1] * 4, two_gpus(memory_bytes=241))
    settings = replace(PLAIN, uniform=False)
    assert (
        filled_in_turn(problem, prepared(problem, settings), settings, never).device.tolist()
        == [1] * 4
    )


# m-ETF


def test_m_etf_starts_an_op_on_the_device_with_the_earliest_start(diamond: Problem) -> None:
    # a takes 1 us, b and c 10 us, and 1000 bytes 2 us. c can start at 3 on GPU:1, at 11 on GPU:0.
    # d needs b and c. They are on GPU:1 at 13, and on GPU:0 at 15.
    device, start_us = planned(diamond)
    assert device == [GPU0, GPU0, GPU1, GPU1]
    assert start_us == [0, 1, 3, 13]


def test_m_etf_stays_on_one_device_if_transfers_take_longer_than_waiting(
    diamond: Problem,
) -> None:
    device, start_us = planned(replace(diamond, machine=two_gpus(latency_us=20)))
    assert device == [GPU0] * 4
    assert start_us == [0, 1, 11, 21]


def test_m_etf_sends_one_tensor_at_a_time() -> None:
    # The consumers c and d run on GPU:1; each of their tensors takes 2 us.
    names = ["a", "b", "c", "d"]
    graph = OpGraph.build(
        names, [Tensor(0, 1000, [1, 2, 3]), Tensor(0, 1000, [2]), Tensor(0, 1000, [3])]
    )
    problem = on_gpus(graph, [1, 50, 1, 1])
    device, start_us = planned(problem)
    assert device == [GPU0, GPU0, GPU1, GPU1]
    # c waits for two tensors, d only for one more, as the shared tensor is there already.
    assert start_us == [0, 1, 5, 7]


def test_m_etf_uses_another_device_if_memory_is_short() -> None:
    graph = OpGraph.build(["a", "b"], chain(2, 1000), resident_bytes=[6000, 6000])
    device, start_us = planned(on_gpus(graph, [1, 1], two_gpus(memory_bytes=10_000)))
    assert device == [GPU0, GPU1]
    assert start_us == [0, 3]


def test_m_etf_frees_an_output_with_its_last_consumer() -> None:
    # Each op needs 1000 bytes in addition to its input. A third output fits in 2500 bytes only
    # because the first one is freed.
    problem = on_gpus(
        OpGraph.build(list("abcd"), chain(4, 1000)), [1] * 4, two_gpus(100, memory_bytes=2500)
    )
    assert planned(problem)[0] == [GPU0] * 4


def test_m_etf_keeps_groups_on_one_device() -> None:
    graph = OpGraph.build(list("abc"), colocation_group=[0, 1, 0])
    assert planned(on_gpus(graph, [5, 5, 5]))[0] == [GPU0, GPU1, GPU0]


def test_m_etf_uses_the_faster_of_two_idle_devices() -> None:
    machine = two_gpus()
    cpu, slow, fast = machine.devices
    machine = replace(machine, devices=(cpu, slow, replace(fast, speed=2.0)))
    assert planned(on_gpus(OpGraph.build(["a"]), [4], machine))[0] == [GPU1]


# m-SCT


def awake_for_b() -> Problem:
    """GPU:0 runs a until 4, GPU:1 runs c until 5. Then u, and b, a child of a, are ready."""
    graph = OpGraph.build(["a", "c", "u", "b"], [Tensor(0, 100, [3])])
    return on_gpus(graph, [4, 5, 4, 9])


def test_m_sct_keeps_the_device_for_the_favourite_child() -> None:
    assert planned(awake_for_b()) == ([GPU0, GPU1, GPU0, GPU1], [0, 0, 4, 5.1])
    favourite = [3, NONE, NONE, NONE]
    assert planned(awake_for_b(), favourite) == ([GPU0, GPU1, GPU1, GPU0], [0, 0, 5, 4])


def test_m_sct_lets_an_urgent_op_go_first() -> None:
    # As above, but GPU:1 is also free when a ends, so u can start on any device.
    problem = on_gpus(OpGraph.build(["a", "c", "u", "b"], [Tensor(0, 100, [3])]), [4, 4, 4, 9])
    device, start_us = planned(problem, [3, NONE, NONE, NONE])
    assert device == [GPU0, GPU1, GPU0, GPU1]
    assert start_us == [0, 0, 4, 5.1]


def test_the_favourite_child_is_on_the_longest_path() -> None:
    graph = OpGraph.build(list("abc"), [Tensor(0, 1000, [1, 2])])
    problem = on_gpus(graph, [5, 10, 20])
    found = prepared(problem, PLAIN)
    assert favourite_children(problem, found, PLAIN, Limits()).tolist() == [2, NONE, NONE]


def random_edges(rng: np.random.Generator, num_nodes: int) -> np.ndarray:
    pairs = [(i, j) for j in range(num_nodes) for i in range(j) if rng.random() < 0.5]
    return np.array(pairs[:8] or [(0, 1)])


def longest_path_us(edges: np.ndarray, time_us: np.ndarray, delay_us: np.ndarray) -> float:
    end_us = time_us.copy()
    for (tail, head), us in sorted(
        zip(edges.tolist(), delay_us, strict=True), key=lambda row: row[0][1]
    ):
        end_us[head] = max(end_us[head], end_us[tail] + us + time_us[head])
    return float(end_us.max())


@pytest.mark.parametrize("seed", range(25))
def test_the_relaxation_is_within_a_third_of_the_best_choice_of_favourites(seed: int) -> None:
    """Hanen and Munier: rounding at 1/2 costs 1/3 at most, if no transfer is longer than an op."""
    rng = np.random.default_rng(seed)
    edges = random_edges(rng, 6)
    time_us = rng.integers(4, 9, 6).astype(float)
    transfer_us = rng.integers(0, 5, len(edges)).astype(float)
    found = solve_relaxation(edges, time_us, transfer_us)
    assert found is not None
    best_us = np.inf
    for choice in product([0.0, 1.0], repeat=len(edges)):
        kept = edges[np.array(choice) == 0]
        if len(set(kept[:, 0])) == len(kept) == len(set(kept[:, 1])):
            best_us = min(best_us, longest_path_us(edges, time_us, transfer_us * choice))
    assert found.makespan_us <= best_us + 1e-6
    favourite = rounded(6, edges, found.x, 0.5)
    sent = favourite[edges[:, 0]] != edges[:, 1]
    assert longest_path_us(edges, time_us, transfer_us * sent) <= 4 / 3 * found.makespan_us + 1e-6


def test_rounding_gives_each_op_at_most_one_favourite_child_and_one_parent() -> None:
    edges = np.array([(0, 2), (0, 3), (1, 3)])
    # The child of 0 is first 2, then 3. Then 3 becomes the child of 1.
    assert rounded(4, edges, np.zeros(3), 0.1).tolist() == [NONE, 3, NONE, NONE]


# All placers


@pytest.mark.parametrize("name", PLACERS)
@pytest.mark.parametrize("settings", [RECIPE, PLAIN, *SETTINGS.values()])
def test_schedules_violate_no_rule_but_memory(name: str, settings: Settings) -> None:
    for seed in range(4):
        problem = random_problem(seed, num_ops=10, num_devices=2 + seed % 3)
        schedule = replace(PLACERS[name], settings=settings)(problem, Context()).schedule
        broken = {found.rule for found in violations(problem, schedule)}
        assert broken <= {"memory"}


@pytest.mark.parametrize("name", PLACERS)
def test_eight_unequal_devices_share_the_work(name: str) -> None:
    names = [f"GPU:{index}" for index in range(8)]
    comm = CommModel(1, 0.001)
    machine = Machine(
        tuple(Device(name, "GPU", 10**9, 1 + index % 3) for index, name in enumerate(names)),
        tuple(Link(src, dst, comm) for src in names for dst in names if src != dst),
    )
    ops = [f"op{index}" for index in range(64)]
    problem = on_gpus(OpGraph.build(ops, resident_bytes=[100] * 64), [12.0] * 64, machine)
    schedule = PLACERS[name](problem, Context()).schedule
    assert violations(problem, schedule) == []
    assert set(schedule.device.tolist()) >= set(range(7))


@pytest.mark.parametrize("name", PLACERS)
def test_a_placer_retries_until_the_memory_for_gradients_fits(name: str) -> None:
    """Eight outputs of 40 bytes are held for their gradients, and a device has 250 bytes."""
    forward = [f"layer_{index}/MatMul" for index in range(8)]
    backward = [f"gradients/layer_{index}/MatMul_grad/MatMul" for index in reversed(range(8))]
    tensors = [Tensor(op, 40, sorted({op + 1, 15 - op})) for op in range(8)]
    tensors += [Tensor(op, 1, [op + 1]) for op in range(8, 15)]
    graph = OpGraph.build(forward + backward, tensors)
    problem = on_gpus(labelled(graph), [5.0] * 16, two_gpus(memory_bytes=250))
    unlimited = PLACERS[name](replace(problem, machine=two_gpus()), Context()).schedule
    assert unlimited.peak_bytes.max() > 250
    schedule = PLACERS[name](problem, Context()).schedule
    assert shortfall_bytes(problem, schedule).sum() == 0
