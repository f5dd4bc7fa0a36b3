"""`horovod`: copies of a step, and rings that add fused gradients."""

from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from split_models import weights
from training_graphs import exported

from pesto_cli import api
from pesto_cli.data.constraints import Constraints, Rule
from pesto_cli.data.presets import DGX1_NVLINKS, PRESETS, TWO_NVLINKS
from pesto_cli.data.result import Result
from pesto_cli.data.schedule import sent_bytes
from pesto_cli.errors import PestoError, UnfitError
from pesto_cli.files import Profile
from pesto_cli.strategies.devices import hosts_of_devices
from pesto_cli.strategies.horovod import Horovod
from pesto_cli.strategies.rings import ring_order

BATCH, WIDTH = 32, 96
MB = 2**20


def training(layers: int, width: int, inputs: int = WIDTH) -> Any:
    """Return a graph whose dense layers have `width` columns each, one after the other."""

    def build(tf: Any) -> list[Any]:
        tf1 = tf.compat.v1
        hidden = tf1.placeholder(tf.float32, [BATCH, inputs], name="rows")
        for layer in range(layers):
            matrix = weights(tf, f"weights_{layer}", [hidden.shape[1], width])
            hidden = tf.tanh(tf.matmul(hidden, matrix, name=f"product_{layer}"))
        loss = tf.reduce_mean(tf.square(hidden), name="loss")
        return [tf1.train.GradientDescentOptimizer(0.1).minimize(loss, name="train"), loss]

    return exported(build)


def priced(meta: Any, machine: str) -> Profile:
    return api.profile(meta, machine, parts=(2, 4, 8))


def between_gpus(result: Result) -> np.ndarray[Any, Any]:
    """Return the bytes that each GPU sends to each other one."""
    machine = result.problem.machine
    gpus = [at for at, device in enumerate(machine.devices) if "GPU" in device.name]
    return sent_bytes(result.problem, result.schedule)[np.ix_(gpus, gpus)]


def rings(result: Result) -> list[tuple[float, float]]:
    """Return the begin and the end of each ring in us."""
    graph, schedule = result.problem.graph, result.schedule
    number = np.array(
        [int(name[5:].split(".")[0]) if name.startswith("ring_") else -1 for name in graph.names]
    )
    return [
        (schedule.start_us[number == ring].min(), schedule.end_us[number == ring].max())
        for ring in range(number.max() + 1)
    ]


@pytest.fixture(scope="module")
def many_small() -> Callable[[str], Profile]:
    """Return the profile of twelve small layers on a machine."""
    meta = training(12, WIDTH)
    return cache(lambda machine: priced(meta, machine))


@pytest.mark.parametrize(("machine", "num_gpus"), [("v100x2-nvlink", 2), ("v100x4-nvlink", 4)])
def test_each_device_sends_its_share_of_the_gradients_to_the_next(
    many_small: Callable[[str], Profile], machine: str, num_gpus: int
) -> None:
    profile = many_small(machine)
    sent = between_gpus(api.solve(profile, "horovod"))
    gradients = profile.problem.graph.resident_bytes.sum()
    assert gradients == 12 * WIDTH**2 * 4
    assert sent.sum(axis=1) == pytest.approx(2 * (num_gpus - 1) / num_gpus * gradients)
    assert (np.count_nonzero(sent, axis=0) == 1).all()
    assert (np.count_nonzero(sent, axis=1) == 1).all()


@pytest.mark.parametrize(("machine", "num_gpus"), [("v100x2-nvlink", 2), ("v100x4-nvlink", 4)])
def test_a_ring_takes_as_long_as_its_messages(machine: str, num_gpus: int) -> None:
    result = api.solve(priced(training(1, 8192, inputs=2048), machine), "horovod")
    num_bytes = 2048 * 8192 * 4
    latency_us, us_per_byte = TWO_NVLINKS.latency_us, TWO_NVLINKS.us_per_byte
    expected_us = 2 * (num_gpus - 1) * (latency_us + num_bytes / num_gpus * us_per_byte)
    [(begin_us, end_us)] = rings(result)
    assert expected_us <= end_us - begin_us < 1.15 * expected_us  # the rest is adding
    assert result.makespan_us < 1.5 * (end_us - begin_us)


def test_fusion_makes_many_small_variables_faster(many_small: Callable[[str], Profile]) -> None:
    profile = many_small("v100x4-nvlink")
    fused, single_mb = api.solve(profile, "horovod"), 2 * WIDTH**2 * 4 / MB
    pairs = api.solve(profile, Horovod(fusion_mb=single_mb))
    alone = api.solve(profile, Horovod(fusion_mb=0))
    assert [len(rings(result)) for result in (fused, pairs, alone)] == [1, 6, 12]
    assert fused.makespan_us < pairs.makespan_us < alone.makespan_us


