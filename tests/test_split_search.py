"""Strategies that split ops: `data-parallel`, and `pesto` on a profile with prices of parts."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Pesto
from training_graphs import exported

from pesto_cli import api
from pesto_cli.bounds import lower_bound_us
from pesto_cli.bounds.plans import all_plans_bound_us
from pesto_cli.data.graph import OpGraph
from pesto_cli.data.machine import Machine
from pesto_cli.data.plan import Choice
from pesto_cli.data.presets import PRESETS
from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import sent_bytes
from pesto_cli.data.solution import PlanSet, Solution
from pesto_cli.errors import BadInputError
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.files import Profile
from pesto_cli.sharding.problems import rewritten
from pesto_cli.sharding.propagation import Prices, propagate
from pesto_cli.strategies.context import Context
from pesto_cli.strategies.data_parallel import DataParallel
from pesto_cli.strategies.devices import speeds
from pesto_cli.strategies.meshes import devices_of_equal_parts
from pesto_cli.strategies.order import ordered
from pesto_cli.strategies.run import judged
from pesto_cli.strategies.split_search.race import Entry, best_of
from pesto_cli.zoo.transformer import transformer

EXAMPLES = Path(__file__).parents[1] / "examples"
BATCH = 64


def build_transformer() -> dict[str, object]:
    """One layer that is large enough for a split to pay."""
    return transformer(
        layers=1, heads=4, hidden=512, inner=2048, batch=BATCH, length=64, vocabulary=2000
    )


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> object:
    script = tmp_path_factory.mktemp("split") / "model.py"
    script.write_text("from test_split_search import build_transformer as build\n")
    return api.export(f"{script}:build")


@pytest.fixture(scope="module")
def priced(graph: object) -> Profile:
    return api.profile(graph, "v100x2-nvlink", parts=(2, 4, 8))


def two_hosts() -> Machine:
    """Two hosts of two GPUs each."""
    machine = PRESETS["v100x4-nvlink"]
    names = {
        "CPU:0": "host:0/CPU:0",
        **{f"GPU:{index}": f"host:{index // 2}/GPU:{index % 2}" for index in range(4)},
    }
    return replace(
        machine,
        devices=tuple(replace(each, name=names[each.name]) for each in machine.devices),
        links=tuple(
            replace(each, src=names[each.src], dst=names[each.dst]) for each in machine.links
        ),
    )


def on_machine(problem: Problem, machine: Machine) -> Problem:
    permitted = np.ones((problem.num_ops, machine.num_devices), dtype=np.bool_)
    return replace(problem, machine=machine, permitted=permitted)


def with_a_faster_gpu(problem: Problem) -> Problem:
    """Return a problem whose last device is twice as fast as the one before."""
    host, slow, fast = problem.machine.devices
    devices = (host, slow, replace(fast, speed=2 * slow.speed))
    return on_machine(problem, replace(problem.machine, devices=devices))


def split_of(problem: Problem, strategy: DataParallel) -> Solution:
    solution = strategy(problem, Context())
    judged("data-parallel", solution, 0.0)  # no rule is violated
    return solution


def test_data_parallel_splits_the_batch(priced: Profile) -> None:
    problem = priced.problem
    solution = split_of(problem, DataParallel())
    plan, part = solution.plan, solution.part
    assert plan is not None
    assert part is not None
    products = [
        name
        for name, op_type in zip(problem.graph.names, problem.graph.types, strict=True)
        if op_type in ("MatMul", "BatchMatMulV2", "Softmax")
    ]
    assert set(products) <= plan.choices.keys()
    assert {choice.num_parts for choice in plan.choices.values()} == {2}
    group = solution.problem.graph.colocation_group
    movable = (part >= 0) & (np.bincount(group)[group] == 1)  # not with a variable
    names = [problem.machine.devices[index].name for index in solution.schedule.device[movable]]
    for index, name in zip(part[movable].tolist(), names, strict=True):
        assert name == f"GPU:{index}"


def test_data_parallel_deals_the_variables(priced: Profile) -> None:
    solution = split_of(priced.problem, DataParallel())
    graph = solution.problem.graph
    held = np.bincount(solution.schedule.device, graph.resident_bytes, minlength=3)
    largest = np.bincount(graph.colocation_group, graph.resident_bytes).max()
    assert abs(held[1] - held[2]) <= largest


def test_the_baselines_of_heterog_are_settings_of_data_parallel(priced: Profile) -> None:
    settings: dict[str, dict[str, Any]] = {
        "ev-ps": {},
        "ev-ar": {"variables": "mirrored", "by_host": None},
        "cp-ps": {"proportional": True},
        "cp-ar": {"proportional": True, "variables": "mirrored", "by_host": None},
    }
    profile = replace(priced, problem=with_a_faster_gpu(priced.problem))
    found = {
        name: (api.solve(profile, name), api.solve(profile, "data-parallel", **given))
        for name, given in settings.items()
    }
    for baseline, configured in found.values():
        assert api.plan(baseline) == api.plan(configured)
        assert baseline.makespan_us == configured.makespan_us
    plans = [api.plan(baseline) for baseline, _ in found.values()]
    assert all(plan not in plans[:number] for number, plan in enumerate(plans))


def test_a_layout_of_variables_is_given_by_name() -> None:
    dense = api.read_profile(EXAMPLES / "dense.profile.json.gz")
    ways = {
        layout: {choice.alternative for choice in api.plan(result).choices.values()}
        for layout in ("whole", "split", "mirrored")
        for result in [api.solve(dense, "data-parallel", variables=layout)]
    }
    stored = {"variable 0", "variable 1", "mirrored"}
    assert not ways["whole"] & stored
    assert ways["split"] & stored
    assert "mirrored" not in ways["split"]
    assert ways["mirrored"] & stored == {"mirrored"}
    with pytest.raises(BadInputError, match="'mirored' is unknown; one of whole, split"):
        api.solve(dense, "data-parallel", variables="mirored")


def test_sums_and_copies_cross_hosts_once(priced: Profile) -> None:
    problem = on_machine(priced.problem, two_hosts())
    flat, by_host = (split_of(problem, DataParallel(by_host=each)) for each in (False, True))
    assert any(name.endswith(".sum_host_1") for name in by_host.problem.graph.names)
    assert any(name.endswith(".copy_host_1") for name in by_host.problem.graph.names)

    def between_hosts(solution: Solution) -> int:
        sent = sent_bytes(solution.problem, solution.schedule)
        return int(sent[1:3, 3:].sum() + sent[3:, 1:3].sum())

    assert between_hosts(by_host) < 0.75 * between_hosts(flat)


def test_faster_devices_get_larger_parts(priced: Profile) -> None:
    problem = with_a_faster_gpu(priced.problem)
    solution = split_of(problem, DataParallel(proportional=True))
    assert solution.plan is not None
    sizes = [choice.sizes for choice in solution.plan.choices.values() if max(choice.sizes) > 1]
    assert sizes
    assert all(large == pytest.approx(2 * small, rel=0.15) for small, large in sizes)


def test_an_extent_of_which_a_slow_device_gets_nothing_is_not_split() -> None:
    def build(tf: Any) -> list[Any]:
        return [tf.exp(tf.compat.v1.placeholder("float32", [2, 64], name="data"), name="exp")]

    problem = api.profile(exported(build), "v100x2-nvlink", parts=(2, 4, 8)).problem
    slow = replace(problem.machine.devices[-1], speed=0.2)
    devices = (*problem.machine.devices[:-1], slow)
    problem = replace(problem, machine=replace(problem.machine, devices=devices))
    solution = split_of(problem, DataParallel(proportional=True))
    assert solution.plan is not None
    assert solution.plan.choices["exp"] == Choice("axis 1", (54, 10))


def test_the_speed_of_a_device_counts_ops_that_all_can_run() -> None:
    machine = PRESETS["v100x2-nvlink"]
    cpu, first, second = machine.devices
    kinds = {**machine.kinds, "slow": machine.kinds["GPU"]}
    devices = (cpu, first, replace(second, kind="slow"))
    graph = OpGraph.build([f"op{index}" for index in range(10)])
    times = {"GPU": [10.0] * 10, "slow": [20.0] + [np.nan] * 9}
    problem = Problem.build(graph, times, replace(machine, kinds=kinds, devices=devices))
    assert speeds(problem, [1, 2]) == [1e6 / 10, 1e6 / 20]


def test_a_profile_without_prices_is_refused(priced: Profile) -> None:
    with pytest.raises(BadInputError, match="has no prices of parts"):
        api.solve(api.limit_parts(priced, 1), "data-parallel")


def test_inputs_without_a_batch_are_refused() -> None:
    def build(tf: Any) -> list[Any]:
        return [tf.exp(tf.compat.v1.placeholder("float32", [1, 1]))]

    profile = api.profile(exported(build), "v100x2-nvlink", parts=(2,))
    with pytest.raises(BadInputError, match="no input of the step can be split into 2 parts"):
        api.solve(profile, "data-parallel")
    result = api.solve(profile, time_limit_s=0.1)
    assert result.solution.plan is None


def test_pesto_splits_where_that_is_faster(priced: Profile) -> None:
    whole = api.solve(api.limit_parts(priced, 1), time_limit_s=0.3, deterministic=True)
    split = api.solve(priced, time_limit_s=0.7, deterministic=True)
    assert not whole.solution.is_rewritten
    assert split.solution.is_rewritten
    assert split.makespan_us < 0.97 * whole.makespan_us
    assert split.solution.whole is not None
    assert split.solution.whole.makespan_us >= split.makespan_us


def test_pesto_keeps_ops_whole_where_that_is_faster(priced: Profile) -> None:
    slow = replace(
        priced.problem.machine,
        links=tuple(
            replace(each, comm=replace(each.comm, latency_us=1e5))
            for each in priced.problem.machine.links
        ),
    )
    problem = on_machine(priced.problem, slow)
    result = api.solve(replace(priced, problem=problem), time_limit_s=0.3, deterministic=True)
    assert not result.solution.is_rewritten
    single = api.solve(replace(priced, problem=problem), "single")
    assert result.makespan_us <= single.makespan_us


def test_a_schedule_that_several_ways_give_is_refined_once(priced: Profile) -> None:
    layouts = ("whole", "mirrored", "split")
    twice = [
        Entry(f"{layout}, {time}", solution, solution)
        for time in ("first", "again")
        for layout in layouts
        for solution in [split_of(priced.problem, DataParallel(variables=layout))]
    ]
    chosen = best_of(twice, 2)
    assert len({entry.best.objective for entry in chosen}) == len(chosen) == 2
    assert chosen[0].best.objective == min(entry.best.objective for entry in twice)
    assert {entry.name for entry in chosen} <= {f"{layout}, first" for layout in layouts}


def test_a_deterministic_search_is_repeated(priced: Profile) -> None:
    one, other = (api.solve(priced, time_limit_s=0.3, deterministic=True) for _ in range(2))
    assert one.problem.graph.names == other.problem.graph.names
    assert (one.schedule.device == other.schedule.device).all()
    assert (one.schedule.rank == other.schedule.rank).all()


def test_the_bound_is_the_same_for_all_strategies(priced: Profile) -> None:
    results = api.compare(priced, ["single", "expert", "data-parallel"])
    assert len({result.lower_bound_us for result in results}) == 1
    assert {result.solution.bound_holds_for for result in results} == {PlanSet.ALL_PLANS}
    whole = api.compare(api.limit_parts(priced, 1), ["single"])[0]
    assert whole.lower_bound_us > results[0].lower_bound_us


def test_no_plan_is_below_the_bound_of_all_plans(priced: Profile) -> None:
    problem, random = priced.problem, np.random.default_rng(0)
    parts = problem.parts
    assert parts is not None
    bound_us = all_plans_bound_us(problem)
    assert bound_us <= lower_bound_us(replace(problem, parts=None)) * (1 + 1e-9)
    specs = parts.op_specs
    prices = Prices(problem.min_duration_us, 2e-5, 40.0)
    feeds = np.flatnonzero(problem.is_feed)
    for _ in range(12):
        seeds = {int(problem.graph.op_tensors[op]): 0 for op in feeds if random.random() < 0.8}
        weights = [1.0, *random.integers(1, 4, random.integers(1, 3))]
        plan = propagate(problem.graph, specs, seeds, weights, prices).plan
        split = rewritten(problem, plan).problem
        group = split.graph.colocation_group
        drawn = random.integers(1, 3, split.graph.num_groups)[group]
        device = np.where(split.allowed[np.arange(len(drawn)), drawn], drawn, 0)
        assert ordered(Simulator(split), device).makespan_us >= bound_us * (1 - 1e-9)


def test_the_bound_does_not_count_ops_that_a_split_step_lacks(priced: Profile) -> None:
    solution = split_of(priced.problem, DataParallel())
    is_left = np.isin(np.arange(priced.problem.num_ops), solution.origin)
    assert not is_left.all()
    time_us = np.where(is_left[:, None], priced.problem.time_us, 1e6)
    slow = split_of(replace(priced.problem, time_us=time_us), DataParallel())
    assert slow.schedule.makespan_us < 1e6
    assert all_plans_bound_us(slow.asked) <= slow.schedule.makespan_us


def test_commands_split_and_show_it(
    graph: object, priced: Profile, tmp_path: Path, pesto: Pesto
) -> None:
    api.save(tmp_path / "graph.meta", graph)
    api.save(tmp_path / "profile.json", priced)
    solve = ["solve", tmp_path / "profile.json", "-o", tmp_path / "placement.json"]
    ended = pesto(*solve, "--strategy", "data-parallel")
    assert ended.code == 0, ended.err
    assert "ops into at most 2 parts" in ended.out
    ended = pesto("simulate", tmp_path / "profile.json", "--placement", tmp_path / "placement.json")
    assert ended.code == 0, ended.err
    ended = pesto(
        *("apply", tmp_path / "graph.meta", tmp_path / "placement.json"),
        *("-o", tmp_path / "placed.meta"),
    )
    assert ended.code == 0, ended.err
    ended = pesto(*solve, "--time-limit", "1", "--max-parts", "1")
    assert ended.code == 0, ended.err
    assert "into at most" not in ended.out
    ended = pesto(*solve, "--strategy", "data-parallel", "--max-parts", "1")
    assert ended.code == BadInputError.exit_code
    assert "--max-parts 1 leaves none" in ended.err


@pytest.mark.parametrize(
    ("priced_parts", "asked", "num_parts", "num_devices"),
    [((2, 4), None, 4, 4), ((2,), None, 2, 2), ((2, 4), 2, 2, 2), ((2, 4, 8), 8, 8, 4)],
)
def test_the_batch_is_split_into_as_many_parts_as_asked_or_priced(
    graph: object,
    priced_parts: tuple[int, ...],
    asked: int | None,
    num_parts: int,
    num_devices: int,
) -> None:
    priced = api.profile(graph, "v100x4-nvlink", parts=priced_parts)
    placed = api.placement(priced, api.solve(priced, "data-parallel", parts=asked))
    assert placed.plan.num_parts == num_parts
    cpu = placed.devices.index("CPU:0")
    assert len(set(placed.device) - {cpu}) == num_devices


def test_few_parts_are_on_the_fastest_devices(graph: object) -> None:
    problem = api.profile(graph, "heterog-8", parts=(2,)).problem
    kinds = [problem.machine.devices[index].kind for index in devices_of_equal_parts(problem)]
    assert kinds == ["V100", "V100"]


def test_fewer_than_two_parts_are_refused() -> None:
    with pytest.raises(BadInputError, match="into 1 parts; at least 2"):
        DataParallel(parts=1)


def test_variables_stay_whole_if_asked(
    pesto: Pesto, graph: Any, priced: Profile, tmp_path: Path
) -> None:
    api.save(tmp_path / "graph.meta", graph)
    api.save(tmp_path / "profile.json", priced)
    types = zip(priced.problem.graph.names, priced.problem.graph.types, strict=True)
    variables = {name for name, kind in types if kind == "VarHandleOp"}
    for option, are_split in (("--whole-variables", False), ("--quiet", True)):
        path = tmp_path / f"{option}.json"
        ended = pesto("solve", tmp_path / "profile.json", "-o", path, "--strategy", "ev-ar", option)
        assert ended.code == 0, ended.err
        placed = api.load(path)
        assert placed.plan.choices
        assert bool(variables & placed.plan.choices.keys()) == are_split
        ended = pesto("apply", tmp_path / "graph.meta", path, "-o", tmp_path / "placed.meta")
        assert ("local_variables_initializer() after each restore" in ended.err) == are_split
