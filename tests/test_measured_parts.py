"""Prices of parts that are measured on real devices."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from training_graphs import exported
from two_cpus import NAMES, two_cpus

from pesto_cli import api
from pesto_cli.data.parts import Parts
from pesto_cli.data.specs import Operand, OpSpec
from pesto_cli.files import Profile
from pesto_cli.profile.parts import _ratios, _Times, alone
from pesto_cli.profile.parts.alone import timed_alone
from pesto_cli.profile.parts.measured import measured_alone
from pesto_cli.profile.parts.programs import splits
from pesto_cli.sharding import added_ops

NUMBERS = (2, 4)
VECTOR = Operand((2**16,), "float32")
NEG = OpSpec("Neg", (("T", "float32"),), (VECTOR,), (VECTOR,))
# The shape has other elements than the tensor.
IMPOSSIBLE = OpSpec(
    "Reshape",
    (("T", "float32"), ("Tshape", "int32")),
    (VECTOR, added_ops.number((3,))),
    (Operand((3,), "float32"),),
)
UNKNOWN_TYPE = OpSpec("NoSuchType", (), (), ())


def dense(tf: Any) -> list[Any]:
    """A layer, and an op with a state."""
    data = tf.compat.v1.placeholder(tf.float32, [64, 256], name="data")
    weights = tf.constant(np.full((256, 128), 0.1, np.float32))
    hidden = tf.tanh(tf.matmul(data, weights, name="product"), name="hidden")
    return [hidden * tf.random.uniform([64, 128]), tf.one_hot([0, 1], 3)]


@pytest.fixture(scope="module")
def priced() -> Profile:
    return api.profile_by_run(exported(dense), two_cpus(), steps=2, parts=NUMBERS)


def parts_of(profile: Profile) -> Parts:
    """Return the prices of a profile that has them."""
    assert profile.problem.parts is not None
    return profile.problem.parts


def test_ratios_and_prices_are_positive_and_finite(priced: Profile) -> None:
    parts = parts_of(priced)
    assert parts.times
    for times in parts.times.values():
        assert (times.ratio > 0).all()
        assert np.isfinite(times.ratio).all()
    for (op_type, _), price in parts.added.items():
        assert (price.us >= 0).all()
        assert (price.us_per_byte >= 0).all()
        assert (price.min_us > 0).all() or op_type == "NoOp"
    large = added_ops.combined(Operand((2**20,), "float32"), added_ops.Reduction.SUM, 2)
    small = added_ops.combined(Operand((4,), "float32"), added_ops.Reduction.SUM, 2)
    assert parts.added_us(large)[0] > parts.added_us(small)[0]


def test_the_profile_says_what_was_measured(priced: Profile) -> None:
    origin = priced.provenance["parts"]
    (account,) = origin["measured"]
    assert origin["source"] == "run"
    assert (account["kind"], account["device"], account["failed"]) == ("CPU", NAMES[0], ())
    assert account["num_specs"] > 0
    (note,) = [note for note in priced.provenance["notes"] if "measured alone" in note]
    assert f"{account['num_specs']} ops, parts and ops that a split adds" in note
    assert not any("analytic source" in note for note in priced.provenance["notes"])


def test_measured_prices_are_read_as_they_were_written(tmp_path: Path, priced: Profile) -> None:
    api.write_profile(tmp_path / "p.json", priced)
    read = api.read_profile(tmp_path / "p.json")
    parts, again = parts_of(priced), parts_of(read)
    for key, times in parts.times.items():
        np.testing.assert_array_equal(again.times[key].ratio, times.ratio)
    for name, price in parts.added.items():
        np.testing.assert_array_equal(again.added[name].us_per_byte, price.us_per_byte)
    account, account_read = (each.provenance["parts"]["measured"][0] for each in (priced, read))
    assert account_read == {**account, "failed": []}


def test_an_op_that_fails_alone_does_not_hinder_others() -> None:
    product = OpSpec("Mul", (("T", "float32"),), (VECTOR, VECTOR), (VECTOR,))
    us = two_cpus().call(timed_alone, NAMES[0], [NEG, IMPOSSIBLE, product, UNKNOWN_TYPE])
    assert np.isnan(us).tolist() == [False, True, False, True]
    assert (us[[0, 2]] > 0).all()


def test_failed_ops_are_named_in_the_note() -> None:
    cluster = two_cpus()
    wanted = {"CPU": [NEG, IMPOSSIBLE]}
    times, (account,) = measured_alone(cluster, cluster.machine, wanted, {"CPU": 7})
    assert set(times["CPU"]) == {NEG}
    assert (account.num_specs, account.failed) == (1, ("Reshape",))
    assert "1 failed (Reshape)" in account.text
    assert "those of 7 others" in account.text


def test_in_a_short_time_limit_ops_have_fewer_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, num_steps = two_cpus(), list[int]()
    kept = alone.step_stats.measured
    monkeypatch.setattr(
        alone.step_stats, "measured", lambda traced: num_steps.append(len(traced)) or kept(traced)
    )
    _, (account,) = measured_alone(cluster, cluster.machine, {"CPU": [NEG]}, {"CPU": 0}, 0.0)
    assert num_steps == [alone.FEWEST_STEPS]
    assert "as minima of up to 10 steps" in account.text


def test_ops_are_timed_one_after_another_in_several_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(alone, "BATCH", 2)
    specs = [NEG, added_ops.copied(VECTOR), added_ops.JOIN, NEG, added_ops.copied(VECTOR)]
    us = two_cpus().call(timed_alone, NAMES[1], specs)
    assert us.shape == (5,)
    assert (us > 0).all()
    assert us[2] < us[[0, 3]].min()


def test_a_ratio_is_that_of_measured_times_or_that_of_estimated_ones() -> None:
    (split,) = splits(NEG, NUMBERS)
    half, quarter = (parts[0] for parts in split.parts)
    estimated = {NEG: 8.0, half: 4.0, quarter: 2.0}
    measured = {NEG: 10.0, half: 7.0, quarter: 6.0}
    assert _ratios(split, _Times(["CPU"], {"CPU": estimated}, {"CPU": measured})).tolist() == [
        [0.7, 0.6]
    ]
    del measured[quarter]
    assert _ratios(split, _Times(["CPU"], {"CPU": estimated}, {"CPU": measured})).tolist() == [
        [0.5, 0.25]
    ]
