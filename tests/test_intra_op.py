"""`intra-op`: the layouts that an integer program chooses."""

from dataclasses import replace
from typing import Any

import pytest
from float64_graphs import in_float64
from split_models import weights
from split_training import check_equal, trained
from test_tensor_parallel import graph_of, plan_of, priced, priced_model
from training_graphs import exported

from pesto_cli import api
from pesto_cli.apply.splitting import split_graph
from pesto_cli.data.limits import Limits
from pesto_cli.data.plan import Choice, Plan
from pesto_cli.data.presets import HOST_TO_V100, TWO_NVLINKS, v100_server
from pesto_cli.errors import NoSolutionError, OutOfTimeError, UnfitError
from pesto_cli.strategies import Context
from pesto_cli.strategies.context import Strategy
from pesto_cli.strategies.data_parallel import CpAr, batch_plan, propagation_prices
from pesto_cli.strategies.intra_op import ALPA, IntraOp, layouts_plan
from pesto_cli.strategies.layout_program import Exposed, LayoutProgram
from pesto_cli.strategies.run import run


def wide(rows: int, width: int) -> Any:
    """Return the builder of three dense layers."""

    def build(tf: Any) -> list[Any]:
        tf1 = tf.compat.v1
        hidden = tf1.placeholder(tf.float32, [rows, width], name="rows")
        for layer in range(3):
            matrix = weights(tf, f"weights_{layer}", [width, width])
            hidden = tf.tanh(tf.matmul(hidden, matrix, name=f"product_{layer}"))
        loss = tf.reduce_mean(tf.square(hidden), name="loss")
        return [tf1.train.GradientDescentOptimizer(0.1).minimize(loss, name="train"), loss]

    return build


@pytest.mark.parametrize(
    ("rows", "width", "products", "variables"),
    [
        (65_536, 512, {"rows"}, {"whole", "mirrored"}),
        (16, 8192, {"columns", "contracted"}, {"variable 0", "variable 1"}),
    ],
)
def test_large_batches_are_split_by_rows_and_large_weights_with_their_variables(
    rows: int, width: int, products: set[str], variables: set[str]
) -> None:
    choices = plan_of(priced(exported(wide(rows, width)), "v100x4-nvlink"), "intra-op").choices
    assert {choices[f"product_{layer}"].alternative for layer in range(3)} <= products
    of_weights = [choices.get(f"weights_{layer}") for layer in range(3)]
    assert {each.alternative if each else "whole" for each in of_weights} <= variables


def test_a_step_of_short_ops_is_not_split() -> None:
    with pytest.raises(UnfitError, match="splits no op, since no part is worth its conversions"):
        plan_of(priced(exported(wide(8, 8)), "v100x4-nvlink"), "intra-op")


def test_a_plan_costs_no_more_than_the_data_parallel_plan() -> None:
    problem = priced_model("gpt", "v100x4-nvlink").problem
    program = LayoutProgram(problem, [1.0] * 4, propagation_prices(problem), ALPA)
    ours = layouts_plan(problem, [1.0] * 4, ALPA, Limits(30.0))
    assert program.cost_us(ours) <= program.cost_us(batch_plan(problem, range(4)))


def test_fewer_ops_are_split_if_whole_ops_run_at_the_same_time() -> None:
    problem = priced_model("gpt", "v100x4-nvlink").problem
    free, prices = Exposed(0.0, 0.0), propagation_prices(problem)
    plans = [layouts_plan(problem, [1.0] * 4, free, Limits(30.0), each) for each in (1.0, 2.0)]
    assert len(plans[1].choices) < len(plans[0].choices)
    programs = [LayoutProgram(problem, [1.0] * 4, prices, free, each) for each in (1.0, 2.0)]
    for program, best in zip(programs, plans, strict=True):
        assert program.cost_us(best) == min(program.cost_us(plan) for plan in plans)
    # Whole ops count half with two at a time; variables are dealt to all devices in both programs.
    alone_us, two_us = (program.cost_us(Plan({})) for program in programs)
    assert 0.5 * alone_us <= two_us < alone_us


