"""The page of `pesto report`: its contents, and that it loads nothing else."""

import csv
import io
import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Pesto, on_gpus, two_gpus
from random_problems import random_placement, random_problem
from report_pages import (
    AWKWARD,
    Read,
    awkward_profile,
    layered_graph,
    page_of,
    placed_on,
    write_files,
)

from pesto_cli import api
from pesto_cli.coarsen import coarsen
from pesto_cli.data.graph import OpGraph
from pesto_cli.data.presets import PRESETS
from pesto_cli.data.problem import Problem
from pesto_cli.data.result import Result, SolveStatus
from pesto_cli.data.solution import Solution
from pesto_cli.evaluation.critical_path import schedule_critical_path
from pesto_cli.evaluation.memory import held_over_time
from pesto_cli.evaluation.simulator import list_schedule, upward_rank
from pesto_cli.files import Profile
from pesto_cli.printable import printable
from pesto_cli.report.page.page import page_data, report_page
from pesto_cli.report.page.shown import Coarse, Shown
from pesto_cli.report.pictures.layers import layers_chart
from pesto_cli.report.pictures.memory import memory_chart
from pesto_cli.report.pictures.spans import MOST_BARS, Bar, Drawn, few_enough
from pesto_cli.report.pictures.timeline import timeline_chart
from pesto_cli.report.tables import size_text
from pesto_cli.report.times import time_text
from pesto_cli.report.utilisation import device_use, link_use, step_parts

BOTH, ONE = [1, 1, 2, 1, 1], [1, 1, 1, 1, 1]


@pytest.fixture(scope="module")
def page() -> Read:
    return page_of(awkward_profile(), both=BOTH, one=ONE)


def test_a_step_without_ops_has_a_page() -> None:
    problem = Problem.build(OpGraph.build([]), {"GPU": []}, two_gpus())
    profile = Profile(problem, {"graph_hash": "0" * 64})
    page = Read(api.report(profile, {"empty": placed_on(profile, [])}))
    assert "empty" in page.tables


def test_the_page_refers_to_nothing_else(page: Read) -> None:
    assert page.references == ["#find"]
    assert "default-src 'none'" in page.page
    for word in ("http:", "https:", "@import", "url("):
        assert word not in page.without_vega()


def test_the_figures_are_the_simulators(page: Read) -> None:
    profile = awkward_profile()
    results = {
        name: api.simulate(profile, placed_on(profile, device))
        for name, device in (("both", BOTH), ("one", ONE))
    }
    for name, drawn in zip(results, page.packed()["placements"], strict=True):
        schedule = results[name].schedule
        assert drawn["makespan_us"] == schedule.makespan_us
        assert drawn["device"] == schedule.device.tolist()
        start_us = np.cumsum(drawn["start_steps_ns"]) / 1e3
        assert np.allclose(start_us, schedule.start_us, rtol=0, atol=1e-3)
        assert np.allclose(drawn["took_us"], schedule.end_us - schedule.start_us, atol=1e-3)
    rows = {row[0]: row for row in page.tables["Comparison"][1:]}
    for name, result in results.items():
        assert f"{result.makespan_us:.1f}" == rows[name][2]
        assert f"{result.gap:.1%}" == rows[name][3]
        assert [size_text(size) for size in result.schedule.peak_bytes] == rows[name][5:8]
        assert f"<dd>{time_text(result.makespan_us)}</dd>" in page.page
    # Two tensors are sent: one to GPU:1, one back.
    assert rows["both"][4] == size_text(20_000)
    assert rows["one"][4] == "0 B"
    assert set(rows) == {"both", "one", "single", "expert"}
    assert "no placement of whole ops is faster" in page.page


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.0, "0%"), (0.0004, "under 0.1%"), (0.0043, "0.4%"), (0.0099, "1.0%"), (0.62, "62%")],
)
def test_a_small_share_of_the_memory_is_not_shown_as_none(share: float, text: str) -> None:
    graph = OpGraph.build(["only"], resident_bytes=[int(share * 10**6)])
    profile = Profile(on_gpus(graph, [5], two_gpus(memory_bytes=10**6)))
    assert f"<dt>fullest memory</dt><dd>{text}</dd>" in page_of(profile, one=[1]).page


def test_names_and_types_are_escaped(page: Read) -> None:
    assert tuple(page.packed()["graphs"][0]["names"]) == (*map(printable, AWKWARD), "end")
    assert "b" not in page.tags
    assert page.page.count("<script") == 3
    assert "<title>awkward &lt;title&gt; - pesto report</title>" in page.page
    assert ["source", "<by hand>"] in page.tables["Profile"]
    assert ["seed", "7"] in page.tables["both"]


