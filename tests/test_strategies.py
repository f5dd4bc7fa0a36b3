"""All strategies on all kinds of problems, and the properties of single strategies."""

import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from conftest import on_gpus, two_gpus
from placers import PLACERS
from random_problems import every_third_contended
from test_simulate import random_problem

from pesto_cli.coarsen.layers import layers_of_groups
from pesto_cli.data.graph import OpGraph, Tensor
from pesto_cli.data.limits import Limits
from pesto_cli.data.machine import CommModel, Device, Link, Machine
from pesto_cli.data.problem import Problem
from pesto_cli.data.result import SolveStatus
from pesto_cli.data.schedule import Schedule
from pesto_cli.errors import BadInputError
from pesto_cli.evaluation.simulator import Simulator, list_schedule
from pesto_cli.evaluation.violations import violations
from pesto_cli.files.tensorflow_names import labelled
from pesto_cli.strategies import Context
from pesto_cli.strategies.balanced_cuts import balanced_cuts
from pesto_cli.strategies.pesto import Pesto
from pesto_cli.strategies.round_robin import deal
from pesto_cli.strategies.run import run

QUICK = Context(Limits(time_limit_s=0.2, deterministic=True))
GPU0, GPU1 = 1, 2


@pytest.mark.parametrize("name", PLACERS)
def test_every_schedule_is_valid_and_no_better_than_the_bound(name: str) -> None:
    rng = np.random.default_rng(3)
    for number in range(4):
        problem = every_third_contended(random_problem(rng), number)
        result = run(problem, name, QUICK)
        assert violations(problem, result.schedule) == []
        assert 0 <= result.lower_bound_us <= result.makespan_us + 1e-9


@pytest.mark.parametrize("name", PLACERS)
def test_the_same_search_gives_the_same_schedule(name: str) -> None:
    problem = random_problem(np.random.default_rng(5))
    first, second = (run(problem, name, QUICK).schedule for _ in range(2))
    assert first.device.tolist() == second.device.tolist()
    assert first.rank.tolist() == second.rank.tolist()


@pytest.mark.parametrize("name", PLACERS)
def test_four_unequal_devices_without_a_host(name: str) -> None:
    names = [f"GPU:{index}" for index in range(4)]
    comm = CommModel(1, 0.001)
    machine = Machine(
        tuple(Device(name, "GPU", 10**9, speed=1 + index) for index, name in enumerate(names)),
        tuple(Link(src, dst, comm) for src in names for dst in names if src != dst),
    )
    graph = OpGraph.build([str(op) for op in range(20)])
    result = run(on_gpus(graph, [12.0] * 20, machine), name, QUICK)
    assert result.status in (SolveStatus.FEASIBLE, SolveStatus.OPTIMAL)


@pytest.mark.parametrize("name", PLACERS)
@pytest.mark.parametrize("types", [[], ["Placeholder"], ["_Retval"], ["_Retval", "Placeholder"]])
def test_graphs_of_feeds_and_fetches_alone_are_placed(name: str, types: list[str]) -> None:
    graph = labelled(OpGraph.build([f"op{op}" for op in range(len(types))], types=types))
    times = {"GPU": np.full(len(types), 9.0), "CPU": np.full(len(types), 5.0)}
    result = run(Problem.build(graph, times, two_gpus()), name, QUICK)
    assert result.status == SolveStatus.OPTIMAL
    assert result.makespan_us == 0


def test_an_unknown_strategy_lists_those_that_exist(diamond: Problem) -> None:
    with pytest.raises(BadInputError, match="'fast' is unknown; one of single"):
        run(diamond, "fast", QUICK)


def test_single_takes_the_faster_device_and_leaves_it_when_it_does_not_fit() -> None:
    machine = two_gpus()
    cpu, slow, fast = machine.devices
    fast = replace(fast, speed=2.0, memory_bytes=50)
    machine = replace(machine, devices=(cpu, slow, fast))
    graph = OpGraph.build(list("ab"), [Tensor(0, 10, [1])])
    assert run(on_gpus(graph, [1, 1], machine), "single", QUICK).schedule.device.tolist() == [2, 2]
    heavy = OpGraph.build(list("ab"), [Tensor(0, 10, [1])], resident_bytes=[60, 0])
    assert run(on_gpus(heavy, [1, 1], machine), "single", QUICK).schedule.device.tolist() == [1, 1]


