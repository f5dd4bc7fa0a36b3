"""Coarsening: batches close no cycle, nothing is lost, and the target is reached."""

from collections.abc import Sequence

import networkx as nx
import numpy as np
import pytest
from conftest import on_gpus, two_gpus
from hypothesis import given, settings
from hypothesis import strategies as st
from random_problems import random_placement, random_problem

from pesto_cli.bounds import critical_path_us, load_us
from pesto_cli.coarsen import Coarsening, coarsen
from pesto_cli.coarsen.batch import mergeable_edges, siblings, verdicts
from pesto_cli.coarsen.coarsening import MERGINGS
from pesto_cli.coarsen.leftover import leftover_pairs
from pesto_cli.coarsen.merge_log import merge_log
from pesto_cli.coarsen.paths import heights, longest_paths
from pesto_cli.coarsen.quotient import Pairs, Quotient
from pesto_cli.coarsen.rounds import MergeVerdict, Round
from pesto_cli.data.graph import OpGraph, Tensor
from pesto_cli.data.problem import Problem
from pesto_cli.errors import BadInputError
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.evaluation.violations import violations
from pesto_cli.files.tensorflow_names import labelled

Edge = tuple[int, int]


def dag(num_ops: int, edges: Sequence[Edge], time_us: Sequence[float] | None = None) -> Problem:
    """Ops on GPUs; the tensor of the k-th edge has 1000 - k bytes."""
    tensors = [Tensor(tail, 1000 - k, [head]) for k, (tail, head) in enumerate(edges)]
    graph = OpGraph.build([f"op{i}" for i in range(num_ops)], tensors)
    return on_gpus(graph, list(time_us) if time_us is not None else [1.0] * num_ops)


@st.composite
def dags(draw: st.DrawFn) -> tuple[int, list[Edge]]:
    num_ops = draw(st.integers(2, 12))
    pairs = [(tail, head) for head in range(num_ops) for tail in range(head)]
    return num_ops, draw(st.lists(st.sampled_from(pairs), unique=True, max_size=30))


def random_dag(seed: int) -> tuple[int, list[Edge]]:
    rng = np.random.default_rng(seed)
    num_ops = int(rng.integers(4, 13))
    density = rng.uniform(0.1, 0.6)
    pairs = [(tail, head) for head in range(num_ops) for tail in range(head)]
    return num_ops, [pair for pair in pairs if rng.random() < density]


def is_acyclic_once_merged(num_ops: int, edges: Sequence[Edge], pairs: Sequence[Edge]) -> bool:
    merged = dict(enumerate(range(num_ops))) | {second: first for first, second in pairs}
    quotient = nx.DiGraph((merged[u], merged[v]) for u, v in edges if merged[u] != merged[v])
    return nx.is_directed_acyclic_graph(quotient)


def candidates(problem: Problem) -> tuple[Quotient, np.ndarray, Pairs]:
    graph = problem.graph
    quotient = Quotient.of(problem, graph.tensor_bytes[graph.consumer_tensor])
    height = heights(quotient)
    return quotient, height, mergeable_edges(quotient, height).and_then(siblings(quotient, height))


def as_edges(pairs: Pairs) -> list[Edge]:
    return list(zip(pairs.first.tolist(), pairs.second.tolist(), strict=True))


def batch_in_random_order(num_ops: int, edges: Sequence[Edge], seed: int) -> list[Edge]:
    quotient, height, pairs = candidates(dag(num_ops, edges))
    pairs = pairs[np.random.default_rng(seed).permutation(len(pairs))]
    return as_edges(pairs[verdicts(quotient, height, pairs) == MergeVerdict.MERGED])


@settings(max_examples=1000, deadline=None)
@given(dags(), st.integers(0, 100))
def test_a_batch_closes_no_cycle(graph: tuple[int, list[Edge]], seed: int) -> None:
    batch = batch_in_random_order(*graph, seed)
    assert len({op for pair in batch for op in pair}) == 2 * len(batch)
    assert is_acyclic_once_merged(*graph, batch)


