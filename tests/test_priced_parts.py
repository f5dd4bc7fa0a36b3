"""Prices of parts in profiles: ratios, added ops, coverage, and their section in the file."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Pesto
from training_graphs import convnet, exported

from benchmarks.parts import interpolations, plan_error
from pesto_cli import api
from pesto_cli.data.machine import Device, Machine
from pesto_cli.data.parts import Parts
from pesto_cli.data.specs import Operand, OpSpec
from pesto_cli.errors import BadInputError
from pesto_cli.files import Profile, read_profile, write_profile
from pesto_cli.graphdef.containers import write_meta_graph
from pesto_cli.profile import profile
from pesto_cli.sharding import added_ops
from pesto_cli.sharding.rules import alternatives

NUMBERS = (2, 4)


def dense(tf: Any) -> list[Any]:
    """A large elementwise op, a small one, and one on shapes."""
    data = tf.compat.v1.placeholder(tf.float32, [4096, 4096], name="data")
    large = tf.exp(data, name="large")
    positive = tf.greater(data, 0.0, name="positive")
    small = tf.exp(tf.compat.v1.placeholder(tf.float32, [6, 3]), name="small")
    shape = tf.raw_ops.Shape(input=large, name="shape")
    unsorted = tf.raw_ops.Unique(x=tf.reshape(small, [-1]), name="unique").y
    return [large, small, shape, unsorted, positive]


@pytest.fixture(scope="module")
def priced() -> Profile:
    """The profile of `dense` with prices of parts."""
    return profile(exported(dense), api.read_machine("v100x2-nvlink"), parts=NUMBERS)


def parts_of(profile: Profile) -> Parts:
    """Return the prices of a profile that has them."""
    assert profile.problem.parts is not None
    return profile.problem.parts


def op(profile: Profile, name: str) -> int:
    """Return the index of an op."""
    return profile.problem.graph.names.index(name)


def on_gpu(profile: Profile, values: Any) -> float:
    """Return the entry for the kind GPU."""
    return float(values[profile.problem.kinds.index("GPU")])


def test_a_part_of_a_large_op_takes_its_share_and_of_a_small_one_as_long(priced: Profile) -> None:
    parts = parts_of(priced)
    for number in NUMBERS:
        large = parts.part_ratio(op(priced, "large"), "axis 0", 1 / number)
        assert on_gpu(priced, large) == pytest.approx(1 / number, rel=0.02)
    assert on_gpu(priced, parts.part_ratio(op(priced, "small"), "axis 0", 1 / 2)) == 1


def test_every_way_to_split_an_op_is_priced(priced: Profile) -> None:
    parts = parts_of(priced)
    expected = {
        (index, alternative.name)
        for index, spec in enumerate(parts.specs)
        for alternative in alternatives(spec)
        if alternative.size is not None and alternative.size > 1
    }
    assert set(parts.times) == expected
    assert expected


def test_added_ops_take_a_launch_or_their_bytes_over_the_bandwidth(priced: Profile) -> None:
    parts, kind = parts_of(priced), priced.problem.machine.kinds["GPU"]

    def split(*sizes: int) -> OpSpec:
        return added_ops.split(Operand(sizes, "float32"), 0, (sizes[0] // 2,) * 2)

    assert on_gpu(priced, parts.added_us(split(16))) == kind.launch_us
    num_bytes = 2 * 4 * 2**25
    expected_us = num_bytes / kind.bandwidth_gb_s / 1e3
    assert on_gpu(priced, parts.added_us(split(2**25))) == pytest.approx(expected_us, rel=0.01)
    copies_nothing = split(2**15, 2**10)
    assert on_gpu(priced, parts.added_us(copies_nothing)) == kind.launch_us
    assert parts.added_on_host("Split", "int32")
    assert not parts.added_on_host("Split", "float32")
    assert ("LogicalAnd", "bool") in parts.added
    assert ("Minimum", "bool") not in parts.added
    for spec in (added_ops.JOIN, added_ops.constant(Operand((2**20,), "float32"))):
        assert on_gpu(priced, parts.added_us(spec)) == kind.no_launch_us


def test_added_ops_run_on_the_cpu_too_only_if_the_profile_says_so(priced: Profile) -> None:
    cpu = priced.problem.kinds.index("CPU")
    identity = OpSpec("Identity", (), (Operand((4,), "float32"),), (Operand((4,), "float32"),))
    assert np.isnan(parts_of(priced).added_us(identity)[cpu])
    offloaded = profile(
        exported(dense), api.read_machine("v100x2-nvlink"), parts=NUMBERS, cpu_offload=True
    )
    assert not np.isnan(parts_of(offloaded).added_us(identity)[cpu])


def test_a_slice_copies_a_byte_in_the_time_of_a_split(priced: Profile) -> None:
    rows = Operand((2**20, 17), "float32")
    sliced, split = added_ops.sliced(rows, 0, 5, 2**19), added_ops.split(rows, 0, (5, 2**20 - 5))
    slice_us, split_us = (parts_of(priced).added_us(spec) for spec in (sliced, split))
    np.testing.assert_allclose(split_us, 2 * slice_us, rtol=1e-3)


def test_ops_that_stay_whole_are_listed_with_their_share_of_the_work(priced: Profile) -> None:
    rows = {row["type"]: row for row in priced.provenance["parts"]["whole_ops"]}
    assert rows["Unique"]["reason"] == "open shape"
    assert "Exp" not in rows
    assert sum(row["share"] for row in rows.values()) < 1


def test_constraints_keep_the_prices_and_a_coarse_profile_has_none(priced: Profile) -> None:
    assert priced.problem.constrained(headroom=0.5).parts is priced.problem.parts
    assert api.coarsen(priced, 3).problem.parts is None


def test_prices_survive_a_file(tmp_path: Path, priced: Profile) -> None:
    write_profile(tmp_path / "p.json", priced)
    again, parts = parts_of(read_profile(tmp_path / "p.json")), parts_of(priced)
    assert (again.specs, again.numbers) == (parts.specs, parts.numbers)
    assert again.spec_of.tolist() == parts.spec_of.tolist()
    assert again.times.keys() == parts.times.keys()
    assert again.added.keys() == parts.added.keys()
    for key, times in parts.times.items():
        assert again.times[key].size == times.size
        assert np.array_equal(again.times[key].ratio, times.ratio, equal_nan=True)
    for key, price in parts.added.items():
        assert again.added[key].on_host == price.on_host
        for column in ("min_us", "us", "us_per_byte"):
            found, expected = getattr(again.added[key], column), getattr(price, column)
            assert np.array_equal(found, expected, equal_nan=True)


def test_infinite_values_survive_a_file(tmp_path: Path, priced: Profile) -> None:
    least = Operand((), "float32", float("-inf"))
    spec = OpSpec("Maximum", (("limit", float("inf")),), (least, least), (least,))
    specs = (*parts_of(priced).specs, spec)
    problem = replace(priced.problem, parts=replace(parts_of(priced), specs=specs))
    write_profile(tmp_path / "p.json", replace(priced, problem=problem))
    assert parts_of(read_profile(tmp_path / "p.json")).specs == specs


def test_interpolated_times_are_those_of_parts_priced_directly() -> None:
    for found in interpolations(api.export("zoo:Transformer-tiny")):
        assert found.work_error <= 0.03
        assert found.close >= 0.9


def test_a_plan_has_the_times_of_its_rewritten_graph() -> None:
    found = plan_error(api.export("zoo:Transformer-tiny"))
    assert found.work_error <= 0.03
    assert found.close >= 0.9


def cut(section: dict[str, Any]) -> None:
    section["spec_of"].pop()


def beyond(section: dict[str, Any]) -> None:
    section["spec_of"][0] = 10**6


def operand(section: dict[str, Any]) -> None:
    section["specs"][0]["outputs"] = [10**6]


def value(section: dict[str, Any]) -> None:
    section["specs"][0]["attributes"] = {"T": {"a": 1}}


def numbers(section: dict[str, Any]) -> None:
    section["numbers"] = [4, 2]


def kinds(section: dict[str, Any]) -> None:
    del section["times"][0]["ratio"]["GPU"]


def ratios(section: dict[str, Any]) -> None:
    section["times"][0]["ratio"]["GPU"].pop()


def negative(section: dict[str, Any]) -> None:
    section["times"][0]["ratio"]["GPU"][0] = -1


def dtype(section: dict[str, Any]) -> None:
    section["operands"][0]["dtype"] = "float31"


def outputs(section: dict[str, Any]) -> None:
    spec = section["specs"][section["spec_of"][1]]
    spec["outputs"] = [0, 0, 0]


def targets(section: dict[str, Any]) -> None:
    section["targets"] = [13]


def price(section: dict[str, Any]) -> None:
    section["fallback"]["us"] = {}


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (cut, "parts.spec_of has 12 entries, 13 were expected"),
        (beyond, "parts.spec_of has 1000000; an index below"),
        (operand, "parts.specs.outputs has 1000000; an index below"),
        (value, "a number, a text or a list of them was expected"),
        (numbers, "the numbers of parts are [4, 2]; ascending numbers"),
        (kinds, "times.ratio has the kinds CPU; those of ops.time_us, CPU, GPU, were expected"),
        (ratios, "parts.times.ratio has 1 entries, 2 were expected"),
        (
            negative,
            "parts.times.0 (entry 1): ratio.GPU.0 is -1; a number greater than or equal to 0",
        ),
        (price, "us has the kinds none; those of ops.time_us"),
        (dtype, "parts.operands.dtype has the data type 'float31'; a name of a TensorFlow type"),
        (outputs, "outputs, and its spec in parts.specs, "),
        (targets, "parts.targets has 13; an index below 13 was expected"),
    ],
)
def test_a_damaged_section_is_refused(
    tmp_path: Path, priced: Profile, damage: Callable[[dict[str, Any]], None], words: str
) -> None:
    path = tmp_path / "p.json"
    write_profile(path, priced)
    content = json.loads(path.read_text())
    damage(content["parts"])
    path.write_text(json.dumps(content))
    with pytest.raises(BadInputError) as refused:
        read_profile(path)
    message = str(refused.value)
    assert words in message
    assert message.startswith(f"{path}: ")


def test_tensors_in_another_order_than_their_producers_are_refused(
    tmp_path: Path, priced: Profile
) -> None:
    path = tmp_path / "p.json"
    write_profile(path, priced)
    content = json.loads(path.read_text())
    content["tensors"]["producer"].reverse()
    path.write_text(json.dumps(content))
    with pytest.raises(BadInputError, match=r"tensors\.producer is not ascending"):
        read_profile(path)


def test_prices_of_parts_in_a_coarse_profile_are_refused(tmp_path: Path, priced: Profile) -> None:
    path = tmp_path / "p.json"
    write_profile(path, priced)
    content = json.loads(path.read_text())
    content["ops"]["members"] = [[name] for name in content["ops"]["name"]]
    path.write_text(json.dumps(content))
    with pytest.raises(BadInputError, match="the profile is coarse and has prices of parts"):
        read_profile(path)


def test_the_command_prints_what_stays_whole(pesto: Pesto, tmp_path: Path) -> None:
    graph, out = tmp_path / "g.meta", tmp_path / "p.json"
    write_meta_graph(graph, exported(convnet))
    argv = ("profile", graph, "-m", "v100x2-nvlink", "-o", out, "--parts")
    done = pesto(*argv, "4,2")
    assert done.code == 0, done.err
    assert "ops that stay whole" in done.out
    found = read_profile(out)
    assert parts_of(found).numbers == (2, 4)
    rows = found.provenance["parts"]["whole_ops"]
    assert {"type", "reason", "num_ops", "share"} == set(rows[0])


@pytest.mark.parametrize("parts", ["1", "2,x", "2,2", "", "5000"])
def test_wrong_numbers_of_parts_are_refused(pesto: Pesto, tmp_path: Path, parts: str) -> None:
    argv = ("profile", tmp_path / "g.meta", "-m", "v100x2-nvlink", "-o", tmp_path / "p.json")
    done = pesto(*argv, "--parts", parts)
    assert (done.code, "--parts" in done.err) == (2, True), done.err


def test_a_machine_without_descriptions_has_stand_ins_or_is_refused(tmp_path: Path) -> None:
    meta = exported(dense)
    graph = profile(meta, api.read_machine("v100x2-nvlink")).problem.graph

    def measured(kind: str) -> Profile:
        rows = [f"{name},{kind},100" for name in graph.names]
        (tmp_path / "t.csv").write_text("\n".join(["name,kind,us", *rows]))
        machine = Machine((Device("CPU:0", kind, 2**34),), ())
        return profile(meta, machine, source=f"csv:{tmp_path / 't.csv'}", parts=NUMBERS)

    found = measured("CPU")
    ratio = parts_of(found).part_ratio(op(found, "large"), "axis 0", 1 / 2)
    assert ratio[0] == pytest.approx(1 / 2, rel=0.02)
    assert any("does not describe the kind 'CPU'" in note for note in found.provenance["notes"])
    with pytest.raises(BadInputError, match=r"of kind 'my-chip', which .*without --parts"):
        measured("my-chip")
