"""Placements with a plan, in every command that takes a placement."""

import json
import re
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Pesto
from hypothesis import given, settings
from hypothesis import strategies as st
from report_pages import Read
from split_model import Files, dense, dense_with, written
from training_graphs import exported

from pesto_cli import api
from pesto_cli.data.constraints import Constraints
from pesto_cli.data.load import Load
from pesto_cli.data.machine import Machine
from pesto_cli.data.plan import Choice, Plan
from pesto_cli.data.result import SolveStatus
from pesto_cli.data.split_start import SplitStart
from pesto_cli.evaluation.simulator import replay
from pesto_cli.evaluation.violations import violations
from pesto_cli.files import PlacementFile, Profile, read_placement, write_placement
from pesto_cli.files.placement import fingerprints
from pesto_cli.files.plan import PlacedParts
from pesto_cli.files.split_placement import split_by
from pesto_cli.graphdef.containers import write_meta_graph
from pesto_cli.report.splits import change_text
from pesto_cli.report.tables import size_text
from pesto_cli.report.times import time_text
from pesto_cli.sharding.problems import rewritten


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
    after = {"alternative": "rows", "sizes": [4, 4]}
    assert {"op": "product", "before": None, "after": after} in found["split"]
    # Parts and added ops are no other ops of the graph.
    assert (found["only_in_first"], found["only_in_second"]) == ([], [])
    assert found["after"]["step_us"] == read_placement(files.placement).predicted["step_us"]
    shown = pesto("diff", *pair).out
    assert "17 ops are split in only one of them, or in different ways" in shown
    assert re.search(r"whole +2 parts +\d+", shown)
    same = json.loads(pesto("diff", files.placement, files.placement, "--json").out)
    assert (same["split"], same["moved"], same["only_in_first"]) == ([], [], [])


@pytest.mark.parametrize(
    ("choice", "texts"),
    [
        (Choice("rows", (2, 2, 2, 2)), ("2 parts", "4 parts")),
        (Choice("columns", (6, 6)), ("2 parts by rows", "2 parts by columns")),
        (Choice("rows", (2, 6)), ("2 parts of 4, 4", "2 parts of 2, 6")),
    ],
)
def test_a_difference_says_how_an_op_is_split_in_another_way(
    choice: Choice, texts: tuple[str, str], pesto: Pesto, files: Files, tmp_path: Path
) -> None:
    placed = read_placement(files.placement)
    plan = Plan({**placed.plan.choices, "product": choice})
    write_placement(tmp_path / "other.json", replace(placed, plan=plan))
    shown = pesto("diff", files.placement, tmp_path / "other.json").out
    assert re.search(r"\* +" + f"{texts[0]} +{texts[1]} +1", shown), shown


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """The same model with another activation: two of its ops that were split have changed."""
    folder = tmp_path_factory.mktemp("changed")
    meta = exported(lambda tf: dense_with(tf, tf.nn.elu))
    write_meta_graph(folder / "g.meta", meta)
    api.save(folder / "g.profile.json", api.profile(meta, "v100x2-nvlink", parts=(2, 4)))
    api.save(folder / "plain.profile.json", api.profile(meta, "v100x2-nvlink"))
    paths = [folder / name for name in ("g.meta", "g.profile.json", "plain.profile.json")]
    return Files(*paths, *[folder] * 3)


def lost(files: Files, changed: Files) -> set[str]:
    """The ops that were split and have another name, type or inputs in the changed graph."""
    placed, graph = read_placement(files.placement), api.load(changed.profile).problem.graph
    before = dict(zip(placed.graph_ops, placed.fingerprint, strict=True))
    now = dict(zip(graph.names, fingerprints(graph), strict=True))
    return {name for name in placed.plan.choices if now.get(name) != before[name]}