def test_condition_iii_is_needed_and_prevents_cycles_in_random_graphs() -> None:
    cycles_without = 0
    for seed in range(1000):
        num_ops, edges = random_dag(seed)
        assert is_acyclic_once_merged(num_ops, edges, batch_in_random_order(num_ops, edges, seed))
        taken: set[int] = set()
        unbarred = []
        quotient, height, _ = candidates(dag(num_ops, edges))
        for u, v in as_edges(mergeable_edges(quotient, height)):
            if not {u, v} & taken:
                taken |= {u, v}
                unbarred.append((u, v))
        cycles_without += not is_acyclic_once_merged(num_ops, edges, unbarred)
    assert cycles_without > 0


def test_no_batch_of_leftovers_closes_a_cycle() -> None:
    for seed in range(1000):
        num_ops, edges = random_dag(seed)
        on_cpu = np.random.default_rng(seed).random(num_ops) < 0.5  # some nodes share no device
        times = {"CPU": np.where(on_cpu, 1.0, np.nan), "GPU": np.where(on_cpu, np.nan, 1.0)}
        problem = Problem.build(dag(num_ops, edges).graph, times, two_gpus())
        quotient, height, _ = candidates(problem)
        batch = leftover_pairs(quotient, height, longest_paths(quotient))
        assert is_acyclic_once_merged(num_ops, edges, as_edges(batch))


def test_heights_count_the_ops_of_the_longest_path_from_a_root() -> None:
    _, height, _ = candidates(dag(5, [(0, 1), (1, 2), (0, 2), (3, 2)]))
    assert height.tolist() == [1, 2, 3, 1, 1]


@pytest.mark.parametrize(
    ("edges", "mergeable"),
    [
        # Corollary 3.3: one successor, or one predecessor.
        ([(0, 1), (1, 2), (3, 2)], {(0, 1), (1, 2), (3, 2)}),
        # A second path 0 -> 1 -> 2 rules out (0, 2).
        ([(0, 1), (1, 2), (0, 2)], {(0, 1), (1, 2)}),
        # (0, 3) spans two heights; the other successor of 0 lies above 3 ...
        (
            [(0, 3), (1, 2), (2, 3), (2, 4), (4, 5), (0, 5)],
            {(0, 3), (1, 2), (2, 3), (2, 4), (4, 5)},
        ),
        # ... and here at the height of 3.
        ([(0, 3), (1, 2), (2, 3), (2, 4), (0, 4)], {(1, 2), (2, 3), (2, 4)}),
    ],
)
def test_condition_ii_by_hand(edges: list[Edge], mergeable: set[Edge]) -> None:
    quotient, height, _ = candidates(dag(6, edges))
    assert set(as_edges(mergeable_edges(quotient, height))) == mergeable


def test_plain_merging_by_hand() -> None:
    # a -> c (1000 bytes), b -> d (999), a -> d (998), b -> c (997): Figure 6 of the paper. Once
    # (a, c) is merged, b is barred. Then b -> ac -> d is a second path in addition to b -> d.
    problem = dag(4, [(0, 2), (1, 3), (0, 3), (1, 2)])
    assert coarsen(problem, 3, merging="plain").node_of_op.tolist() == [0, 1, 0, 2]
    assert coarsen(problem, 2, merging="plain").node_of_op.tolist() == [0, 1, 0, 0]


def test_plain_merging_raises_its_caps_at_once_to_the_largest_times() -> None:
    graph = OpGraph.build(["a", "b", "c"], [Tensor(op, 8, [op + 1]) for op in range(2)])
    problem = on_gpus(graph, [1e12, 1e12, 1e12])
    assert coarsen(problem, 1, merging="plain").node_of_op.tolist() == [0, 0, 0]


