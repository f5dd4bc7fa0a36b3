"""The API: loading and saving files of any kind, charts, coarse profiles and networkx."""

import inspect
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from conftest import two_gpus
from random_problems import random_problem

from pesto_cli import api as pesto
from pesto_cli.coarsen import coarsen as coarsen_problem
from pesto_cli.data.constraints import Constraints, Rule
from pesto_cli.data.machine import CommModel, Machine
from pesto_cli.data.presets import PRESETS
from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import objective
from pesto_cli.errors import BadInputError
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.files import CommFit, PlacementFile, Profile
from pesto_cli.strategies.pesto import expanded as of_coarse

FUNCTIONS = ("load", "save", "export", "profile", "coarsen", "merge_log", "solve", "compare")
FUNCTIONS += ("simulate", "timeline", "memory", "layers", "merges", "to_networkx", "from_networkx")
FUNCTIONS += ("apply", "expand", "placement", "report")


@pytest.fixture
def placed(diamond: Problem) -> tuple[Profile, PlacementFile]:
    profile = Profile(diamond)
    return profile, pesto.placement(profile, pesto.solve(profile, "expert"))


def test_a_saved_file_is_recognised_by_its_content(
    tmp_path: Path, placed: tuple[Profile, PlacementFile]
) -> None:
    profile, placement = placed
    fits = [CommFit("GPU", "GPU", CommModel(1.0, 0.001), 0.99, 7)]
    # The names of the files do not show their content.
    for name, value in (("a.json", profile), ("b.json.gz", placement), ("c.json", fits)):
        pesto.save(tmp_path / name, value)
    loaded = pesto.load(tmp_path / "a.json")
    assert isinstance(loaded, Profile)
    assert loaded.problem.graph.names == profile.problem.graph.names
    assert replace(pesto.load(str(tmp_path / "b.json.gz")), file_hash="") == placement
    assert pesto.load(tmp_path / "c.json") == fits


def test_machines_and_constraints_are_loaded(tmp_path: Path) -> None:
    assert pesto.load("v100x2-pcie") is PRESETS["v100x2-pcie"]
    (tmp_path / "c.toml").write_text('headroom = 0.5\n[[pin]]\nops = "*"\ndevice = "GPU:0"\n')
    assert isinstance(pesto.load(tmp_path / "c.toml"), Constraints)
    lines = ['[[devices]]\nname = "CPU:0"\nkind = "CPU"\nmemory_bytes = 8', "links = []"]
    (tmp_path / "m.toml").write_text("\n".join(reversed(lines)))
    assert isinstance(pesto.load(tmp_path / "m.toml"), Machine)


def test_files_that_cannot_be_loaded_or_saved_are_refused(tmp_path: Path, diamond: Problem) -> None:
    (tmp_path / "cut.json").write_text('{"format": "pesto-prof')
    (tmp_path / "other.json").write_text(json.dumps({"format": "onnx"}))
    result = pesto.solve(Profile(diamond), "single")
    for attempt, message in (
        (lambda: pesto.load("h100x2"), "h100x2 is neither a file nor a machine preset"),
        (lambda: pesto.load(tmp_path / "cut.json"), "cut.json is truncated or damaged"),
        (lambda: pesto.load(tmp_path / "other.json"), "has format 'onnx'"),
        (lambda: pesto.save(tmp_path / "r", result), "save placement(profile, result)"),
        (lambda: pesto.save(tmp_path / "none" / "p.json", Profile(diamond)), "does not exist"),
    ):
        with pytest.raises(BadInputError) as refused:
            attempt()
        assert message in str(refused.value)


def test_limits_are_those_of_the_search(diamond: Problem) -> None:
    result = pesto.solve(Profile(diamond), time_limit_s=1, deterministic=True)
    assert result.makespan_us == 14
    with pytest.raises(TypeError, match="time_limit"):
        pesto.solve(Profile(diamond), time_limit=1)


def test_a_comparison_is_a_sequence_of_results(diamond: Problem) -> None:
    comparison = pesto.compare(Profile(diamond), ["single", "expert"])
    assert [each.strategy for each in comparison] == ["single", "expert"]
    assert (len(comparison), comparison[-1]) == (2, comparison.results[1])
    assert comparison.problem is diamond


def data_of(chart: Any) -> Iterator[Any]:
    """Yield the data of a chart and of the charts in it."""
    for name, part in chart.items() if isinstance(chart, dict) else enumerate(chart):
        if name == "data":
            yield part
        elif isinstance(part, dict | list):
            yield from data_of(part)


def test_charts_draw_results_schedules_and_placements_alike(
    tmp_path: Path, placed: tuple[Profile, PlacementFile]
) -> None:
    profile, placement = placed
    result = pesto.simulate(profile, placement)
    for draw in (pesto.timeline, pesto.memory, pesto.layers):
        charts = [draw(profile, each) for each in (placement, result, result.schedule)]
        one, *others = (list(data_of(chart.to_dict())) for chart in charts)
        assert one
        assert [one, one] == others
    pesto.save(tmp_path / "chart.svg", charts[0])
    assert (tmp_path / "chart.svg").read_text().startswith("<svg")


