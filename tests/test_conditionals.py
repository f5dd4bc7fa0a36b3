"""Conditionals that force variables onto one device are lowered at export, and train the same."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from test_apply_in_tensorflow import Model, round_robin_placement, trained_with_identical_results
from training_graphs import exported
from two_cpus import two_cpus

from pesto_cli import api
from pesto_cli.apply import planned_changes, session_config
from pesto_cli.data.graph import OpGraph
from pesto_cli.graphdef.conditionals import CONDITIONALS
from pesto_cli.graphdef.export import export, flat_step
from pesto_cli.graphdef.fetches import fetch_names, init_names
from pesto_cli.graphdef.grappler import inline_functions
from pesto_cli.graphdef.read import read_step
from pesto_cli.graphdef.tensorflow import tensorflow

SCRIPT = """
import keras
import tensorflow as tf

def compiled(policy="float32", accumulated=None, scale=None):
    keras.backend.clear_session()
    keras.utils.set_random_seed(1)
    keras.mixed_precision.set_global_policy(policy)
    try:
        layers = [keras.layers.Dense(8, activation="relu") for _ in range(3)]
        out = keras.layers.Dense(2, dtype="float32")
        model = keras.Sequential([keras.Input((6,), 4), *layers, out])
    finally:
        keras.mixed_precision.set_global_policy("float32")
    optimizer = keras.optimizers.Adam(gradient_accumulation_steps=accumulated)
    if scale:
        optimizer = keras.optimizers.LossScaleOptimizer(
            optimizer, initial_scale=scale, dynamic_growth_steps=2
        )
    model.compile(optimizer, "mse", jit_compile=False)
    return model

def plain():
    return compiled()

# Gradients are infinite in the first and fourth of five steps; the scale grows after the third.
def mixed():
    return compiled("mixed_float16", scale=2.0**17)

def accumulated():
    return compiled(accumulated=2)

def both():
    return compiled("mixed_float16", accumulated=2, scale=2.0**17)

def weights():
    return [tf.Variable(tf.random.stateless_normal([6, 6], [i, 1]), name=f"w{i}") for i in range(4)]

def every_third():
    kernels, sums = weights(), weights()
    number = tf.Variable(0, name="number", dtype=tf.int64, trainable=False)

    @tf.function(input_signature=[tf.TensorSpec([4, 6], name="x")])
    def step(x):
        with tf.GradientTape() as tape:
            h = x
            for kernel in kernels:
                h = tf.tanh(h @ kernel)
            loss = tf.reduce_mean(h * h)
        for total, gradient in zip(sums, tape.gradient(loss, kernels)):
            total.assign_add(gradient)
        number.assign_add(1)
        if number % 3 == 0:
            for total, kernel in zip(sums, kernels):
                tf.raw_ops.ResourceApplyGradientDescent(
                    var=kernel.handle, alpha=0.1, delta=total / 3.0
                )
                total.assign(tf.zeros_like(total))
        return loss
    return step

def layers_of_choice():
    kernels = weights()
    number = tf.Variable(0, name="number", trainable=False)

    @tf.function(input_signature=[tf.TensorSpec([4, 6], name="x")])
    def step(x):
        number.assign_add(1)
        def branch(first):
            def layer():
                h = x @ kernels[first]
                if tf.reduce_sum(h) > 0:
                    return tf.sin(h) @ kernels[(first + 1) % 4]
                return tf.cos(h)
            return layer
        with tf.GradientTape() as tape:
            h = tf.switch_case(number % 4, [branch(first) for first in range(4)])
            loss = tf.reduce_mean(h * h)
        for kernel, gradient in zip(kernels, tape.gradient(loss, kernels)):
            kernel.assign_sub(0.1 * gradient)
        return loss
    return step

def within_a_loop():
    kernels = weights()

    @tf.function(input_signature=[tf.TensorSpec([6, 6], name="x")])
    def step(x):
        for number in tf.range(3):
            if number % 2 == 0:
                x = tf.tanh(x @ kernels[0] @ kernels[1])
        return tf.reduce_mean(x)
    return step