def test_plain_merging_keeps_the_cap_on_work_while_a_pair_fits() -> None:
    problem = dag(4, [(0, 1), (1, 2), (2, 3)], [7000.0, 7000.0, 4000.0, 1000.0])
    assert coarsen(problem, 2, merging="plain").node_of_op.tolist() == [0, 1, 1, 1]


def coarsened(seed: int, merging: str) -> tuple[Problem, int, Coarsening]:
    rng = np.random.default_rng(seed)
    problem = random_problem(seed, int(rng.integers(4, 50)))
    num_nodes = int(rng.integers(1, 12))
    return problem, num_nodes, coarsen(problem, num_nodes, merging=merging)


@pytest.mark.parametrize("merging", MERGINGS)
@pytest.mark.parametrize("seed", range(60))
def test_nodes_contain_all_ops_with_their_times_and_bytes(merging: str, seed: int) -> None:
    problem, num_nodes, coarse = coarsened(seed, merging)
    fine_graph, graph = problem.graph, coarse.problem.graph
    assert sorted(coarse.members.indices.tolist()) == list(range(problem.num_ops))
    assert coarse.num_nodes >= min(num_nodes, problem.num_ops)
    assert graph.num_members.sum() == problem.num_ops
    assert graph.resident_bytes.sum() == fine_graph.resident_bytes.sum()
    for node in range(coarse.num_nodes):
        members = coarse.members[node]
        np.testing.assert_array_equal(
            coarse.problem.time_us[node], problem.time_us[members].sum(axis=0)
        )
        assert graph.names[node] in {fine_graph.names[op] for op in members}
        assert len(set(problem.is_feed[members].tolist())) == 1
        assert not (coarse.problem.allowed[node] & ~problem.allowed[members].all(axis=0)).any()


@pytest.mark.parametrize("merging", MERGINGS)
@pytest.mark.parametrize("seed", range(60))
def test_a_colocation_group_stays_together(merging: str, seed: int) -> None:
    problem, _, coarse = coarsened(seed, merging)
    node_group = coarse.expand(coarse.problem.graph.colocation_group)
    for group in range(problem.graph.num_groups):
        assert len(set(node_group[problem.graph.groups[group]].tolist())) == 1


@pytest.mark.parametrize("merging", MERGINGS)
@pytest.mark.parametrize("seed", range(60))
def test_every_edge_stays_within_a_node_or_between_its_nodes(merging: str, seed: int) -> None:
    problem, _, coarse = coarsened(seed, merging)
    kept = set(map(tuple, coarse.problem.graph.edges.tolist()))
    for tail, head in coarse.node_of_op[problem.graph.edges].tolist():
        assert tail == head or (tail, head) in kept


@pytest.mark.parametrize("merging", MERGINGS)
@pytest.mark.parametrize("seed", range(60))
def test_bounds_of_the_coarse_problem_are_at_least_those_of_the_ops(
    merging: str, seed: int
) -> None:
    problem, _, coarse = coarsened(seed, merging)
    assert critical_path_us(coarse.problem) >= critical_path_us(problem) - 1e-9
    assert load_us(coarse.problem) >= load_us(problem) - 1e-9


@pytest.mark.parametrize("merging", MERGINGS)
@pytest.mark.parametrize("seed", range(60))
def test_coarse_and_expanded_schedules_violate_no_rule_but_memory(merging: str, seed: int) -> None:
    problem, _, coarse = coarsened(seed, merging)
    device = random_placement(coarse.problem, seed)
    for which, where in ((coarse.problem, device), (problem, coarse.expand(device))):
        simulator = Simulator(which)
        schedule = simulator.list_schedule(where, simulator.upward_rank(where))
        assert {found.rule for found in violations(which, schedule)} <= {"memory"}


