"""`pipeline`: stages of layers, and the orders of micro-batches."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from float64_graphs import in_float64
from split_models import weights
from split_training import check_equal, trained
from test_tensor_parallel import priced
from training_graphs import exported

from pesto_cli import api
from pesto_cli.apply.splitting import split_graph
from pesto_cli.data.presets import HOST_TO_V100, TWO_NVLINKS, v100_server
from pesto_cli.data.schedule import Schedule
from pesto_cli.errors import UnfitError
from pesto_cli.sharding.problems import Rewritten
from pesto_cli.strategies.data_parallel import batch_plan, best_solution
from pesto_cli.strategies.meshes import Mesh
from pesto_cli.strategies.pipeline import in_both_orders, pipelined

LAYERS, ROWS, WIDTH = 4, 4096, 2048
GPUS = (1, 2, 3, 4)
PRODUCT, GRADIENT = "layer_{}/product", "gradients/layer_{}/product_grad/MatMul_1"


def layers(tf: Any) -> list[Any]:
    """Dense layers of equal work in scopes of their own."""
    tf1 = tf.compat.v1
    hidden = tf1.placeholder(tf.float32, [ROWS, WIDTH], name="rows")
    for layer in range(LAYERS):
        with tf.name_scope(f"layer_{layer}"):
            hidden = tf.matmul(
                hidden, weights(tf, f"weights_{layer}", [WIDTH, WIDTH]), name="product"
            )
    loss = tf.reduce_mean(tf.square(hidden), name="loss")
    return [tf1.train.GradientDescentOptimizer(0.1).minimize(loss, name="train"), loss]


@pytest.fixture(scope="module")
def problem() -> Any:
    return priced(exported(layers), "v100x4-nvlink").problem


def passes(split: Rewritten, schedule: Schedule, layer: int) -> str:
    """Return the passes of a layer's products in the order of time, such as `F0 F1 B0 B1`."""
    names = {PRODUCT.format(layer): "F", GRADIENT.format(layer): "B"}
    found = []
    for op in np.flatnonzero(split.part >= 0).tolist():
        name, _, _ = split.problem.graph.names[op].rpartition(".part_")
        if name in names:
            found.append((schedule.start_us[op], f"{names[name]}{split.part[op]}"))
    return " ".join(name for _, name in sorted(found))


def test_each_stage_has_contiguous_layers_on_devices_of_its_own(problem: Any) -> None:
    solution = pipelined(problem, Mesh(tuple((gpu,) for gpu in GPUS), 2))
    products = [problem.graph.index_of[PRODUCT.format(layer)] for layer in range(LAYERS)]
    devices = [
        set(solution.schedule.device[(solution.origin == op) & (solution.part >= 0)].tolist())
        for op in products
    ]
    assert devices == [{gpu} for gpu in GPUS]


def test_a_step_of_more_micro_batches_overlaps_stages(problem: Any) -> None:
    meshes = (Mesh(tuple((gpu,) for gpu in GPUS), number) for number in (2, 4, 8))
    makespans_us = [pipelined(problem, mesh).makespan_us for mesh in meshes]
    assert makespans_us == sorted(makespans_us, reverse=True)
    # S stages take (M + S - 1) / M of the work of a stage for M micro-batches (GPipe), and the
    # batch of 32 MiB takes 2.6 ms from the host.
    work_us, feed_us = problem.min_duration_us.sum() / 4 * 11 / 8, 2_600
    assert work_us < makespans_us[-1] < 1.25 * (work_us + feed_us)


def test_the_orders_are_those_of_gpipe_and_1f1b(problem: Any) -> None:
    mesh = Mesh(tuple((gpu,) for gpu in GPUS), 4)
    plan = batch_plan(problem, mesh.devices(0, np.arange(mesh.num_parts)).tolist())
    split, (gpipe, one_by_one) = in_both_orders(problem, plan, mesh)
    for layer in range(LAYERS):
        assert passes(split, gpipe, layer) == "F0 F1 F2 F3 B0 B1 B2 B3"
    assert [passes(split, one_by_one, layer) for layer in range(LAYERS)] == [
        "F0 F1 F2 F3 B0 B1 B2 B3",
        "F0 F1 F2 B0 F3 B1 B2 B3",
        "F0 F1 B0 F2 B1 F3 B2 B3",
        "F0 B0 F1 B1 F2 B2 F3 B3",
    ]


def test_gradients_of_micro_batches_are_added_on_their_device_if_that_is_faster(
    problem: Any,
) -> None:
    mesh = Mesh(((1, 2), (3, 4)), 2)
    flat = batch_plan(problem, mesh.devices(0, np.arange(mesh.num_parts)).tolist())
    by_device = replace(flat, hosts=(0, 1, 0, 1))
    makespans_us = [
        best_solution(problem, *in_both_orders(problem, plan, mesh)).makespan_us
        for plan in (flat, by_device)
    ]
    assert makespans_us[0] != makespans_us[1]
    assert pipelined(problem, mesh).makespan_us == min(makespans_us)


def test_the_step_trains_as_before(problem: Any) -> None:
    plan = api.solve(priced(exported(small)), "pipeline").solution.plan
    assert plan is not None
    whole = in_float64(exported(small))
    check_equal(trained(whole), trained(split_graph(whole, plan)), 1e-9)


def small(tf: Any) -> list[Any]:
    """Two dense layers."""
    tf1 = tf.compat.v1
    hidden = tf1.placeholder(tf.float32, [32, 64], name="rows")
    for layer in range(2):
        with tf.name_scope(f"layer_{layer}"):
            hidden = tf.tanh(tf.matmul(hidden, weights(tf, f"weights_{layer}", [64, 64])))
    loss = tf.reduce_mean(tf.square(hidden), name="loss")
    return [tf1.train.GradientDescentOptimizer(0.1).minimize(loss, name="train"), loss]


def test_one_accelerator_is_refused() -> None:
    machine = v100_server(1, HOST_TO_V100, TWO_NVLINKS)
    with pytest.raises(UnfitError, match="one accelerator"):
        api.solve(api.profile(exported(small), machine, parts=(2,)), "pipeline")