def test_what_becomes_ready_in_later_cycles_is_in_later_rings(
    many_small: Callable[[str], Profile],
) -> None:
    profile = many_small("v100x4-nvlink")
    result = api.solve(profile, Horovod(cycle_ms=0.05))
    found = rings(result)
    assert 1 < len(found) < 12
    assert all(end_us <= begin_us for (_, end_us), (begin_us, _) in pairwise(found))
    # The gradient of the last layer is ready first.
    first = next(op for op in result.problem.graph.names if op.startswith("ring_0.fill"))
    taken = result.problem.graph.predecessors[result.problem.graph.index_of[first]]
    assert "product_11_grad" in result.problem.graph.names[taken[0]]


def test_the_ring_of_a_dgx1_uses_only_nvlinks() -> None:
    machine = PRESETS["v100x8-nvlink"]
    order = ring_order(machine, range(1, 9), [""] * 9)
    assert sorted(order) == [*range(8)]
    pairs = zip(order, (*order[1:], order[0]), strict=True)
    assert all((min(pair), max(pair)) in DGX1_NVLINKS for pair in pairs)


def test_the_ring_enters_each_server_once(many_small: Callable[[str], Profile]) -> None:
    profile = many_small("heterog-8")
    result = api.solve(profile, "horovod")
    hosts = np.array(hosts_of_devices(result.problem))
    gpus = np.array(["GPU" in device.name for device in result.problem.machine.devices])
    sent = sent_bytes(result.problem, result.schedule) * np.outer(gpus, gpus)
    assert np.count_nonzero(sent * (hosts[:, None] != hosts)) == 4
    assert np.count_nonzero(sent) == 8


def test_rows_of_an_embedding_are_gathered() -> None:
    def build(tf: Any) -> list[Any]:
        tf1 = tf.compat.v1
        words = tf1.placeholder(tf.int32, [BATCH], name="words")
        table = weights(tf, "table", [5000, WIDTH])
        loss = tf.reduce_mean(tf.square(tf.nn.embedding_lookup(table, words)), name="loss")
        return [tf1.train.GradientDescentOptimizer(0.1).minimize(loss, name="train"), loss]

    result = api.solve(priced(exported(build), "v100x4-nvlink"), "horovod")
    rows = BATCH * WIDTH * 4
    indices = BATCH * 8
    assert 0.74 * rows < between_gpus(result).sum(axis=1).max() < 0.76 * (rows + indices)


def test_constraints_hold_for_copies(many_small: Callable[[str], Profile]) -> None:
    profile = many_small("v100x2-nvlink")
    pinned = api.constrain(profile, Constraints(pin=[Rule("product_3", "GPU:0")]))
    result = api.solve(pinned, "horovod")
    problem, schedule = result.problem, result.schedule
    names = [name for name in problem.graph.names if name.startswith("product_3.")]
    assert len(names) == 2
    places = schedule.device[[problem.graph.index_of[name] for name in names]]
    assert (places == problem.machine.index_of["GPU:0"]).all()


def test_a_step_without_gradients_is_left_out() -> None:
    def build(tf: Any) -> list[Any]:
        rows = tf.compat.v1.placeholder(tf.float32, [BATCH, WIDTH], name="rows")
        return [tf.reduce_mean(tf.matmul(rows, weights(tf, "weights", [WIDTH, 8])))]

    with pytest.raises(UnfitError, match="has no gradients"):
        api.solve(priced(exported(build), "v100x2-nvlink"), "horovod")


def test_a_placement_file_cannot_store_copies(many_small: Callable[[str], Profile]) -> None:
    profile = many_small("v100x2-nvlink")
    with pytest.raises(PestoError, match="rewrit"):
        api.placement(profile, api.solve(profile, "horovod"))


def keras_norms() -> Any:
    """Return a Keras model whose gradients depend on sums over the batch, and the specs of data."""
    import keras
    import tensorflow as tf

    layers = [keras.layers.Dense(32), keras.layers.BatchNormalization(), keras.layers.Dense(10)]
    model = keras.Sequential([keras.Input((64,), 256), *layers])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss, jit_compile=False)
    return model, [tf.TensorSpec([256, 64]), tf.TensorSpec([256], tf.int32)]


def test_rings_do_not_add_sums_on_which_gradients_depend() -> None:
    profile = api.profile(api.export(f"{__file__}:keras_norms"), "v100x2-nvlink", parts=(2,))
    graph = api.solve(profile, "horovod").problem.graph
    ends = [op for op, name in enumerate(graph.names) if ".empty_" in name]
    takers = {graph.names[op] for end in ends for op in graph.successors[end].tolist()}
    assert takers
    assert all(name.startswith(("sgd", "ring_")) for name in takers)