def could_still_merge(coarse: Coarsening) -> list[Edge]:
    """Return the pairs that may share a device and have no third node between them."""
    problem = coarse.problem
    graph = nx.DiGraph(problem.graph.edges.tolist())
    graph.add_nodes_from(range(coarse.num_nodes))
    below = [nx.descendants(graph, node) for node in range(coarse.num_nodes)]

    def has_third_between(u: int, v: int) -> bool:
        return any(v in below[head] for head in graph[u])

    return [
        (u, v)
        for u in range(coarse.num_nodes)
        for v in range(u)
        if problem.is_feed[u] == problem.is_feed[v]
        and (problem.allowed[u] & problem.allowed[v]).any()
        and not has_third_between(u, v)
        and not has_third_between(v, u)
    ]


@pytest.mark.parametrize("seed", range(150))
def test_the_target_is_reached_or_no_pair_can_be_merged(seed: int) -> None:
    _, num_nodes, coarse = coarsened(seed, "parallel")
    assert coarse.num_nodes <= num_nodes or could_still_merge(coarse) == []


@pytest.mark.parametrize("merging", MERGINGS)
@pytest.mark.parametrize("seed", range(40))
def test_any_connected_graph_whose_ops_can_share_a_device_reaches_any_target(
    merging: str, seed: int
) -> None:
    num_ops, edges = random_dag(seed)
    connected = sorted({*edges, *((0, head) for head in range(1, num_ops))})
    for num_nodes in range(1, num_ops):
        assert coarsen(dag(num_ops, connected), num_nodes, merging=merging).num_nodes == num_nodes


@pytest.mark.parametrize("seed", range(40))
def test_unconnected_graphs_reach_any_target(seed: int) -> None:
    num_ops, edges = random_dag(seed)
    for num_nodes in range(1, num_ops):
        assert coarsen(dag(num_ops, edges[::3]), num_nodes).num_nodes == num_nodes


def test_ops_that_share_no_device_never_merge() -> None:
    chain = OpGraph.build(list("abcd"), [Tensor(i, 10, [i + 1]) for i in range(3)])
    nan = np.nan
    times = {"CPU": [1.0, nan, 1.0, nan], "GPU": [nan, 1.0, nan, 1.0]}
    assert coarsen(Problem.build(chain, times, two_gpus()), 1).num_nodes == 4
    apart = OpGraph.build(list("abcd"))
    assert coarsen(Problem.build(apart, times, two_gpus()), 1).node_of_op.tolist() == [0, 1, 0, 1]


def test_nodes_of_different_heights_without_a_path_between_them_merge() -> None:
    # a (CPU) -> b (GPU) -> c (CPU), and d (GPU) alone: b and d are at different heights.
    graph = OpGraph.build(list("abcd"), [Tensor(0, 10, [1]), Tensor(1, 10, [2])])
    nan = np.nan
    times = {"CPU": [1.0, nan, 1.0, nan], "GPU": [nan, 1.0, nan, 1.0]}
    coarse = coarsen(Problem.build(graph, times, two_gpus()), 1)
    assert coarse.node_of_op.tolist() == [0, 1, 2, 1]


@pytest.mark.parametrize("merging", MERGINGS)
def test_the_same_problem_gives_the_same_nodes(merging: str) -> None:
    for seed in range(20):
        first, second = (coarsened(seed, merging)[2] for _ in range(2))
        np.testing.assert_array_equal(first.node_of_op, second.node_of_op)


def recurrent_layers(layers: int, steps: int) -> Problem:
    """A grid of 100 us cells; each layer's weights are its largest tensor and go to all steps."""
    cell = np.arange(layers * steps).reshape(layers, steps) + layers
    tensors = [Tensor(layer, 10**8, cell[layer].tolist()) for layer in range(layers)]
    for layer, step in np.ndindex(layers, steps):
        after = [*cell[layer + 1 :, step][:1], *cell[layer, step + 1 :][:1]]
        tensors.append(Tensor(int(cell[layer, step]), 10**6, [int(op) for op in after]))
    names = [f"op{i}" for i in range(layers + layers * steps)]
    return on_gpus(OpGraph.build(names, tensors), [1.0] * layers + [100.0] * (layers * steps))