def test_a_check_counts_the_splits_that_a_warm_start_can_keep(
    pesto: Pesto, files: Files, changed: Files
) -> None:
    options = (changed.graph, files.placement, "--profile", changed.profile)
    done = pesto("check", *options, "--json")
    found = json.loads(done.out)
    assert (done.code, found["status"]) == (1, "stale")
    placed, names = read_placement(files.placement), lost(files, changed)
    assert 0 < len(names) < 17
    assert found["split"]["num_ops"] == 17
    split = api.carry_over(api.load(changed.profile), placed).split
    assert split is not None
    whole = placed.plan.choices.keys() - split.start.plan.choices.keys()
    assert set(found["split"]["lost"]) == whole > names
    # An op that takes the open sums of a changed op is unchanged, but starts whole.
    why = dict.fromkeys(whole, "an op split with it") | dict.fromkeys(names, "changed")
    why |= dict.fromkeys(why.keys() & found["graph"]["gone"], "gone")
    assert found["split"]["why_lost"] == why
    # The prediction is that of the split step, as far as its ops are unchanged.
    whole_us = api.solve(api.load(files.plain), "single").makespan_us
    assert found["now"]["step_us"] not in (None, whole_us)
    shown = pesto("check", *options).out
    kept = f"of the 17 ops that the placement splits, {17 - len(whole)}"
    assert f"{kept} start in the same parts in a warm start and {len(whole)} start whole" in shown
    assert "Split ops that start whole" in shown
    assert re.search(r"2 parts +changed +\d", shown)
    for profile in ((), ("--profile", changed.plain)):  # without prices of parts
        shown = pesto("check", changed.graph, files.placement, *profile).out
        assert f"{kept} can start in the same parts in a warm start, if the profile" in shown
    fresh = json.loads(pesto("check", files.graph, files.placement, "--json").out)
    assert fresh["split"] == {"num_ops": 17, "lost": [], "why_lost": {}}


@pytest.mark.parametrize("is_priced", [True, False])
def test_a_check_counts_all_ops_of_a_variable_as_a_warm_start_does(
    is_priced: bool, pesto: Pesto, files: Files, tmp_path: Path
) -> None:
    profile = api.load(files.profile)
    mirrored = api.solve(profile, "data-parallel", variables="mirrored")
    placement, priced = tmp_path / "mirrored.json", tmp_path / "more.profile.json"
    api.save(placement, api.placement(profile, mirrored))
    placed = api.load(placement)
    meta = exported(lambda tf: dense_with(tf, tf.nn.relu, num_classes=8))
    write_meta_graph(tmp_path / "more.meta", meta)
    api.save(priced, api.profile(meta, "v100x2-nvlink", parts=(2, 4)))
    options = ("--profile", priced) if is_priced else ()
    found = json.loads(pesto("check", tmp_path / "more.meta", placement, *options, "--json").out)
    why = found["split"]["why_lost"]
    # The handle has not changed, but the update takes it.
    assert why["second"] == why["second/Momentum"] == "an op of its variable"
    assert why["train/update_second/ResourceApplyMomentum"] == "changed"
    assert why["logits"] == "changed"
    split = api.carry_over(api.load(priced), placed).split
    assert split is not None
    assert why.keys() == placed.plan.choices.keys() - split.start.plan.choices.keys()
    said = warm_started(pesto, priced, placement, tmp_path / "p.json")
    num_kept = len(placed.plan.choices) - len(why)
    assert f"{num_kept} start in the same parts and {len(why)} start whole" in said


def test_a_check_counts_parts_without_a_price_as_whole(files: Files, changed: Files) -> None:
    placed = read_placement(files.placement)
    plan = Plan(
        {
            **placed.plan.choices,
            "product": Choice("rows", (1, 7)),
            "old": placed.plan.choices["product"],
        }
    )
    placed = replace(placed, plan=plan)
    meta, profile = api.load(changed.graph), api.load(changed.profile)
    found = api.check(meta, placed, profile)
    why = {each.op: str(each.why) for each in found.lost_splits}
    assert (why["product"], why["old"], why["hidden"]) == ("no price", "gone", "changed")
    assert api.check(meta, placed).lost_splits == tuple(
        each for each in found.lost_splits if each.op != "product"
    )


def explained(pesto: Pesto, files: Files, op: str) -> Any:
    done = pesto("explain", files.profile, files.placement, op, "--json")
    assert done.code == 0, done.err
    return json.loads(done.out)


def test_an_op_that_is_split_is_explained_by_its_parts(pesto: Pesto, files: Files) -> None:
    assert pesto("explain", files.profile, files.placement).code == 0
    found = explained(pesto, files, "product")
    assert (found["alternative"], found["sizes"]) == ("rows", [4, 4])
    parts = {part["op"]: part["device"] for part in found["parts"]}
    assert parts == {"product.part_0": "GPU:0", "product.part_1": "GPU:1"}
    assert [each["op"] for each in found["for_inputs"]] == ["rows.split_0_2"]
    shown = pesto("explain", files.profile, files.placement, "product").out
    assert "is split into 2 parts by 'rows', of sizes 4, 4" in shown
    assert "Added for its inputs" in shown


