"""A placement of an earlier graph, mapped by op names to a changed graph."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Pesto, on_gpus
from hypothesis import given, settings
from hypothesis import strategies as st
from random_problems import random_placement, random_problem

from pesto_cli import api
from pesto_cli.data.graph import OpGraph, Tensor
from pesto_cli.data.machine import CommModel, Device, Link, Machine
from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import shortfall_bytes
from pesto_cli.evaluation.simulator import Simulator, replay
from pesto_cli.evaluation.violations import violations
from pesto_cli.files import PlacementFile, Profile, placement, write_placement, write_profile
from pesto_cli.files.tensorflow_names import labelled
from pesto_cli.strategies.placement_mapping import keep_old_devices, map_placement, start_from


def file_of(problem: Problem, device: list[int], rank: list[int]) -> PlacementFile:
    names = [row.name for row in problem.machine.devices]
    return PlacementFile(names, list(problem.graph.names), device, rank, [], {}, {})


def chain(*names: str, num_bytes: int = 1000, groups: list[str | None] | None = None) -> Problem:
    """A chain of ops of 10 us each."""
    tensors = [Tensor(op, num_bytes, [op + 1]) for op in range(len(names) - 1)]
    graph = OpGraph.build(names, tensors, colocation_group=groups)
    return on_gpus(labelled(graph), [10.0] * len(names))


def devices(problem: Problem, placed: PlacementFile) -> dict[str, int]:
    mapped = map_placement(placed, problem)
    return dict(zip(problem.graph.names, mapped.placement.device.tolist(), strict=True))


def test_the_same_graph_gets_the_same_placement() -> None:
    problem = random_problem(3, num_ops=12, memory=False)
    priority = np.random.default_rng(0).random(12)
    schedule = Simulator(problem).list_schedule(random_placement(problem, 0), priority)
    placed = file_of(problem, schedule.device.tolist(), schedule.rank.tolist())
    mapped = map_placement(placed, problem)
    assert mapped.is_whole
    assert (mapped.placement.device == schedule.device).all()
    assert (mapped.placement.rank == schedule.rank).all()


def test_new_ops_are_placed_by_scope_then_by_neighbours() -> None:
    old = chain("left/a", "left/b", "right/c", "gradients/left/d", "gradients/right/e")
    placed = file_of(old, [1, 1, 2, 2, 1], [0, 1, 0, 1, 2])
    new = chain(
        "left/a", "left/new", "left/b", "middle/x", "middle/y", "right/c",
        "gradients/right/new", "gradients/left/d", "gradients/left/new", "gradients/right/e",
        "gradients/middle/x",
    )  # fmt: skip
    where = devices(new, placed)
    assert where["left/new"] == 1
    assert where["gradients/right/new"] == 1
    assert where["gradients/left/new"] == 2
    # These scopes have no old op, and `gradients` does not count as a scope: by the predecessor.
    assert where["middle/x"] == where["middle/y"] == where["left/b"]
    assert where["gradients/middle/x"] == where["gradients/right/e"]
    mapped = map_placement(placed, new)
    counts = (mapped.num_by_name, mapped.num_by_scope, mapped.num_by_neighbours)
    assert (counts, mapped.num_by_default) == ((5, 3, 3), 0)


def test_the_neighbour_with_most_bytes_decides() -> None:
    graph = OpGraph.build(["a", "b", "n"], [Tensor(0, 10, [2]), Tensor(1, 1000, [2])])
    problem = on_gpus(graph, [1, 1, 1])
    old = on_gpus(OpGraph.build(["a", "b"]), [1, 1])
    assert devices(problem, file_of(old, [1, 2], [0, 0]))["n"] == 2


def test_groups_go_to_the_allowed_device_that_had_most_of_their_work() -> None:
    old = chain("a", "b", "c")
    placed = file_of(old, [1, 2, 2], [0, 0, 1])
    together = chain("a", "b", "c", "new", groups=["g", "g", "g", None])
    assert devices(together, placed) == dict.fromkeys(["a", "b", "c", "new"], 2)
    permitted = np.ones_like(together.permitted)
    permitted[:, 2] = False
    assert devices(together.constrained(permitted=permitted), placed)["c"] == 1
    allowed = chain("a", "b", "c").constrained(permitted=permitted[:3])
    assert map_placement(placed, allowed).num_by_name == 1


def test_old_ops_keep_their_order_and_new_ones_are_inserted_as_early_as_possible() -> None:
    graph = OpGraph.build(["a", "b", "c", "d"], [])
    old = on_gpus(graph, [1] * 4)
    placed = file_of(old, [1] * 4, [2, 0, 3, 1])
    new = on_gpus(OpGraph.build(["a", "b", "c", "d", "n"], [Tensor(3, 10, [4])]), [1] * 5)
    mapped = map_placement(placed, new)
    order = np.argsort(mapped.placement.rank)
    assert [new.graph.names[op] for op in order] == ["b", "d", "n", "a", "c"]


def test_an_order_that_contradicts_the_new_graph_is_corrected() -> None:
    old = on_gpus(OpGraph.build(["a", "b", "c"]), [1] * 3)
    placed = file_of(old, [1, 1, 1], [2, 1, 0])
    new = chain("a", "b", "c")
    assert replay(new, map_placement(placed, new).placement).makespan_us == 30


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(1, 14), st.integers(1, 14))
def test_any_placement_is_mapped_to_any_graph_without_a_violation(
    seed: int, other: int, before: int, after: int
) -> None:
    old = random_problem(seed, num_ops=before, memory=False)
    new = random_problem(other, num_ops=after, memory=False)
    schedule = Simulator(old).list_schedule(random_placement(old, seed), np.zeros(before))
    placed = file_of(old, schedule.device.tolist(), schedule.rank.tolist())
    mapped = map_placement(placed, new)
    found = violations(new, replay(new, mapped.placement))
    assert [each for each in found if each.rule != "memory"] == []
    counts = (mapped.num_by_scope, mapped.num_by_neighbours, mapped.num_by_default)
    assert mapped.num_by_name + sum(counts) == after


# The command line.

QUICK = ("--time-limit", 0.1, "--deterministic")


def written(folder: Path, problem: Problem, placed: PlacementFile) -> tuple[Path, Path]:
    write_profile(folder / "profile.json", Profile(problem))
    write_placement(folder / "old.json", placed)
    return folder / "profile.json", folder / "old.json"


def test_a_warm_start_of_an_earlier_graph_is_deterministic(pesto: Pesto, tmp_path: Path) -> None:
    old, new = chain("a/x", "b/y"), chain("a/x", "a/new", "b/y")
    profile, start = written(tmp_path, new, file_of(old, [1, 2], [0, 0]))
    answers = []
    for name in ("1.json", "2.json"):
        solve = ("solve", profile, "-o", tmp_path / name, "--warm-start", start, *QUICK)
        done = pesto(*solve)
        assert done.code == 0
        assert "of 3 ops, 2 keep their device, 1 get the device of their scope" in done.err
        answers.append((tmp_path / name).read_bytes())
    assert answers[0] == answers[1]


def test_a_placement_file_records_its_warm_start_and_parameters(
    pesto: Pesto, tmp_path: Path
) -> None:
    problem = chain("a", "b", "c")
    profile, start = written(tmp_path, problem, file_of(problem, [1, 1, 2], [0, 1, 0]))
    rules, out = tmp_path / "rules.toml", tmp_path / "p.json"
    rules.write_text("headroom = 0.9\n")

    def parameters(*options: object) -> dict[str, Any]:
        assert pesto("solve", profile, "-o", out, *options, "--quiet").code == 0
        found: dict[str, Any] = api.read_placement(out).provenance["parameters"]
        return found

    found = parameters("--warm-start", start, "--constraints", rules, *QUICK)
    assert found["warm_start"] == api.read_placement(start).file_hash
    assert found["constraints"]["headroom"] == 0.9
    assert parameters("--strategy", "metis") == {"seed": 0}


def test_a_bad_warm_start_does_not_worsen_the_result(pesto: Pesto, tmp_path: Path) -> None:
    # Devices alternate, which needs ten transfers of 1 ms each, for ops of 10 us.
    old, new = chain(*"abcdefghij"), chain(*"abcdefghijk", num_bytes=10**6)
    placed = file_of(old, [1, 2] * 5, [n // 2 for n in range(10)])
    profile, start = written(tmp_path, new, placed)
    done = pesto("solve", profile, "-o", tmp_path / "p.json", "--warm-start", start, *QUICK)
    assert done.code == 0
    assert api.read_placement(tmp_path / "p.json").predicted["makespan_us"] == 110


def test_an_old_order_that_fits_into_memory_is_kept() -> None:
    tensors = [Tensor(0, 60, [1]), Tensor(2, 60, [3]), Tensor(2, 1, [4])]
    graph = labelled(OpGraph.build(["a", "b", "c", "d", "e"], tensors))
    devices = tuple(Device(f"GPU:{index}", "GPU", 100) for index in range(2))
    ends = (("GPU:0", "GPU:1"), ("GPU:1", "GPU:0"))
    links = tuple(Link(*pair, CommModel(0.0, 0.0)) for pair in ends)
    problem = Problem.build(graph, {"GPU": [1.0, 5.0, 1.0, 5.0, 10.0]}, Machine(devices, links))
    simulator = Simulator(problem)
    placed = file_of(problem, [0, 0, 0, 0, 1], [0, 1, 2, 3, 0])
    mapped = map_placement(placed, problem).placement
    assert not shortfall_bytes(problem, simulator.replay(mapped)).any()
    found = start_from(placed, simulator).placement
    assert (found.rank == mapped.rank).all()


def test_ops_keep_their_old_device_among_interchangeable_devices() -> None:
    graph = OpGraph.build(list("abcdef"))
    problem = on_gpus(graph, [10.0] * 6)
    old = Simulator(problem).list_schedule(np.array([1, 1, 1, 2, 2, 2]), np.zeros(6))
    swapped = Simulator(problem).list_schedule(np.array([2, 2, 1, 1, 1, 1]), np.zeros(6))
    kept = keep_old_devices(Simulator(problem), swapped, old.placement)
    assert kept.device.tolist() == [1, 1, 2, 2, 2, 2]
    assert kept.makespan_us == swapped.makespan_us
    devices = [replace(device, speed=1 + at) for at, device in enumerate(problem.machine.devices)]
    unlike = on_gpus(graph, [10.0] * 6, replace(problem.machine, devices=tuple(devices)))
    there = Simulator(unlike).list_schedule(swapped.device, np.zeros(6))
    assert (keep_old_devices(Simulator(unlike), there, old.placement).device == there.device).all()


def test_devices_that_the_machine_lacks_are_reported(pesto: Pesto, tmp_path: Path) -> None:
    problem = chain("a", "b", "c")
    placed = replace(file_of(problem, [1, 2, 2], [0, 0, 1]), devices=["CPU:0", "GPU:0", "GPU:7"])
    profile, start = written(tmp_path, problem, placed)
    done = pesto("solve", profile, "-o", tmp_path / "p.json", "--warm-start", start, *QUICK)
    assert done.code == 0
    assert "uses GPU:7, which the machine lacks" in done.err
    assert "has only 33% of the ops" in done.err
    quiet = ("solve", profile, "-o", tmp_path / "p.json", "--warm-start", start, *QUICK, "--quiet")
    assert pesto(*quiet).err == ""


@pytest.mark.parametrize(
    "placed",
    [
        PlacementFile(["GPU:0"], ["x", "y"], [0, 0], [0, 1], [], {}, {}),
        PlacementFile(["TPU:0"], ["a", "b"], [0, 0], [0, 1], [], {}, {}),
        PlacementFile([], [], [], [], [], {}, {}),
    ],
    ids=["another model", "another machine", "nothing"],
)
def test_a_placement_with_nothing_in_common_is_ignored(
    pesto: Pesto, tmp_path: Path, placed: PlacementFile
) -> None:
    profile, start = written(tmp_path, chain("a", "b"), placed)
    done = pesto("solve", profile, "-o", tmp_path / "p.json", "--warm-start", start, *QUICK)
    assert done.code == 0
    assert "of another model or machine" in done.err
    assert "warm start" not in done.err
    assert (tmp_path / "p.json").exists()


def test_a_placement_of_a_coarse_profile_gives_a_warning_that_few_ops_are_known(
    pesto: Pesto, tmp_path: Path
) -> None:
    problem = chain(*(f"layer_{layer}/op" for layer in range(20)))
    write_profile(tmp_path / "profile.json", Profile(problem))
    coarse = api.coarsen(Profile(problem), 4)
    placed = placement(coarse, api.solve(coarse, "single"))
    write_placement(tmp_path / "coarse.json", placed)
    done = pesto(
        "solve", tmp_path / "profile.json", "-o", tmp_path / "p.json", *QUICK,
        "--warm-start", tmp_path / "coarse.json",
    )  # fmt: skip
    assert done.code == 0
    assert "has only 20% of the ops" in done.err


def test_a_summary_has_the_step_time(pesto: Pesto, tmp_path: Path) -> None:
    problem = chain("a", "b")
    profile, start = written(tmp_path, problem, file_of(problem, [1, 1], [0, 1]))
    summary = tmp_path / "summary.md"
    solve = ("solve", profile, "-o", tmp_path / "p.json", *QUICK, "--summary", summary)
    assert pesto(*solve, "--warm-start", start).code == 0
    assert "| step | 20.00 us |" in summary.read_text()
    assert pesto("solve", profile, "-o", summary, "--summary", summary).code == 2
