"""`os-dpos`: FastT's Algorithm 2, splits of ops on the critical path."""

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from float64_graphs import in_float64
from split_models import weights
from split_training import check_equal, trained
from test_tensor_parallel import priced_model
from training_graphs import exported

from pesto_cli import api
from pesto_cli.apply.splitting import split_graph
from pesto_cli.data.constraints import SplitRule
from pesto_cli.data.limits import Limits
from pesto_cli.data.plan import WHOLE_OPS, Choice, Plan
from pesto_cli.data.problem import Problem
from pesto_cli.data.solution import Solution
from pesto_cli.sharding.problems import rewritten
from pesto_cli.strategies import STRATEGIES
from pesto_cli.strategies.chosen_plan import with_chosen
from pesto_cli.strategies.congestion_rounds import best_of_rounds
from pesto_cli.strategies.context import Context
from pesto_cli.strategies.data_parallel import batch_plan
from pesto_cli.strategies.devices import accelerators
from pesto_cli.strategies.dpos import dpos_schedule
from pesto_cli.strategies.os_dpos import OsDpos, placed_by_dpos, split_critical_ops
from pesto_cli.strategies.run import run

WIDTH = 512
LONG = "long_product"


def product_of_weights(tf: Any) -> list[Any]:
    """A product of two variables, which no split of the batch divides."""
    tf1 = tf.compat.v1
    rows = tf1.placeholder(tf.float32, [8, WIDTH], name="rows")
    left, right = (weights(tf, name, [WIDTH, WIDTH]) for name in ("left", "right"))
    product = tf.matmul(left, right, name=LONG)
    loss = tf.reduce_mean(tf.square(tf.matmul(rows, product)), name="loss")
    return [tf1.train.GradientDescentOptimizer(0.1).minimize(loss, name="train"), loss]


def wide_layers(tf: Any) -> list[Any]:
    """Two products with many rows, whose outputs are larger than the weights."""
    tf1 = tf.compat.v1
    hidden = tf1.placeholder(tf.float32, [32_768, WIDTH], name="rows")
    for layer in range(2):
        hidden = tf.matmul(hidden, weights(tf, f"weights_{layer}", [WIDTH, WIDTH]))
    loss = tf.reduce_mean(tf.square(hidden), name="loss")
    return [tf1.train.GradientDescentOptimizer(0.1).minimize(loss, name="train"), loss]


def priced(meta: Any, machine: str = "v100x2-nvlink") -> Problem:
    return api.profile(meta, machine, parts=(2, 4, 8)).problem


@cache
def with_long_product(machine: str = "v100x2-nvlink") -> Problem:
    """Return the problem of `product_of_weights`; the product takes 10 ms."""
    problem = priced(exported(product_of_weights), machine)
    time_us = problem.time_us.copy()
    time_us[problem.graph.index_of[LONG]] = 10_000.0
    return replace(problem, time_us=time_us)


def choices(solution: Solution) -> dict[str, Choice]:
    return {} if solution.plan is None else dict(solution.plan.choices)


@pytest.mark.parametrize("machine", ["v100x2-nvlink", "v100x4-nvlink"])
def test_a_long_op_is_split(machine: str) -> None:
    problem = with_long_product(machine)
    found, whole = (run(problem, strategy, Context()) for strategy in ("os-dpos", "fastt"))
    assert found.solution.makespan_us < 0.8 * whole.solution.makespan_us
    assert choices(found.solution)[LONG].num_parts == len(accelerators(problem))


def test_it_is_split_in_the_data_parallel_graph_and_in_that_of_the_model() -> None:
    problem = with_long_product()
    replicated = batch_plan(problem, accelerators(problem))
    assert LONG not in replicated.choices
    for start in (WHOLE_OPS, replicated):
        found = choices(split_critical_ops(problem, start, Context()))
        assert LONG in found
        assert {**found, **start.choices} == found


@pytest.mark.parametrize("name", ["gpt", "bert"])
def test_the_step_is_never_longer_than_by_dpos(name: str) -> None:
    problem = priced_model(name).problem
    for start in (WHOLE_OPS, batch_plan(problem, accelerators(problem))):
        graph = rewritten(problem, start).problem if start else problem
        first = best_of_rounds(graph, Context(), dpos_schedule).schedule
        found = split_critical_ops(problem, start, Context())
        assert found.makespan_us <= first.makespan_us


def test_short_ops_are_not_split() -> None:
    def build(tf: Any) -> list[Any]:
        rows = tf.compat.v1.placeholder(tf.float32, [8, 4], name="rows")
        return [tf.reduce_sum(tf.exp(rows), name="sum")]

    solution = run(priced(exported(build)), "os-dpos", Context()).solution
    assert not solution.is_rewritten