def test_an_explanation_has_the_prices_of_other_numbers_of_parts(
    pesto: Pesto, files: Files
) -> None:
    found, problem = explained(pesto, files, "product"), api.load(files.profile).problem
    op = problem.graph.index_of["product"]
    whole, now, more = found["prices"]
    assert [price["num_parts"] for price in found["prices"]] == [1, 2, 4]
    assert [price["is_now"] for price in found["prices"]] == [False, True, False]
    assert whole["part_us"] == whole["work_us"] == problem.duration_us[op, 1]
    kind = problem.kinds.index(problem.machine.devices[1].kind)
    ratio = problem.parts.part_ratio(op, "rows", 1 / 4)[kind]
    assert more["part_us"] == pytest.approx(problem.duration_us[op, 1] * ratio)
    assert more["work_us"] == pytest.approx(4 * more["part_us"])
    took_us = found["parts"][0]["end_us"] - found["parts"][0]["start_us"]
    assert now["part_us"] == pytest.approx(took_us)


def test_partial_gradients_are_added_in_the_explanation_of_their_op(
    pesto: Pesto, files: Files
) -> None:
    plan, names = api.load(files.placement).plan, api.load(files.placement).names
    (sum_of,) = {name for name in plan.choices if name in names and "product_grad" in name}
    found = explained(pesto, files, sum_of)
    assert [(each["op"], each["type"]) for each in found["sums"]] == [(sum_of, "AddN")]
    assert found["conversions"] == []
    # The op before it gives the partial gradients, and this one passes them on.
    product = explained(pesto, files, sum_of.replace("tuple/control_dependency_1", "MatMul_1"))
    assert product["name"] != sum_of
    assert product["sums"] == found["sums"]


def test_parts_and_added_ops_name_the_op_to_which_they_belong(pesto: Pesto, files: Files) -> None:
    one = explained(pesto, files, "product.part_1")
    split = {"op": "product", "made": "part", "part": 1, "num_parts": 2, "alternative": "rows"}
    assert one["split"] == split
    shown = pesto("explain", files.profile, files.placement, "product.part_1").out
    assert "is part 1 of product, which is split into 2 parts" in shown
    assert "GPU:1 (now)" in shown
    added = explained(pesto, files, "rows.split_0_2")
    cut = {"made": "conversion", "part": None, "num_parts": 1, "alternative": None}
    assert added["split"] == {"op": "rows", **cut}
    assert explained(pesto, files, "first")["split"] is None
    # A pattern that matches the op matches what it became.
    listed = {each["op"] for each in explained(pesto, files, "*uct")}
    assert listed == {"product.part_0", "product.part_1"}


def test_a_report_shows_parts_as_ops_of_one_family(
    pesto: Pesto, files: Files, tmp_path: Path
) -> None:
    path = tmp_path / "page.html"
    done = pesto("report", files.profile, files.placement, files.whole, "-o", path)
    assert (done.code, "Warning" in done.err) == (0, False)
    page = Read(path.read_text())
    assert "<dd>17 of 33</dd><dd>into at most 2 parts: " in page.page
    assert "Split: 17 of 33 ops into at most 2 parts" in page.tables
    split, whole = page.packed()["graphs"]
    words, names = page.packed()["made"], split["names"]
    made = dict(zip(names, (words[each] for each in split["made"]), strict=True))
    family = dict(zip(names, (whole["names"][each] for each in split["family"]), strict=True))
    assert split["whole"]["names"] == whole["names"]
    assert (made["product.part_1"], family["product.part_1"]) == ("part", "product")
    assert (made["rows.split_0_2"], family["rows.split_0_2"]) == ("conversion", "rows")
    assert made["first"] == "whole"
    sums = [name for name, word in made.items() if word == "sum"]
    assert sums
    assert {split["types"][names.index(name)] for name in sums} == {"AddN"}
    rows = {row[0]: row[1] for row in page.tables["Ops of the split step"][1:]}
    assert rows["added: sums of parts"] == str(len(sums))
    assert sum(map(int, rows.values())) == len(names)
    legend = json.dumps(page.packed()["placements"][0]["over_time"])
    assert "added: sums of parts" in legend
    assert "added: cuts, joins, copies" in legend
    assert "added: " not in json.dumps(page.packed()["placements"][1])