def test_a_round_is_drawn_with_every_pair(diamond: Problem) -> None:
    rounds: list[pesto.Round] = []
    profile = Profile(diamond)
    pesto.coarsen(profile, 3, on_round=rounds.append)
    drawn = json.dumps(pesto.merges(profile, rounds[0]).to_dict())
    for pair in pesto.merge_log(profile, rounds[0]):
        assert f"{pair.first}, {pair.second}" in drawn
        assert pair.verdict in drawn


def test_networkx_graphs_have_devices_and_convert_back(
    placed: tuple[Profile, PlacementFile],
) -> None:
    profile, placement = placed
    graph = pesto.to_networkx(profile, placement)
    index = {name: place for place, name in enumerate(placement.names)}
    for name, node in graph.nodes.items():
        assert node["device"] == placement.devices[placement.device[index[name]]]
    back = pesto.from_networkx(graph)
    assert pesto.simulate(back, placement).makespan_us == placement.predicted["makespan_us"]
    assert nx.is_isomorphic(pesto.to_networkx(profile.problem.graph), graph)
    assert pesto.from_networkx(graph, two_gpus(9.0)).problem.machine.latency_us.max() == 9.0
    with pytest.raises(BadInputError, match="an op graph, which has no devices"):
        pesto.to_networkx(profile.problem.graph, placement)


def test_networkx_graphs_keep_the_members_of_coarse_nodes(diamond: Problem) -> None:
    coarse = pesto.coarsen(Profile(diamond), 2)
    graph = pesto.to_networkx(coarse)
    back = pesto.from_networkx(graph)
    assert back.members == coarse.members
    assert back.provenance == {"source": "networkx"}
    assert pesto.from_networkx(pesto.to_networkx(Profile(diamond))).members is None
    graph.add_node("new", time_us=1.0)
    assert pesto.from_networkx(graph).members == [*coarse.members, ["new"]]
    graph.nodes["new"]["members"] = ["one", "two"]
    with pytest.raises(BadInputError, match=r"node 'new' has members .* and num_members 1"):
        pesto.from_networkx(graph)


@pytest.mark.parametrize("seed", range(20))
def test_a_coarse_placement_is_expanded_to_the_ops(tmp_path: Path, seed: int) -> None:
    profile = Profile(random_problem(seed, 12))
    pesto.save(tmp_path / "coarse.json", pesto.coarsen(profile, 4))
    coarse = pesto.load(tmp_path / "coarse.json")
    (result,) = pesto.compare(coarse, ["expert"])
    expanded = pesto.expand(profile, coarse, result)
    device = {
        name: node_device
        for names, node_device in zip(coarse.members, result.schedule.device, strict=True)
        for name in names
    }
    assert expanded.schedule.device.tolist() == [device[op] for op in profile.problem.graph.names]
    found = of_coarse(
        Simulator(profile.problem), coarsen_problem(profile.problem, 4), result.schedule
    )
    best = min(found, key=lambda each: objective(profile.problem, each))
    assert expanded.makespan_us == best.makespan_us
    assert expanded.strategy == "expert, expanded"
    for placed in (pesto.placement(coarse, result), result.schedule):
        again = pesto.expand(profile, coarse, placed).schedule
        np.testing.assert_array_equal(again.end_us, expanded.schedule.end_us)


def test_coarse_and_original_profiles_are_not_mixed(diamond: Problem) -> None:
    profile, other = Profile(diamond), Profile(random_problem(1, 6))
    coarse = pesto.coarsen(profile, 2)
    result, whole = pesto.solve(coarse, "single"), pesto.solve(profile, "single")
    pinned = Constraints(forbid=[Rule("*", "GPU:0")])
    for attempt, message in (
        (
            lambda: pesto.expand(other, coarse, result),
            r"<Profile: 2 nodes for 4 ops .* not made from",
        ),
        (lambda: pesto.expand(profile, profile, whole), "was not made from <Profile: 4 ops"),
        (lambda: pesto.expand(profile, coarse, whole), "has 4 ops and the profile has 2"),
        (
            lambda: pesto.expand(pesto.constrain(profile, pinned), coarse, result),
            r"puts op .* on GPU:0, where the op",
        ),
        (lambda: pesto.simulate(profile, result), r"expand\(profile, coarse, result\)"),
        (lambda: pesto.timeline(profile, result), r"expand\(profile, coarse, result\)"),
        (lambda: pesto.placement(profile, result), r"expand\(profile, coarse, result\)"),
        (
            lambda: pesto.simulate(profile, pesto.placement(coarse, result)),
            r"lacks 2 ops .* expand it \(pesto_cli.api.expand\)",
        ),
    ):
        with pytest.raises(BadInputError, match=message):
            attempt()


@pytest.mark.parametrize("verb", FUNCTIONS)
def test_every_function_is_documented_with_an_example(verb: str) -> None:
    text = inspect.getdoc(getattr(pesto, verb)) or ""
    assert verb in pesto.__all__
    if getattr(pesto, verb).__module__.startswith("pesto_cli.api"):
        assert f"{verb}(" in text.partition("Example:")[2]