def test_an_op_that_fits_nowhere_is_out_of_memory() -> None:
    graph = OpGraph.build(["a"], resident_bytes=[100])
    problem = on_gpus(graph, [1], two_gpus(memory_bytes=70))
    for name in PLACERS:
        assert run(problem, name, QUICK).status is SolveStatus.OUT_OF_MEMORY


def test_round_robin_assigns_groups_in_turn_and_respects_affinity() -> None:
    graph = OpGraph.build(list("abcd"), [Tensor(0, 1, [1])], colocation_group=[0, 1, 0, 2])
    times = {"GPU": np.array([1, 1, 1, np.nan]), "CPU": np.array([np.nan] * 3 + [1])}
    problem = Problem.build(graph, times, two_gpus())
    assert deal(problem).tolist() == [GPU0, GPU1, GPU0, 0]


def scoped(names: list[str]) -> OpGraph:
    """A chain of ops with these names."""
    tensors = [Tensor(op, 100, [op + 1]) for op in range(len(names) - 1)]
    return labelled(OpGraph.build(names, tensors))


def test_layers_are_numbered_scopes_with_their_gradients_and_updates() -> None:
    names = [
        "embedding/lookup",
        "layer_0/step_0/MatMul",
        "layer_0/step_1/MatMul",
        "layer_1/step_0/MatMul",
        "layer_1/step_1/MatMul",
        "softmax/MatMul",
        "gradients/softmax/MatMul_grad/MatMul",
        "gradients/layer_1/step_1/MatMul_grad/MatMul",
        "gradients/AddN",
        "gradients/layer_0/step_0/MatMul_grad/MatMul",
        "train/update_layer_0/kernel/ResourceApplyGradientDescent",
    ]
    found = layers_of_groups(scoped(names), np.ones(len(names)))
    layers, layer = found.names, found.of_group
    assert layers == ["embedding", "layer_0", "layer_1", "softmax"]
    assert layer.tolist() == [0, 1, 1, 2, 2, 3, 3, 2, 2, 1, 1]


def test_scopes_of_an_optimiser_are_no_layers_even_with_an_op_without_inputs() -> None:
    names = [
        "layer_0/MatMul",
        "layer_1/MatMul",
        "gradients/layer_1/MatMul_grad",
        "gradients/layer_0/MatMul_grad",
        *(f"momentum/slot_{n}/{op}" for n in range(2) for op in ("rate", "mul", "assign")),
    ]
    chain = [Tensor(op, 100, [op + 1]) for op in range(3)]
    updates = [Tensor(3, 100, [5, 6, 8, 9]), Tensor(4, 4, [5]), Tensor(7, 4, [8])]
    graph = labelled(OpGraph.build(names, chain + updates))
    layers = layers_of_groups(graph, np.ones(len(names))).names
    assert layers == ["layer_0", "layer_1"]