def test_a_placement_knows_the_best_step_with_whole_ops(
    pesto: Pesto, files: Files, tmp_path: Path
) -> None:
    profile = api.load(files.profile)
    result = api.solve(profile, "data-parallel")
    assert api.placement(profile, result).whole_load is None
    whole = api.solve(api.limit_parts(profile, 1), "single").schedule
    searched = replace(result, solution=replace(result.solution, whole=whole))
    api.save(tmp_path / "p.json", api.placement(profile, searched))
    placed = api.load(tmp_path / "p.json")
    assert placed.whole_load == Load.of(profile.problem, whole)
    page = Read(api.report(profile, {"split": placed}))
    (table,) = (rows for title, rows in page.tables.items() if title.startswith("Split: "))
    assert [row[0] for row in table[1:]] == ["split", "whole ops"]
    done = pesto("simulate", files.profile, "--placement", tmp_path / "p.json", "--json")
    assert json.loads(done.out)["split"]["whole"] == asdict(placed.whole_load)
    ratio = whole.makespan_us / result.makespan_us
    assert f"<dt>compared with whole ops</dt><dd>{ratio:.2f} ×</dd>" in page.page


SPLITTING = ("data-parallel", "ev-ar", "tensor-parallel", "pipeline", "os-dpos")


@pytest.mark.parametrize("strategy", SPLITTING)
def test_a_report_compares_a_split_step_with_the_best_of_its_whole_ones(
    files: Files, strategy: str
) -> None:
    profile = api.load(files.profile)
    result = api.solve(profile, strategy, time_limit_s=1, deterministic=True)
    placed = replace(api.placement(profile, result), predicted={})
    page = Read(api.report(profile, {"split": placed}))
    best = min(api.compare(profile, ["single", "expert"]), key=lambda each: each.makespan_us)
    split, whole = (Load.of(each.problem, each.schedule) for each in (result, best))
    saved_us = whole.makespan_us - split.makespan_us
    for text in (
        f"work {time_text(split.work_us)} ({split.work_us / whole.work_us - 1:+,.0%}), "
        f"sent {size_text(split.sent_bytes)} ({split.sent_bytes / whole.sent_bytes - 1:+,.0%}), "
        f"peak memory {size_text(split.peak_bytes)} "
        f"({split.peak_bytes / whole.peak_bytes - 1:+,.0%}), "
        f"compared with whole ops by {best.strategy}",
        f"<dt>compared with whole ops</dt><dd>{whole.makespan_us / split.makespan_us:.2f} ×</dd>"
        f"<dd>as fast as {best.strategy}, the best step with whole ops on this page, which takes "
        f"{time_text(whole.makespan_us)}: splitting {'saves' if saved_us >= 0 else 'costs'} "
        f"{time_text(abs(saved_us))}</dd>",
    ):
        assert text in page.page
    assert f"<dt>compared with {best.strategy}</dt>" not in page.page
    (table,) = (rows for title, rows in page.tables.items() if title.startswith("Split: "))
    assert [row[0] for row in table[1:]] == ["split", f"whole ops by {best.strategy}"]


def test_a_report_compares_with_whole_ops_that_fit_or_says_that_none_do(files: Files) -> None:
    profile = api.load(files.profile)
    placed = api.placement(profile, api.solve(profile, "data-parallel"))
    page = Read(api.report(profile, {"split": placed, "mine": api.load(files.whole)}))
    assert "as fast as mine (single), the best step with whole ops on this page" in page.page
    # Each device has memory for its part of the split step only.
    machine = profile.problem.machine
    tight = replace(machine, devices=[replace(d, memory_bytes=2000) for d in machine.devices])
    profile = replace(profile, problem=replace(profile.problem, machine=tight))
    assert api.simulate(profile, placed).status is SolveStatus.FEASIBLE
    page = Read(api.report(profile, {"split": placed}))
    text = "on this page, which takes [^<]* and does not fit into memory: splitting (saves|costs)"
    assert re.search(text, page.page)


def test_the_change_of_a_figure_that_was_zero_is_not_a_share() -> None:
    whole, split = Load(9.0, 3, 9.0, 0, 0), Load(5.0, 6, 9.0, 2048, 0)
    assert (
        change_text(split, whole) == "work 9.000 us (+0%), sent 2.00 KiB (from 0), peak memory 0 B"
    )