"""
PROGRAMS = ("mixed", "accumulated", "both", "every_third", "layers_of_choice")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Model]:
    script = tmp_path_factory.mktemp("conditionals") / "programs.py"
    script.write_text(SCRIPT)
    found: dict[str, Model] = {}

    def of(name: str) -> Model:
        if name not in found:
            meta = export(f"{script}:{name}")
            found[name] = Model(meta, read_step(meta))
        return found[name]

    return of


def variables_by_group(graph: OpGraph) -> np.ndarray:
    """`[num_groups]`: the number of variables in each colocation group."""
    return np.bincount(graph.colocation_group, graph.resident_bytes > 0)


@pytest.mark.parametrize("name", ["plain", *PROGRAMS])
def test_a_conditional_does_not_force_variables_onto_one_device(
    name: str, model: Callable[[str], Model]
) -> None:
    graph = model(name).step.graph
    assert not set(CONDITIONALS) & set(graph.types)
    assert variables_by_group(graph).max() == 1


@pytest.mark.parametrize("name", PROGRAMS)
def test_training_on_two_devices_is_identical_whichever_branches_are_taken(
    name: str, model: Callable[[str], Model]
) -> None:
    sizes = {len(spans) for spans in trained_with_identical_results(model(name)).spans}
    assert len(sizes) > 1  # The steps did not all take the same branches.


def test_outputs_of_a_branch_that_gradients_need_stay_in_memory(
    model: Callable[[str], Model],
) -> None:
    graph = model("layers_of_choice").step.graph
    kept = [op for op, kind in enumerate(graph.types) if kind == "OptionalFromValue"]
    assert kept
    assert all(graph.alias_of[op] in graph.predecessors[op] for op in kept)


def test_no_departure_is_reported_for_skipped_branches(model: Callable[[str], Model]) -> None:
    case = model("both")
    (run,) = api.run_steps(
        case.meta, two_cpus(), [round_robin_placement(case.step)], steps=1, warm_up=0
    )
    assert run.verification.departures == ()
    assert run.verification.num_ops > 100


def test_ops_of_a_branch_run_one_after_the_other(model: Callable[[str], Model]) -> None:
    """Each op of a branch waits for the previous op of the branch on its device."""
    case = model("mixed")
    waits_for = planned_changes(case.meta, round_robin_placement(case.step)).waits_for
    then = [name for name in case.step.graph.names if name.startswith("cond/then/")]
    held = [name for name in then if any(s in then for s in waits_for.get(name, ()))]
    assert len(held) > 0.2 * len(then)
    outside = [name for name in case.step.graph.names if "cond/" not in name]
    assert not [s for name in outside for s in waits_for.get(name, ()) if s in then]


def test_the_critical_path_is_hardly_longer_than_without_the_conditional(
    model: Callable[[str], Model],
) -> None:
    machine = api.read_machine("v100x2-nvlink")
    chains = {
        name: api.critical_path_us(api.profile(model(name).meta, machine).problem)
        for name in ("plain", "mixed")
    }
    # The path also has casts, the test of the gradients and their unscaling.
    assert chains["mixed"] < 1.5 * chains["plain"]


def test_a_conditional_in_a_loop_stays_a_part_of_the_loop(model: Callable[[str], Model]) -> None:
    meta = model("within_a_loop").meta
    assert "While" in {node.op for node in meta.graph_def.node}
    assert not {"Switch", *CONDITIONALS} & {node.op for node in meta.graph_def.node}


def two_updates(tf: Any) -> Sequence[Any]:
    """Build a conditional of a v1 graph: only its outputs cause its side effects."""
    tf1 = tf.compat.v1
    fed = tf1.placeholder(tf.float32, [3], name="fed")
    one, other = (
        tf1.get_variable(name, initializer=np.ones(3, np.float32), use_resource=True)
        for name in ("one", "other")
    )
    above = tf.reduce_sum(fed) > 0
    tf1.cond(above, lambda: one.assign_add(fed) * 1.0, lambda: other.assign_add(fed) * 1.0)
    return [tf1.get_default_graph().get_operation_by_name("cond")]


def values_after(meta: Any, steps: Sequence[float]) -> list[float]:
    """Return the first element of each variable after steps with these feeds.

    A step fails if a fetched op is skipped.
    """
    tf1 = tensorflow().compat.v1
    with tf1.Graph().as_default(), tf1.Session(config=session_config()) as session:
        tf1.train.import_meta_graph(meta)
        session.run(init_names(meta))
        for value in steps:
            session.run(fetch_names(meta), {"fed:0": np.full(3, value)})
        return [float(value[0]) for value in session.run(tf1.global_variables())]


def test_an_op_that_waits_for_a_conditional_waits_for_all_its_side_effects() -> None:
    flat = flat_step(exported(two_updates, functional_control_flow=True), "the graph")
    assert "Switch" in {node.op for node in flat.graph_def.node}
    assert values_after(flat, [2.0, -5.0, 3.0]) == [6.0, -4.0]


def test_a_conditional_whose_output_is_fetched_keeps_its_name() -> None:
    meta = exported(two_updates, functional_control_flow=True)
    meta.collection_def["train_op"].node_list.value[:] = ["cond:0"]
    flat = flat_step(meta, "the graph")
    assert {node.name: node.op for node in flat.graph_def.node}["cond"] == "If"
    assert values_after(flat, [2.0, -5.0, 3.0]) == [6.0, -4.0]


def test_in_a_program_that_is_placed_while_it_runs_conditionals_stay_one_op() -> None:
    meta = exported(two_updates, functional_control_flow=True)
    whole = inline_functions(meta, "the graph", whole_conditionals=True)
    assert "If" in {node.op for node in whole.graph_def.node}


def test_gradients_do_not_wait_for_each_other_within_a_branch(
    model: Callable[[str], Model],
) -> None:
    for name in ("mixed", "accumulated"):
        assert "IdentityN" not in model(name).step.graph.types


def write_in_a_branch(tf: Any) -> Sequence[Any]:
    """Build a read that only an IdentityN orders after a write in a branch."""
    tf1 = tf.compat.v1
    fed = tf1.placeholder(tf.float32, [3], name="fed")
    total = tf1.get_variable("total", initializer=np.ones(3, np.float32), use_resource=True)
    written = tf1.cond(tf.reduce_sum(fed) > 0, lambda: total.assign_add(fed) + 0.0, lambda: fed)
    _, passed = tf.identity_n([written, fed])
    with tf.control_dependencies([tf.identity(passed)]):
        return [tf.reduce_sum(total.read_value()), written]


def test_an_op_after_a_branch_is_not_skipped_with_the_branch() -> None:
    flat = flat_step(exported(write_in_a_branch), "the graph")
    assert values_after(flat, [2.0, -5.0, 3.0]) == [6.0]