def test_an_op_in_parts_is_split_further() -> None:
    problem = with_long_product("v100x4-nvlink")
    start = Plan({LONG: Choice("rows", (WIDTH // 2,) * 2)})
    found = choices(split_critical_ops(problem, start, Context()))
    assert found[LONG] == Choice("rows", (WIDTH // 4,) * 4)


def stopped() -> Context:
    limits = Limits()
    limits.stop.set()
    return Context(limits=limits)


def test_a_request_to_stop_leaves_a_solution() -> None:
    problem = with_long_product()
    assert LONG not in choices(run(problem, "os-dpos", stopped()).solution)


def test_in_deterministic_mode_the_limit_counts_splits() -> None:
    problem = with_long_product()
    for time_limit_s, is_split in ((1e-9, False), (60.0, True)):
        context = Context(limits=Limits(time_limit_s, deterministic=True))
        assert (LONG in choices(split_critical_ops(problem, WHOLE_OPS, context))) == is_split


def with_memory(problem: Problem, memory_bytes: int) -> Problem:
    """Return the problem with so much memory on each accelerator."""
    devices = tuple(
        replace(device, memory_bytes=memory_bytes) if index in accelerators(problem) else device
        for index, device in enumerate(problem.machine.devices)
    )
    return replace(problem, machine=replace(problem.machine, devices=devices))


def most_bytes(problem: Problem, strategy: str) -> int:
    """Return the highest peak of an accelerator in the step of a strategy."""
    peak_bytes = run(problem, strategy, Context()).solution.schedule.peak_bytes
    return int(peak_bytes[accelerators(problem)].max())


def test_a_model_of_which_no_copy_fits_is_not_replicated() -> None:
    problem = with_long_product()
    room = min(most_bytes(problem, name) for name in ("ev-ps", "ev-ar")) - 1
    replicated = batch_plan(problem, accelerators(problem)).choices.keys()
    small = with_memory(problem, room)
    assert not replicated & choices(run(small, "os-dpos", Context()).solution).keys()


def test_a_model_of_which_a_copy_fits_is_replicated_even_if_its_batch_fits_on_no_device() -> None:
    problem = priced(exported(wide_layers))
    of_copy, of_batch = (most_bytes(problem, name) for name in ("ev-ps", "single"))
    assert of_copy < of_batch
    solution = run(with_memory(problem, (of_copy + of_batch) // 2), "os-dpos", Context()).solution
    assert batch_plan(problem, accelerators(problem)).choices.keys() <= choices(solution).keys()


def test_a_result_is_not_slower_than_either_data_parallel_step() -> None:
    problem = priced_model("bert").problem
    found = run(problem, "os-dpos", Context())
    for name in ("ev-ps", "ev-ar"):
        assert found.makespan_us <= run(problem, name, Context()).makespan_us


def test_dpos_alone_places_the_data_parallel_graph() -> None:
    """As in FastT's Table 6 without splits: nothing is split further than by replication."""
    problem = with_long_product()
    alone = OsDpos(splits_critical_ops=False)(problem, Context())
    mirrored = STRATEGIES.find("ev-ar")(problem, Context())
    assert choices(alone) == choices(mirrored)
    assert alone.makespan_us == mirrored.makespan_us
    replicated = batch_plan(problem, accelerators(problem))
    placed = placed_by_dpos(problem, replicated, Context())
    assert choices(placed) == replicated.choices
    split = split_critical_ops(problem, replicated, Context())
    assert split.makespan_us < 0.8 * placed.makespan_us


def test_ops_that_constraints_split_are_split_as_they_say() -> None:
    rule = SplitRule(ops=LONG, by="contracted", parts=2)
    problem = with_chosen(with_long_product(), [rule])
    solution = run(problem, "os-dpos", Context()).solution
    assert choices(solution)[LONG] == problem.chosen.choices[LONG]


@pytest.mark.parametrize("machine", ["v100x2-nvlink", "v100x4-nvlink"])
def test_the_step_trains_as_before(machine: str) -> None:
    meta = exported(product_of_weights)
    problem = with_long_product(machine)
    for start in (WHOLE_OPS, batch_plan(problem, accelerators(problem))):
        plan = split_critical_ops(problem, start, Context()).plan
        assert plan is not None
        assert LONG in plan.choices
        whole = in_float64(meta)
        check_equal(trained(whole), trained(split_graph(whole, plan)), 1e-9)


def test_the_first_op_without_a_gain_ends_the_search() -> None:
    """The time of the longest op is that of a kernel launch, so its parts take as long."""
    problem = with_long_product()
    time_us = problem.time_us.copy()
    time_us[problem.graph.index_of["loss"]] = 20_000.0
    longest = replace(problem, time_us=time_us)
    assert LONG not in choices(split_critical_ops(longest, WHOLE_OPS, Context()))


def test_pesto_is_not_slower() -> None:
    problem = with_long_product("v100x4-nvlink")
    limits = Limits(time_limit_s=1.0, deterministic=True)
    found = {name: run(problem, name, Context(limits)) for name in ("os-dpos", "pesto")}
    assert found["pesto"].makespan_us <= found["os-dpos"].makespan_us < 5_000