@pytest.mark.parametrize(
    ("exposed", "weights"),
    [(Exposed(0.0, 0.0), [1.0] * 4), (Exposed(0.0, 0.0), [3.0, 3.0, 2.0, 2.0])],
    ids=["free conversions", "uneven parts"],
)
@pytest.mark.parametrize("model", ["gpt", "bert"])
def test_the_step_trains_as_before(model: str, exposed: Exposed, weights: list[float]) -> None:
    problem = priced_model(model, "v100x4-nvlink").problem
    plan = layouts_plan(problem, weights, exposed, Limits(30.0))
    assert plan
    whole = in_float64(graph_of(model))
    check_equal(trained(whole), trained(split_graph(whole, plan)), 1e-9)


@pytest.mark.parametrize("strategy", [IntraOp(proportional=True), CpAr()])
def test_a_slow_device_gets_the_smallest_part_that_has_a_price(strategy: Strategy) -> None:
    machine = api.read_machine("v100x4-nvlink")
    slow = [replace(each, speed=0.3 if each.name == "GPU:3" else 1.0) for each in machine.devices]
    slower = replace(machine, devices=tuple(slow))
    profile = api.profile(exported(wide(65_536, 512)), slower, parts=(2, 4))
    plan = api.solve(profile, strategy).solution.plan
    assert plan is not None
    sizes = plan.choices["product_0"].sizes
    assert sizes[3] / sum(sizes) == pytest.approx(1 / 6, abs=0.001)
    assert sizes[0] == sizes[1] == pytest.approx(sizes[2], abs=1)


def test_ways_with_parts_that_are_too_small_for_the_prices_are_left_out() -> None:
    problem = priced(exported(wide(65_536, 512)), "v100x4-nvlink").problem
    plan = layouts_plan(problem, [100.0, 100.0, 100.0, 1.0], ALPA, Limits(time_limit_s=5))
    assert not plan


def test_a_plan_that_adds_an_op_without_a_device_is_refused() -> None:
    def build(tf: Any) -> list[Any]:
        words = tf.compat.v1.placeholder(tf.int32, [64, 512], name="words")
        product = tf.cast(words, tf.float32) @ weights(tf, "weights", [512, 8])
        return [tf.reduce_mean(product).op]

    machine = api.read_machine("v100x2-nvlink")
    gpus = tuple(device for device in machine.devices if device.name != "CPU:0")
    links = tuple(link for link in machine.links if "CPU:0" not in (link.src, link.dst))
    alone = replace(machine, devices=gpus, links=links)
    profile = api.profile(exported(build), alone, parts=(2,))
    with pytest.raises(UnfitError, match=r"the plan adds an op, but op 'words.split_0_2' \(Split"):
        api.solve(profile, "data-parallel")
    assert api.solve(profile, "os-dpos").makespan_us > 0


def test_one_accelerator_is_refused() -> None:
    machine = v100_server(1, HOST_TO_V100, TWO_NVLINKS)
    profile = api.profile(graph_of("chain"), machine, parts=(2,))
    with pytest.raises(UnfitError, match="one accelerator"):
        api.solve(profile, "intra-op")


def test_too_little_time_has_the_exit_code_of_no_solution() -> None:
    problem = priced_model("chain", "v100x4-nvlink").problem
    with pytest.raises(OutOfTimeError, match="were too short for the integer program") as refused:
        layouts_plan(problem, [1.0] * 4, ALPA, Limits(1e-9))
    assert refused.value.exit_code == NoSolutionError.exit_code


def test_choices_of_the_user_are_kept_with_their_sizes() -> None:
    problem = priced_model("chain", "v100x4-nvlink").problem
    chosen = Plan({"product_1": Choice("rows", (8, 24))})
    found = run(replace(problem, chosen=chosen), "intra-op", Context())
    assert found.solution.plan is not None
    assert found.solution.plan.choices["product_1"] == chosen.choices["product_1"]