def keras_like(layers: Sequence[str], variable_of: Mapping[str, str]) -> OpGraph:
    """A chain of layers in a model's scope, with the names that Keras and its Adam use.

    variable_of: layer -> name of its variable, whose scope is not a layer. Each variable has a
    slot, which is read before and after its update by ops without the layer's name.
    """
    names: list[str] = []
    group: list[str | None] = []
    resident: list[int] = []
    alias: list[int] = []
    tensors: dict[int, list[int]] = {}
    waits: list[tuple[int, int]] = []

    def op(name: str, *inputs: int, of: str | None = None, size: int = 0, reads: int = -1) -> int:
        names.append(name)
        group.append(of)
        resident.append(size)
        alias.append(reads)
        for source in inputs:
            tensors.setdefault(source, []).append(len(names) - 1)
        return len(names) - 1

    def read(name: str, handle: int, of: str) -> int:
        return op(f"{name}/ReadVariableOp", handle, of=of, reads=handle)

    handles = {name: op(name, of=name, size=8) for name in dict.fromkeys(variable_of.values())}
    slots = {name: op(f"adam/{name}_slot", of=f"{name} slot", size=8) for name in handles}
    weights = {
        name: read(f"model/{layer}/Cast_2", handles[name], name)
        for layer, name in reversed(variable_of.items())
    }
    last, outputs = op("x"), []
    for layer in layers:
        last = op(f"model/{layer}/MatMul", last, weights[variable_of[layer]])
        outputs.append(last)
    gradients: dict[str, int] = {}
    for layer, output in zip(reversed(layers), reversed(outputs), strict=True):
        last = op(f"gradient_tape/model/{layer}/MatMul", last, output)
        gradients[variable_of[layer]] = last
    scalar = op("adam/truediv", last)
    for number, (name, gradient) in enumerate(gradients.items()):
        before = read(f"adam/Sub_{number}", slots[name], f"{name} slot")
        change = op(f"adam/Mul_{number}", op(f"adam/Sub_{number}", gradient, before))
        update = op(f"adam/AssignAdd_{number}", change, slots[name], of=f"{name} slot")
        after = read(f"adam/Cast_{number}", slots[name], f"{name} slot")
        waits.append((update, after))
        step = op(f"adam/Sqrt_{number}", scalar, after)
        op(f"adam/AssignSub_{number}", step, handles[name], of=name)
    graph = OpGraph.build(
        names,
        [
            Tensor(source, 4 if source == scalar else 1000, consumers)
            for source, consumers in sorted(tensors.items())
        ],
        control_edges=waits,
        colocation_group=group,
        resident_bytes=resident,
        alias_of=alias,
    )
    return labelled(graph)


def test_variables_and_slots_of_keras_belong_to_their_layer() -> None:
    layers = [f"block_{n}_conv_1" for n in range(4)]
    graph = keras_like(layers, {layer: f"block_{n}_conv/kernel" for n, layer in enumerate(layers)})
    found = layers_of_groups(graph, np.ones(graph.num_ops))
    assert found.names == [f"model/{layer}" for layer in layers]
    layer = dict(zip(graph.names, found.of_group[graph.colocation_group].tolist(), strict=True))
    for n in range(4):
        number = 3 - n  # gradients of the last layer come first
        names = ("Sub", "Mul", "AssignAdd", "Cast", "Sqrt", "AssignSub")
        of_layer = {
            layer[name]
            for name in graph.names
            if name.endswith(f"_{number}") and name.removeprefix("adam/").split("_")[0] in names
        }
        assert of_layer == {n}
        assert layer[f"block_{n}_conv/kernel"] == layer[f"adam/block_{n}_conv/kernel_slot"] == n


def test_cells_that_share_a_variable_are_steps_of_one_layer() -> None:
    layers = [f"gru_{n}/gru_cell_{step}" for n in (1, 2) for step in range(5)]
    graph = keras_like(layers, {layer: f"{layer.split('/')[0]}/kernel" for layer in layers})
    found = layers_of_groups(graph, np.ones(graph.num_ops))
    assert found.names == ["model/gru_1", "model/gru_2"]


def test_layers_of_nested_scopes_are_the_outermost_numbered_scopes() -> None:
    names = [
        *(f"model/encoder/layer_{n}/attention/head_{h}/MatMul" for n in range(3) for h in range(2)),
        *(f"model/decoder/layer_{n}/MatMul" for n in range(3)),
        "model/head/MatMul",
    ]
    layers = layers_of_groups(scoped(names), np.ones(len(names))).names
    assert layers == [
        *(f"model/encoder/layer_{n}" for n in range(3)),
        *(f"model/decoder/layer_{n}" for n in range(3)),
        "model/head",
    ]


