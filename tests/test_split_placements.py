"""Placements with a plan, in every command that takes a placement."""

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from conftest import Pesto, Write
from hypothesis import given, settings
from hypothesis import strategies as st
from split_model import Files, written

from pesto_cli import api
from pesto_cli.apply import place_function, placed_program
from pesto_cli.data.plan import Choice, Plan
from pesto_cli.errors import BadInputError
from pesto_cli.files import PlacementFile, read_placement, write_placement
from pesto_cli.files.plan import PlacedParts
from pesto_cli.files.split_placement import split_by


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return written(tmp_path_factory.mktemp("split"))


def test_the_placement_is_of_the_graph_before_it_was_split(files: Files) -> None:
    placed, whole = read_placement(files.placement), read_placement(files.whole)
    assert placed.graph_hash == whole.graph_hash
    assert placed.fingerprint == whole.fingerprint
    assert [*placed.graph_ops] == whole.names
    assert "(17 ops split)" in repr(placed)


def test_it_is_simulated_as_it_was_solved(pesto: Pesto, files: Files, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    options = ("--placement", files.placement, "--trace", trace, "--random-orders", 2, "--json")
    record = json.loads(pesto("simulate", files.profile, *options).out)
    predicted = read_placement(files.placement).predicted
    assert record["makespan_us"] == predicted["makespan_us"]
    assert record["lower_bound_us"] == predicted["lower_bound_us"]
    assert record["bound_holds_for"] == "all plans"
    assert record["split"]["num_split_ops"] == 17
    assert min(record["random_orders"]["makespan_us"]) > 0
    assert "product.part_1" in trace.read_text()


def test_samples_of_parts_vary_as_their_ops(files: Files) -> None:
    profile, placed = api.load(files.profile), api.load(files.placement)
    num_ops = profile.problem.num_ops
    table = {"GPU": np.full(num_ops, 10.0)}
    spread = type("Spread", (), {"mean_us": table, "std_us": {"GPU": np.full(num_ops, 1.0)}})
    object.__setattr__(profile, "spread", spread)
    sampled_us = api.sampled_makespans_us(profile, placed, count=5)
    assert len(set(sampled_us.tolist())) == 5


def test_it_is_fresh_for_its_graph(pesto: Pesto, files: Files) -> None:
    options = ("--profile", files.profile, "--max-regression", "1%", "--json")
    done = pesto("check", files.graph, files.placement, *options)
    assert (done.code, json.loads(done.out)["status"]) == (0, "fresh")
    now = json.loads(done.out)["now"]
    assert now["step_us"] == read_placement(files.placement).predicted["step_us"]


def test_a_difference_counts_the_ops_that_are_split(pesto: Pesto, files: Files) -> None:
    pair = (files.whole, files.placement, "--profile", files.profile)
    found = json.loads(pesto("diff", *pair, "--json").out)
    assert len(found["split"]) == 17
    assert "product" in found["split"]
    assert "product.part_0" in found["only_in_second"]
    assert "product" in found["only_in_first"]
    assert found["after"]["step_us"] == read_placement(files.placement).predicted["step_us"]
    shown = pesto("diff", *pair).out
    assert "17 ops are split in only one of them, or in different ways" in shown
    same = json.loads(pesto("diff", files.placement, files.placement, "--json").out)
    assert (same["split"], same["moved"], same["only_in_first"]) == ([], [], [])


def test_parts_are_explained(pesto: Pesto, files: Files) -> None:
    assert pesto("explain", files.profile, files.placement).code == 0
    listed = pesto("explain", files.profile, files.placement, "product")
    assert "product.part_0" in listed.out
    one = pesto("explain", files.profile, files.placement, "product.part_1")
    assert (one.code, "GPU:1 (now)" in one.out) == (0, True)


def test_a_report_shows_parts(pesto: Pesto, files: Files, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = pesto("report", files.profile, files.placement, files.whole, "-o", page)
    assert (done.code, page.exists(), "Warning" in done.err) == (0, True, False)


def test_a_search_starts_with_the_whole_ops(pesto: Pesto, files: Files, tmp_path: Path) -> None:
    options = ("--warm-start", files.placement, "--time-limit", 1, "-o", tmp_path / "p.json")
    done = pesto("solve", files.profile, *options)
    assert done.code == 0
    assert "the placement splits 17 ops, but a search starts with whole ops" in done.err
    assert "of 33 ops, 28 keep their device" in done.err


def test_real_steps_follow_it(pesto: Pesto, files: Files, tmp_path: Path) -> None:
    machine = ("-m", "local-workers:2", "--steps", 3, "--warm-up", 1)
    profile, placement = tmp_path / "g.profile.json", tmp_path / "p.json"
    done = pesto("profile", files.graph, *machine, "--source", "run", "--parts", 2, "-o", profile)
    assert done.code == 0, done.err
    done = pesto("solve", profile, "--strategy", "data-parallel", "-o", placement)
    assert done.code == 0, done.err
    done = pesto("run", files.graph, *machine, "--placement", placement, "--verify")
    assert done.code == 0, done.err
    assert "ops in their order" in done.err


def test_running_programs_take_whole_ops_only(pesto: Pesto, files: Files, script: Write) -> None:
    words = "splits 17 ops into parts, which a running program does not support"
    placed = api.load(files.placement)
    with pytest.raises(BadInputError, match=words), placed_program(placed, what="the program"):
        pass
    concrete = type("Concrete", (), {"graph": type("Graph", (), {"name": "train"})})
    with pytest.raises(BadInputError, match=words):
        place_function(concrete, placed)
    program = script("print('started')")
    refused = pesto("run", program, "-m", "local-workers:2", "--placement", files.placement)
    assert (refused.code, words in refused.err, refused.out) == (2, True, "")


def test_profiles_that_cannot_price_it_are_refused(
    pesto: Pesto, files: Files, tmp_path: Path
) -> None:
    for profile, words in (
        (files.plain, "the profile has no prices of parts"),
        (files.coarse, "the placement splits ops into parts, and the profile is coarse"),
    ):
        for command in (
            ("simulate", profile, "--placement", files.placement, "--trace", tmp_path / "t.json"),
            ("explain", profile, files.placement),
            ("report", profile, files.placement, "-o", tmp_path / "r.html"),
        ):
            refused = pesto(*command)
            assert (refused.code, words in refused.err) == (2, True), refused.err
            assert not [*tmp_path.iterdir()]


texts = st.text("abc/_é.", min_size=1, max_size=4)
choices = st.builds(
    Choice, texts, st.lists(st.integers(0, 2**31 - 1), max_size=4).map(lambda each: tuple(each))
)


@settings(max_examples=50, deadline=None, database=None, derandomize=True)
@given(
    st.dictionaries(texts, choices, min_size=1, max_size=5),
    st.lists(st.integers(0, 9), max_size=4),
    st.data(),
)
def test_any_plan_is_read_as_it_was_written(
    plan: dict[str, Choice], hosts: list[int], data: st.DataObject
) -> None:
    names = data.draw(st.lists(texts, unique=True, max_size=6))
    rows = st.lists(st.integers(-1, len(plan) - 1), min_size=len(names), max_size=len(names))
    parts = PlacedParts([*plan], data.draw(rows), data.draw(rows))
    placed = PlacementFile(
        devices=["GPU:0"],
        names=names,
        device=[0] * len(names),
        rank=[*range(len(names))],
        fingerprint=[],
        provenance={},
        predicted={},
        plan=Plan(plan, tuple(hosts)),
        parts=parts,
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "p.json"
        write_placement(path, placed)
        read = read_placement(path)
        assert (read.plan, read.parts) == (placed.plan, placed.parts)
        first = path.read_bytes()
        write_placement(path, read)
        assert path.read_bytes() == first


def test_the_columns_of_parts_are_those_of_the_plan(files: Files) -> None:
    placed, profile = read_placement(files.placement), api.load(files.profile)
    split = split_by(placed, profile.problem)
    assert placed.match(split.problem).device.tolist() == placed.device