def test_layers_stay_parallel_unless_merged_plainly() -> None:
    problem = recurrent_layers(8, 20)
    bound_us = max(critical_path_us(problem), load_us(problem))
    assert critical_path_us(coarsen(problem, 20).problem) <= bound_us
    assert critical_path_us(coarsen(problem, 20, merging="plain").problem) > bound_us


def test_tensors_for_the_same_nodes_become_one() -> None:
    # op0 and op1 become one node. Both send to op2 and op3; op1 also sends a tensor to op3 alone.
    graph = OpGraph.build(
        ["a", "b", "c", "d"],
        [
            Tensor(0, 10**6, [1]),
            Tensor(0, 10, [2, 3]),
            Tensor(1, 20, [2, 3]),
            Tensor(1, 5, [3]),
        ],
    )
    coarse = coarsen(on_gpus(graph, [1.0] * 4), 3)
    assert coarse.node_of_op.tolist() == [0, 0, 1, 2]
    tensors = coarse.problem.graph
    sent = {
        tuple(tensors.consumers_of(tensor).tolist()): int(tensors.tensor_bytes[tensor])
        for tensor in range(tensors.num_tensors)
    }
    assert sent == {(1, 2): 30, (2,): 5}


@pytest.mark.parametrize(
    ("latency_us", "expected"),
    [(1.0, [[0, 2]]), (0.1, [[0, 1], [0, 2]])],  # a signal takes 0.5 us
)
def test_data_in_host_memory_is_a_signal_unless_a_slower_tensor_makes_it_redundant(
    latency_us: float, expected: list[list[int]]
) -> None:
    graph = OpGraph.build(
        ["a", "b", "c", "d"],
        [
            Tensor(0, 10**6, [1]),
            Tensor(0, 100, [2]),
            Tensor(1, 8, [2], [True]),
            Tensor(1, 8, [3], [True]),
        ],
    )
    coarse = coarsen(on_gpus(graph, [1.0] * 4, two_gpus(latency_us)), 3)
    assert coarse.node_of_op.tolist() == [0, 0, 1, 2]
    assert coarse.problem.graph.control_edges.tolist() == expected


def test_a_node_has_the_name_and_type_of_its_heaviest_member() -> None:
    graph = OpGraph.build(list("ab"), [Tensor(0, 10, [1])], types=["Mul", "MatMul"])
    coarse = coarsen(on_gpus(graph, [1.0, 5.0]), 1)
    assert coarse.problem.graph.names == ("b",)
    assert coarse.problem.graph.types == ("MatMul",)


def test_a_node_is_an_alias_if_all_its_outputs_live_in_another_node() -> None:
    # b and c are views of a's output; d takes c's.
    graph = OpGraph.build(
        list("abcd"),
        [Tensor(0, 100, [1]), Tensor(1, 10**6, [2]), Tensor(2, 100, [3])],
        alias_of=[-1, 0, 1, -1],
    )
    coarse = coarsen(on_gpus(graph, [1.0] * 4), 3)
    assert coarse.node_of_op.tolist() == [0, 1, 1, 2]
    assert coarse.problem.graph.alias_of.tolist() == [-1, 0, -1]


def test_feeds_merge_only_with_feeds() -> None:
    graph = OpGraph.build(
        list("abc"), [Tensor(0, 10, [2]), Tensor(1, 10, [2])], types=["Placeholder"] * 2 + ["Mul"]
    )
    times = {"CPU": [0.0, 0.0, 1.0], "GPU": [np.nan, np.nan, 1.0]}
    coarse = coarsen(Problem.build(labelled(graph), times, two_gpus()), 1)
    assert coarse.node_of_op.tolist() == [0, 0, 1]
    assert coarse.problem.is_feed.tolist() == [True, False]
    assert coarse.problem.graph.types == ("Placeholder", "Mul")