def test_a_graph_without_scopes_is_divided_by_height() -> None:
    layer = layers_of_groups(scoped([f"op{n}" for n in range(10)]), np.ones(10)).of_group
    assert layer.tolist() == list(range(10))


def test_cuts_balance_the_work() -> None:
    work = np.array([5.0, 1, 1, 1, 4, 4])[:, None]
    assert balanced_cuts(np.repeat(work, 2, axis=1)) == [4]
    assert balanced_cuts(np.repeat(work, 3, axis=1)) in ([1, 4], [2, 5], [1, 5], [2, 4])
    assert balanced_cuts(np.hstack((work, 3 * work))) == [5]


def test_balanced_cuts_are_as_good_as_the_best_of_all_cuts() -> None:
    rng = np.random.default_rng(0)
    for _ in range(100):
        work = rng.integers(1, 10, (int(rng.integers(1, 8)), 3)).astype(float)

        def load(cuts: list[int], work: np.ndarray = work) -> float:
            edges = [0, *cuts, len(work)]
            return max(work[edges[p] : edges[p + 1], p].sum() for p in range(3))

        every = [[a, b] for a in range(len(work) + 1) for b in range(a, len(work) + 1)]
        assert load(balanced_cuts(work)) == min(map(load, every))


def test_expert_keeps_a_layer_on_one_device_and_splits_the_chain_once() -> None:
    names = [f"layer_{n}/MatMul_{k}" for n in range(4) for k in range(3)]
    problem = on_gpus(scoped(names), [10.0] * 12)
    device = run(problem, "expert", QUICK).schedule.device.reshape(4, 3)
    assert (device == device[:, :1]).all()
    assert (np.diff(device[:, 0]) >= 0).all()