def test_provenance_has_units_and_leaves_out_defaults() -> None:
    profile = awkward_profile()
    parameters = {
        "time_limit": 5.0,
        "num_nodes": 200,
        "congestion": True,
        "deterministic": True,
        "balance": None,
    }
    placed = replace(placed_on(profile, BOTH), provenance={"seed": 0, "parameters": parameters})
    page = Read(api.report(profile, {"both": placed}))
    assert page.tables["both"][3:] == [
        ["seed", "0"],
        ["time limit (s)", "5"],
        ["nodes of the coarse graph", "200"],
        ["deterministic", "yes"],
    ]


def test_a_placement_that_does_not_fit_is_marked() -> None:
    graph = OpGraph.build(["a", "b"], resident_bytes=[2 * 10**9, 0])
    page = page_of(Profile(on_gpus(graph, [5, 5])), tight=[1, 2])
    assert "does not fit: GPU:0 953.67 MiB short" in page.page
    assert page.tables["Comparison"][1][-1] == "does not fit"


def test_a_step_without_time_or_transfers_has_a_page() -> None:
    page = page_of(Profile(on_gpus(OpGraph.build(["only"]), [0])), alone=[1])
    assert "There are no transfers" in page.page
    assert page.packed()["placements"][0]["took_us"] == [0]


@pytest.mark.parametrize("seed", range(40))
def test_the_largest_memory_over_time_is_the_peak(seed: int) -> None:
    problem = random_problem(seed, 6)
    schedule = list_schedule(problem, random_placement(problem, seed), upward_rank(problem))
    held = held_over_time(problem, schedule)
    assert [num_bytes.max() for _, num_bytes in held] == schedule.peak_bytes.tolist()
    for since_us, num_bytes in held:
        assert since_us[0] == 0
        assert (np.diff(since_us) > 0).all()
        assert (num_bytes >= 0).all()


@pytest.mark.parametrize("seed", range(10))
def test_critical_path_and_busy_times_add_up(seed: int) -> None:
    problem = random_problem(seed, 6)
    schedule = list_schedule(problem, random_placement(problem, seed), upward_rank(problem))
    parts = step_parts(problem, schedule, schedule_critical_path(problem, schedule))
    assert sum(parts.values()) == pytest.approx(schedule.makespan_us)
    took_us = schedule.end_us - schedule.start_us
    for device, use in enumerate(device_use(problem, schedule)):
        assert use.busy_us == pytest.approx(took_us[schedule.device == device].sum())
    links = link_use(problem, schedule)
    assert sum(use.count for use in links) == len(schedule.transfers)
    sent = problem.graph.tensor_bytes[schedule.transfers.tensor].sum()
    assert sum(use.num_bytes for use in links) == sent


def rows_of(chart: Any, layer: int) -> list[dict[str, str]]:
    """Return the rows of data of a layer of a chart, as text."""
    data: str = chart["datasets"][chart["layer"][layer]["data"]["name"]]
    return list(csv.DictReader(io.StringIO(data)))


@pytest.mark.parametrize("seed", range(10))
def test_the_line_of_the_critical_path_has_only_square_corners(seed: int) -> None:
    problem = random_problem(seed, 6)
    schedule = list_schedule(problem, random_placement(problem, seed), upward_rank(problem))
    chain = schedule_critical_path(problem, schedule)
    drawn: Any = timeline_chart(Drawn(problem, schedule, chain)).to_dict()
    points = rows_of(drawn, 1)
    for one, other in pairwise(points):
        assert one["row"] == other["row"] or one["from"] == other["from"]


@pytest.mark.parametrize(("width", "columns"), [(900, 7), (620, 5), (100, 2), ("container", None)])
def test_the_legend_of_a_timeline_has_lines_that_fit_its_width(
    width: int | str, columns: int | None
) -> None:
    problem = on_gpus(OpGraph.build(["only"]), [5])
    schedule = list_schedule(problem, np.array([1]), upward_rank(problem))
    drawn: Any = timeline_chart(Drawn(problem, schedule, []), width=width).to_dict()
    assert drawn["layer"][0]["encoding"]["color"]["legend"].get("columns") == columns
    page_wraps: Any = timeline_chart(
        Drawn(problem, schedule, []), width=width, wrap_legend=False
    ).to_dict()
    assert "columns" not in page_wraps["layer"][0]["encoding"]["color"]["legend"]


