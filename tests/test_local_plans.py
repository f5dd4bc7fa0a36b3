"""Parts that compute something else than whole ops, which the user has to allow by name."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Pesto
from sharding_ops import Array, Case, case, computed, known
from sharding_programs import run_parts
from split_training import trained

from pesto_cli import api
from pesto_cli.data.plan import Local, Plan
from pesto_cli.diff import WhyWhole
from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.sharding.alternative import Alternative
from pesto_cli.sharding.rules import all_alternatives
from pesto_cli.strategies.plan_mapping import kept_choices

SIZES = (3, 5)


def local_way(op: Case, name: str) -> Alternative:
    (found,) = [way for way in all_alternatives(op.spec) if way.name == f"{name} local"]
    return found


def images(num: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=(num, 4, 4, 2)).astype(np.float32)


def test_each_part_is_normalised_with_its_own_statistics() -> None:
    x, vector = images(sum(SIZES)), np.array([0.5, 2.0], np.float32)
    whole = case("FusedBatchNormV3", x, vector, vector, vector, vector, exponential_avg_factor=0.3)
    way = local_way(whole, "batch")
    assert way.local is Local.BATCH_NORM
    found = run_parts(whole, way, SIZES)
    expected = [
        computed(whole.spec, (rows, vector, vector, vector, vector))
        for rows in np.split(x, [SIZES[0]])
    ]
    for part, outputs in enumerate(expected):
        for output in range(3):  # the images, and the statistics of the part
            np.testing.assert_allclose(found[output][part], outputs[output], rtol=1e-5, atol=1e-5)
    dy = images(sum(SIZES), seed=1)
    reserved = [each.reshape(-1) for each in expected[0][3:]]
    gradient = case("FusedBatchNormGradV3", dy, x, vector, *reserved)
    assert local_way(gradient, "batch").inputs[3:] == (local_way(whole, "batch").outputs[3],) * 3


@pytest.mark.parametrize("op_type", ["StatelessRandomUniform", "StatelessRandomNormalV2"])
def test_parts_draw_other_numbers(op_type: str) -> None:
    if op_type.endswith("V2"):
        key, counter = np.array([7], np.uint64), np.array([1, 2], np.uint64)
        op = case(op_type, known([8, 50]), key, counter, np.array(1, np.int32))
    else:
        op = case(op_type, known([8, 50]), np.array([3, 4]))
    (found,) = run_parts(op, local_way(op, "axis 0"), SIZES)
    assert [part.shape for part in found] == [(3, 50), (5, 50)]
    assert len(np.unique(np.concatenate(found))) == 400
    again = run_parts(op, local_way(op, "axis 0"), SIZES)[0]
    np.testing.assert_array_equal(again[1], found[1])


def build() -> Any:
    """Return the train op and the loss of two convolutions, batch normalisation and dropout."""
    tf = tensorflow()
    tf1 = tf.compat.v1
    images = tf1.placeholder(tf.float32, [16, 8, 8, 16], name="images")

    def convolution(name: str, inputs: Any) -> Any:
        kernel = tf1.get_variable(name, [3, 3, inputs.shape[-1], 128], use_resource=True)
        return tf.nn.conv2d(inputs, kernel, 1, "SAME")

    scale = tf1.get_variable("scale", [128], use_resource=True)
    hidden, mean, _ = tf1.nn.fused_batch_norm(convolution("first", images), scale, scale)
    hidden = tf.nn.experimental.stateless_dropout(tf.nn.relu(hidden), 0.3, seed=[1, 2])
    loss = tf.reduce_mean(tf.square(convolution("second", hidden))) + tf.reduce_sum(mean)
    train = tf1.train.GradientDescentOptimizer(0.1).minimize(loss)
    return {"train_op": train, "loss": loss}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("local")
    (folder / "model.py").write_text("from test_local_plans import build\n")
    graph = api.export(f"{folder / 'model.py'}:build")
    api.save(folder / "g.meta", graph)
    api.save(folder / "g.json", api.profile(graph, "v100x2-nvlink", parts=(2, 4)))
    return folder


def local_types(folder: Path, plan: Plan) -> set[str]:
    graph = api.load(folder / "g.json").problem.graph
    chosen = [name for name, each in plan.choices.items() if each.alternative.endswith(" local")]
    return {graph.types[graph.index_of[name]] for name in chosen}


def test_nothing_is_computed_in_another_way_unless_it_is_allowed(files: Path) -> None:
    plan = api.solve(api.load(files / "g.json"), "data-parallel").solution.plan
    assert plan is not None
    assert not plan.num_local


def test_the_user_allows_it_by_name(
    files: Path, pesto: Pesto, caplog: pytest.LogCaptureFixture
) -> None:
    output = files / "local.json"
    solve = ("solve", files / "g.json", "-o", output, "--strategy", "data-parallel")
    ended = pesto(*solve, "--batch-norm", "local", "--random", "local")
    assert ended.code == 0, ended.err
    placed = api.read_placement(output)
    types = local_types(files, placed.plan)
    assert {"FusedBatchNormV3", "FusedBatchNormGradV3"} <= types
    assert any(each.startswith("Stateless") for each in types)
    assert placed.provenance["parameters"]["batch_norm"] == "local"
    for command in (
        ("simulate", files / "g.json", "--placement", output),
        ("apply", files / "g.meta", output, "-o", files / "placed.meta"),
        ("check", files / "g.meta", output),
    ):
        caplog.clear()
        ended = pesto(*command)
        assert ended.code == 0, ended.err
        assert "compute something else than whole ops" in caplog.text
    devices = dict.fromkeys(placed.devices, "/device:CPU:0")
    losses = trained(api.apply(api.load(files / "g.meta"), placed, devices=devices)).fetched
    flat = np.array([value for step in losses for value in step], dtype=np.float64)
    assert np.isfinite(flat).all()


def test_a_warm_start_keeps_local_parts_only_if_they_are_allowed_again(files: Path) -> None:
    profile = api.load(files / "g.json")
    allowed = api.allow_local(profile, batch_norm=True, random=True)
    placed = api.placement(allowed, api.solve(allowed, "data-parallel"))
    one = api.allow_local(profile, random=True)
    found = [kept_choices(placed, each.problem) for each in (profile, one, allowed)]
    kept = [Plan(each.kept) for each in found]
    assert [plan.num_local for plan in kept] == [0, 1, placed.plan.num_local]
    assert all(plan.choices for plan in kept)
    not_exact = [sum(lost.why is WhyWhole.NOT_EXACT for lost in each.lost) for each in found]
    assert not_exact == [placed.plan.num_local - plan.num_local for plan in kept]


def test_a_plan_that_is_only_partly_local_is_refused(files: Path, pesto: Pesto) -> None:
    rules = files / "rules.toml"
    graph = api.load(files / "g.json").problem.graph
    (name,) = [
        n for n, kind in zip(graph.names, graph.types, strict=True) if kind == "FusedBatchNormV3"
    ]
    rules.write_text(f'[[split]]\nops = "{name}"\nby = "batch local"\nparts = 2\n')
    solve: tuple[Any, ...] = ("solve", files / "g.json", "-o", files / "n.json")
    ended = pesto(*solve, "--constraints", rules)
    assert ended.code == 2
    assert "is not split alike" in ended.err