def test_expert_divides_parallel_branches_of_each_layer_evenly() -> None:
    branches = [f"cell_{n}/branch_{k}/MatMul" for n in range(3) for k in range(4)]
    joins = [f"cell_{n}/add" for n in range(3)]
    tensors = [Tensor(op, 100, [12 + op // 4]) for op in range(12)]
    tensors += [Tensor(12 + n, 100, [4 * n + 4 + k for k in range(4)]) for n in range(2)]
    problem = on_gpus(
        OpGraph.build([*branches, *joins], tensors), [400.0, 300.0, 200.0, 100.0] * 3 + [1.0] * 3
    )
    device = run(problem, "expert", QUICK).schedule.device[:12].reshape(3, 4)
    assert (device[:, 0] == device[:, 3]).all()
    assert (device[:, 1] == device[:, 2]).all()
    assert (device[:, 0] != device[:, 1]).all()


def test_pesto_is_never_worse_than_its_starts() -> None:
    rng = np.random.default_rng(11)
    for number in range(5):
        problem = every_third_contended(random_problem(rng), number)
        best = min(run(problem, name, QUICK).makespan_us for name in ("single", "expert"))
        assert run(problem, "pesto", QUICK).makespan_us <= best + 1e-9


def test_pesto_is_never_worse_than_its_warm_start() -> None:
    problem = random_problem(np.random.default_rng(2))
    strong = run(problem, "pesto", QUICK).schedule
    again = run(problem, Pesto(num_nodes=2), replace(QUICK, warm_start=strong.placement))
    assert again.makespan_us <= strong.makespan_us + 1e-9


def test_with_one_worker_a_warm_start_gets_half_of_the_time_unless_it_is_slower_than_the_others(
    diamond: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    refined_from: list[list[float]] = []

    def refine(simulator: Simulator, starts: list[Schedule], *_: Any, **__: Any) -> None:
        refined_from.append([start.makespan_us for start in starts])

    pesto = sys.modules["pesto_cli.strategies.pesto"]
    monkeypatch.setattr(pesto, "refine", refine)
    monkeypatch.setattr(pesto, "lower_bound_us", lambda problem: 0.0)
    quick = Pesto(num_nodes=2)  # coarse, so the ILP proves no bound
    best, poor = (run(diamond, name, QUICK).schedule for name in (quick, "single"))
    for start in (best, poor):
        run(diamond, quick, replace(QUICK, warm_start=start.placement))
    cold, from_best, others, from_poor = refined_from
    assert from_best[0] == best.makespan_us
    assert others == cold[: len(others)]
    assert others
    assert from_poor == cold


def stages_of(problem: Problem, strategy: Pesto, context: Context) -> list[str]:
    """Return the names of the stages of a search, in order."""
    found: list[str] = []
    run(problem, strategy, replace(context, on_progress=lambda each: found.append(each.stage)))
    return [*dict.fromkeys(found)]


def test_super_ops_come_before_the_ilp_unless_there_is_a_good_warm_start_or_no_time() -> None:
    problem = random_problem(np.random.default_rng(2))
    coarse, both = Pesto(num_nodes=2), ["super-ops from one device", "super-ops from layers"]

    def first_stages(context: Context, strategy: Pesto = coarse) -> list[str]:
        stages = stages_of(problem, strategy, context)
        return [stage for stage in stages if stage in (*both, "coarse ILP")]

    assert first_stages(QUICK) == [*both, "coarse ILP"]
    assert first_stages(QUICK, Pesto()) == ["coarse ILP"]  # it needs no coarse graph
    good, bad = (run(problem, name, QUICK).schedule.placement for name in (Pesto(), "random"))
    assert first_stages(replace(QUICK, warm_start=good)) == ["coarse ILP"]
    assert first_stages(replace(QUICK, warm_start=bad)) == [*both, "coarse ILP"]
    assert first_stages(Context(replace(QUICK.limits, time_limit_s=1e-9))) == ["coarse ILP"]


def test_a_schedule_found_before_may_be_better_than_the_only_other_start(diamond: Problem) -> None:
    worse, better = (run(diamond, name, QUICK).schedule for name in ("single", "pesto"))
    only_warm = Pesto(num_nodes=2, cheap_starts=False)
    context = replace(QUICK, warm_start=worse.placement)
    found = only_warm.place(diamond, context, {"before": better})
    assert found.schedule.makespan_us <= better.makespan_us < worse.makespan_us


def test_pesto_finds_the_parallel_branches(diamond: Problem) -> None:
    result = run(diamond, "pesto", QUICK)
    assert result.makespan_us == 14


def test_a_stopped_search_returns_the_best_so_far(diamond: Problem) -> None:
    stop = threading.Event()
    stop.set()
    result = run(diamond, "pesto", Context(Limits(stop=stop)))
    assert result.status is SolveStatus.INTERRUPTED
    assert violations(diamond, result.schedule) == []


def test_user_constraints_hold_in_every_strategy() -> None:
    problem = random_problem(np.random.default_rng(4))
    permitted = np.ones_like(problem.permitted)
    movable = np.flatnonzero(problem.allowed[:, 1:].all(axis=1))
    permitted[movable[0], GPU0] = False
    bound = problem.constrained(permitted=permitted)
    for name in PLACERS:
        schedule = run(bound, name, QUICK).schedule
        assert schedule.device[movable[0]] != GPU0
    free = list_schedule(
        problem, run(problem, "single", QUICK).schedule.device, np.zeros(problem.num_ops)
    )
    assert Simulator(problem).replay(free.placement).makespan_us == free.makespan_us


def test_only_a_warm_start_of_the_user_gives_a_warning_that_it_does_not_fit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    graph = OpGraph.build(["a", "b"], resident_bytes=[6, 6])
    problem = on_gpus(graph, [1, 1], two_gpus(memory_bytes=11))
    run(problem, "pesto", QUICK)  # starts from `single`, which puts both ops on one GPU
    assert caplog.messages == []
    both = list_schedule(problem, np.array([GPU0, GPU0]), np.zeros(2)).placement
    result = run(problem, "pesto", replace(QUICK, warm_start=both))
    assert result.status is SolveStatus.OPTIMAL
    (note,) = caplog.messages
    assert "the warm start exceeds the memory, that of GPU:0 by 1 bytes" in note