@pytest.mark.parametrize(("share", "until"), [(0.5, 1.05), (0.02, 0.021), (0.0, 1.05)])
def test_the_memory_axis_fits_the_memory(share: float, until: float) -> None:
    graph = OpGraph.build(["only"], resident_bytes=[int(share * 10**6)])
    problem = on_gpus(graph, [5], two_gpus(memory_bytes=10**6))
    schedule = list_schedule(problem, np.array([1]), upward_rank(problem))
    drawn: Any = memory_chart(problem, schedule, held_over_time(problem, schedule)).to_dict()
    *capacity, lines = drawn["layer"]
    assert lines["encoding"]["y"]["scale"]["domain"] == pytest.approx([0, until])
    is_low = until < 1
    assert len(capacity) == (0 if is_low else 1)
    text = "memory held, as a share of the usable memory"
    assert drawn["title"] == ({"text": text, "subtitle": "axis ends at 2.1%"} if is_low else text)


def test_small_nodes_are_drawn_over_large_ones() -> None:
    problem = on_gpus(OpGraph.build(["a", "b", "c"]), [5, 50, 20])
    drawn: Any = layers_chart(problem, np.array([1, 2, 1])).to_dict()
    nodes = rows_of(drawn, 1)
    assert [node["name"] for node in nodes] == ["b", "c", "a"]


def test_short_bars_are_merged_until_there_are_few_and_no_op_is_lost() -> None:
    bars = [Bar("GPU:0", float(at), at + 1.0, f"op{at}", "Add", 10) for at in range(1000)]
    bars.append(Bar("GPU:0", 2000.0, 3000.0, "long", "MatMul", 1))
    drawn, narrow_us = few_enough(bars, 100)
    assert len(drawn) <= 100
    assert sum(bar.count for bar in drawn) == len(bars)
    assert sum(bar.num_bytes for bar in drawn) == 10_001
    assert all(bar.took_us <= narrow_us for bar in drawn if bar.count > 1)
    assert Bar("GPU:0", 2000.0, 3000.0, "long", "MatMul", 1) in drawn
    assert few_enough(bars[:100], 100) == (bars[:100], 0.0)


def test_thirty_thousand_ops_fit_in_three_megabytes() -> None:
    graph = layered_graph(30_000)
    us = np.random.default_rng(1).integers(1, 200, graph.num_ops)
    problem = on_gpus(graph, us.tolist(), PRESETS["v100x2-nvlink"])
    device = 1 + np.random.default_rng(2).integers(0, 2, graph.num_ops)
    schedule = list_schedule(problem, device, upward_rank(problem))
    held, chain = held_over_time(problem, schedule), schedule_critical_path(problem, schedule)
    result = Result("random", SolveStatus.FEASIBLE, Solution.of(problem, schedule, 1.0), 0.0)
    coarsening = coarsen(problem, 120)
    coarse = Coarse(coarsening.problem, coarsening.node_of_op)
    shown = Shown("random", result, held, chain)
    page = report_page("large", Profile(problem), [shown], [], page_data(problem, [shown], coarse))
    assert len(page.encode()) < 3e6
    assert Read(page).packed()["graphs"][0]["names"] == list(graph.names)
    assert "are so short that one bar stands for several" in page
    assert len(Drawn(problem, schedule, chain).merged[0]) <= MOST_BARS
    # The curve is coarser than the schedule, but still has its highest point.
    drawn = memory_chart(problem, schedule, held).to_dict()
    (lines,) = (data for data in drawn["datasets"].values() if data.startswith("device"))
    assert lines.count("\n") < 5000
    highest = max(float(line.split(",")[2]) for line in lines.splitlines()[1:])
    assert highest == pytest.approx(schedule.peak_bytes.max() / 2**30, abs=1e-6)


def test_the_command_writes_a_page_and_prints_its_size(pesto: Pesto, tmp_path: Path) -> None:
    profile, both, one = write_files(tmp_path)
    out = tmp_path / "r.html"
    done = pesto("report", profile, both, one, "-o", out, "--json")
    assert done.code == 0
    assert json.loads(done.out) == {
        "output": str(out),
        "bytes": out.stat().st_size,
        "placements": ["both", "one"],
    }
    assert ["profile hash", api.read_profile(profile).file_hash] in Read(out.read_text()).tables[
        "Profile"
    ]
    before = out.read_bytes()
    assert pesto("report", profile, both, one, "-o", out, "--quiet") == (0, "", "")
    assert out.read_bytes() == before


def test_the_command_refuses_to_overwrite_inputs_and_repeated_placements(
    pesto: Pesto, tmp_path: Path
) -> None:
    profile, both, _ = write_files(tmp_path)
    lost = pesto("report", profile, both, "-o", both)
    assert (lost.code, "would be lost" in lost.err) == (2, True)
    twice = pesto("report", profile, both, both, "-o", tmp_path / "r.html")
    assert (twice.code, "given twice" in twice.err) == (2, True)
    none = pesto("report", profile, "-o", tmp_path / "r.html")
    assert none.code == 2
    assert not (tmp_path / "r.html").exists()