def warm_started(pesto: Pesto, profile: Path, start: Path, out: Path, *options: object) -> str:
    quick = ("--time-limit", 0.1, "--deterministic", "-o", out)
    done = pesto("solve", profile, "--warm-start", start, *quick, *options)
    assert done.code == 0, done.err
    return done.err


def test_a_search_starts_from_the_earlier_split_step(
    pesto: Pesto, files: Files, tmp_path: Path
) -> None:
    said = warm_started(pesto, files.profile, files.placement, tmp_path / "p.json")
    assert "all 17 ops that the placement splits start in the same parts" in said
    num_ops = len(read_placement(files.placement).names)
    assert f"all {num_ops} ops keep their device" in said
    carried = api.carry_over(api.load(files.profile), api.load(files.placement))
    assert carried.split is not None
    before = api.load(files.placement).predicted["makespan_us"]
    assert replay(carried.split.problem, carried.split.start.placement).makespan_us <= before


def test_a_search_keeps_the_parts_of_unchanged_ops(
    pesto: Pesto, files: Files, changed: Files, tmp_path: Path
) -> None:
    said = warm_started(pesto, changed.profile, files.placement, tmp_path / "p.json")
    profile, placed = api.load(changed.profile), api.load(files.placement)
    found = api.carry_over(profile, placed).split
    assert found is not None
    assert found.start.plan.choices.items() <= placed.plan.choices.items()
    assert not found.start.plan.choices.keys() & lost(files, changed)
    assert found.num_kept >= 10
    assert f"of the 17 ops that the placement splits, {found.num_kept} start in the same" in said
    split = rewritten(profile.problem, found.start.plan).problem
    assert violations(split, replay(split, found.start.placement)) == []


def test_a_split_start_is_at_least_as_good_as_where_it_started(files: Files) -> None:
    profile, placed = api.load(files.profile), api.load(files.placement)
    slow = replace(  # transfers take so long that no other start splits
        profile, problem=replace(profile.problem, machine=slow_links(profile.problem.machine))
    )
    found = api.carry_over(slow, placed)
    result = api.solve(
        slow,
        warm_start=found.placement,
        split_start=found.split_start,
        time_limit_s=0.5,
        deterministic=True,
    )
    assert result.makespan_us <= api.simulate(slow, placed).makespan_us


def test_a_search_that_is_stopped_at_once_keeps_the_earlier_split_step(files: Files) -> None:
    profile = with_ideal_parts(api.load(files.profile))
    result = api.solve(profile, "data-parallel")
    stop = threading.Event()
    stop.set()
    start = SplitStart(result.solution.plan, result.schedule.placement)
    context = api.Context(api.Limits(stop=stop), split_start=start)
    stopped = api.solve(profile, "pesto", context)
    assert stopped.makespan_us <= result.makespan_us
    assert stopped.solution.plan == result.solution.plan


@pytest.fixture(scope="module")
def mirrored(files: Files) -> PlacementFile:
    """A placement in which each device has a copy of the variables."""
    profile = api.load(files.profile)
    return api.placement(profile, api.solve(profile, "ev-ar"))


def test_copies_of_variables_are_shown_as_parts(files: Files, mirrored: PlacementFile) -> None:
    profile = api.load(files.profile)
    found = api.explain(profile, mirrored, "first")
    assert [part.op for part in found.parts] == ["first", "first.part_1"]
    assert found.alternative == "mirrored"
    page = Read(api.report(profile, {"mirrored": mirrored}))
    (graph,) = page.packed()["graphs"]
    words = page.packed()["made"]
    assert words[graph["made"][graph["names"].index("first")]] == "part"


def test_copies_of_variables_are_called_copies(
    pesto: Pesto, files: Files, mirrored: PlacementFile, tmp_path: Path
) -> None:
    placement = tmp_path / "mirrored.json"
    write_placement(placement, mirrored)
    shown = pesto("explain", files.profile, placement, "first").out
    assert "is mirrored: it has 2 copies" in shown
    assert "its copies run on GPU:0, GPU:1" in shown
    assert "Its time by the number of copies" in shown
    shown = pesto("explain", files.profile, placement, "first.part_1").out
    assert "is copy 1 of first, which has 2 copies" in shown
    rows = pesto("diff", files.placement, placement).out.splitlines()
    assert ["whole", "2", "copies"] in [row.split()[1:4] for row in rows]