def test_a_problem_with_no_more_ops_than_the_target_is_returned_unchanged(diamond: Problem) -> None:
    coarse = coarsen(diamond, 4)
    assert coarse.problem is diamond
    assert coarse.node_of_op.tolist() == [0, 1, 2, 3]


def test_values_of_nodes_expand_to_their_ops(diamond: Problem) -> None:
    coarse = coarsen(diamond, 2)
    values = np.array([10, 20])
    for node, value in enumerate(values):
        assert (coarse.expand(values)[coarse.members[node]] == value).all()


@pytest.mark.parametrize(("num_nodes", "merging"), [(0, "parallel"), (2, "sideways")])
def test_bad_arguments_are_refused(diamond: Problem, num_nodes: int, merging: str) -> None:
    with pytest.raises(BadInputError, match="was expected"):
        coarsen(diamond, num_nodes, merging=merging)


def rounds_of(problem: Problem, num_nodes: int, merging: str) -> tuple[list[Round], Coarsening]:
    rounds: list[Round] = []
    return rounds, coarsen(problem, num_nodes, merging=merging, on_round=rounds.append)


def test_the_merge_log_of_two_small_graphs() -> None:
    # Figure 6 of the paper, as above: 0 -> 2 is merged first.
    problem = dag(4, [(0, 2), (1, 3), (0, 3), (1, 2)])
    (only,), _ = rounds_of(problem, 3, "plain")
    found = {(pair.first, pair.second): pair for pair in merge_log(problem, only)}
    assert {ends: pair.verdict for ends, pair in found.items()} == {
        ("op0", "op2"): "merged",
        ("op1", "op3"): "barred",
        ("op0", "op3"): "taken",
        ("op1", "op2"): "taken",
    }
    assert {pair.why for pair in found.values()} == {("next height",)}
    # A second path 0 -> 1 -> 2 in addition to 0 -> 2.
    problem = dag(3, [(0, 1), (1, 2), (0, 2)])
    (only,), _ = rounds_of(problem, 2, "plain")
    found = {(pair.first, pair.second): pair for pair in merge_log(problem, only)}
    assert (found["op0", "op2"].verdict, found["op0", "op2"].why) == ("may close a cycle", ())
    assert found["op0", "op1"].why == ("only predecessor", "next height", "others above")
    assert found["op1", "op2"].why == ("only successor", "next height")


@pytest.mark.parametrize("merging", MERGINGS)
def test_rounds_lead_from_the_ops_to_the_nodes(merging: str) -> None:
    for seed in range(40):
        problem = random_problem(seed, 30)
        rounds, coarse = rounds_of(problem, 8, merging)
        before = problem.num_ops
        for each in rounds:
            assert each.quotient.num_nodes == before
            before -= len(each.batch)
            assert each.merged.num_nodes == before
        assert coarse.num_nodes == before
        if rounds:
            assert rounds[-1].merged.node_of_op.tolist() == coarse.node_of_op.tolist()


@pytest.mark.parametrize("merging", MERGINGS)
def test_the_merge_log_has_each_edge_once_and_its_reasons_are_right(merging: str) -> None:
    for seed in range(60):
        num_ops, edges = random_dag(seed)
        problem = dag(num_ops, edges)
        rounds, _ = rounds_of(problem, num_ops - 1, merging)
        for each in rounds[:1]:  # whose nodes are the ops
            index = problem.graph.index_of
            found = {
                (index[pair.first], index[pair.second]): pair for pair in merge_log(problem, each)
            }
            assert len(found) == len(merge_log(problem, each))
            assert set(edges) <= found.keys()
            for ends, pair in found.items():
                if pair.why:
                    assert is_acyclic_once_merged(num_ops, edges, [ends])
                else:
                    assert pair.verdict == "may close a cycle"