def test_copies_of_variables_are_kept_if_all_ops_on_the_variable_are(
    files: Files, mirrored: PlacementFile
) -> None:
    profile = api.load(files.profile)
    everything = api.carry_over(profile, mirrored).split
    assert everything is not None
    assert everything.num_kept == len(mirrored.plan.choices)
    rules = Constraints(whole=["train/update_first/*"])
    some = api.carry_over(api.constrain(profile, rules), mirrored).split
    assert some is not None
    assert "second" in some.start.plan.choices
    assert not {"first", "first/Momentum"} & some.start.plan.choices.keys()
    assert violations(some.problem, replay(some.problem, some.start.placement)) == []


def with_ideal_parts(profile: Profile) -> Profile:
    """Return the profile with ops that take 1000 times as long, and a half takes half the time."""
    problem, parts = profile.problem, profile.problem.parts
    assert parts is not None
    shares = 1 / np.array(parts.numbers, dtype=np.float64)
    times = {
        key: replace(each, ratio=np.broadcast_to(shares, each.ratio.shape))
        for key, each in parts.times.items()
    }
    parts, time_us = replace(parts, times=times), 1000 * problem.time_us
    return replace(profile, problem=replace(problem, parts=parts, time_us=time_us))


def slow_links(machine: Machine) -> Machine:
    links = [replace(each, comm=replace(each.comm, latency_us=1e3)) for each in machine.links]
    return replace(machine, links=tuple(links))


@pytest.mark.parametrize(
    ("profile", "options", "reason"),
    [
        ("plain", (), "the profile has no prices of parts"),
        ("profile", ("--max-parts", 1), "or ops are to stay whole"),
    ],
)
def test_a_search_without_prices_starts_with_whole_ops(
    profile: str,
    options: tuple[object, ...],
    reason: str,
    pesto: Pesto,
    files: Files,
    tmp_path: Path,
) -> None:
    path = getattr(files, profile)
    said = warm_started(pesto, path, files.placement, tmp_path / "p.json", *options)
    assert "the 17 ops that the placement splits start whole" in said
    assert reason in said
    assert "of 33 ops, 28 keep their device" in said


def test_parts_that_the_constraints_do_not_allow_are_whole_in_the_start(
    pesto: Pesto, files: Files, tmp_path: Path
) -> None:
    rules, out = tmp_path / "rules.toml", tmp_path / "p.json"
    rules.write_text('[[whole]]\nops = "product"\n')
    said = warm_started(pesto, files.profile, files.placement, out, "--constraints", rules)
    assert "of the 17 ops that the placement splits, 16 start in the same parts" in said
    assert "product" not in read_placement(out).plan.choices


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


def seeded(tf: Any) -> Sequence[Any]:
    """The model with the same initial values in each session."""
    tf.compat.v1.set_random_seed(3)
    return dense(tf)


def test_real_steps_have_the_losses_of_whole_ops() -> None:
    meta = exported(seeded)
    with api.connected("local-workers:2") as cluster:
        profile = api.profile_by_run(meta, cluster, steps=3, parts=(2,))
        placed = api.placement(profile, api.solve(profile, "data-parallel"))
        whole, split = api.run_steps(meta, cluster, [None, placed], steps=4)
    assert len(set(whole.times.losses)) > 1
    assert split.times.losses == pytest.approx(whole.times.losses, rel=1e-5)


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
    st.just([]) | st.lists(st.integers(0, 3), min_size=4, max_size=4),
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


def test_a_placement_with_more_parts_than_hosts_is_read_again(files: Files, tmp_path: Path) -> None:
    placed, path = read_placement(files.placement), tmp_path / "p.json"
    four = {**placed.plan.choices, "product": Choice("rows", (2, 2, 2, 2))}
    write_placement(path, replace(placed, plan=Plan(four, hosts=(0, 1))))
    assert read_placement(path).plan == Plan(four, hosts=(0, 1, 0, 0))


def test_the_columns_of_parts_are_those_of_the_plan(files: Files) -> None:
    placed, profile = read_placement(files.placement), api.load(files.profile)
    split = split_by(placed, profile.problem)
    assert placed.match(split.problem).device.tolist() == placed.device
