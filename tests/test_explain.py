"""`pesto explain`, including its what-if analysis."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Pesto, on_gpus, two_gpus
from random_problems import every_third_contended, random_placement, random_problem

from pesto_cli import api
from pesto_cli.data.graph import OpGraph, Tensor
from pesto_cli.data.problem import Problem
from pesto_cli.errors import BadInputError
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.evaluation.violations import violations
from pesto_cli.files import Profile, write_profile
from pesto_cli.files.tensorflow_names import labelled
from pesto_cli.report.explanation.matching import matching_ops
from pesto_cli.strategies.what_if import what_if


def placed(path: Path, device: dict[str, str], rank: list[int]) -> Path:
    """Write a placement, given by names of ops and devices."""
    devices = ["CPU:0", "GPU:0", "GPU:1"]
    ops = {
        "name": list(device),
        "device": [devices.index(name) for name in device.values()],
        "rank": rank,
    }
    record = {"format": "pesto-placement", "version": 1, "devices": devices, "ops": ops}
    path.write_text(json.dumps(record))
    return path


@pytest.fixture
def files(tmp_path: Path, diamond_profile: Path) -> tuple[Path, Path]:
    """The diamond with c on GPU:1: a runs to 1, c from 3 to 13, d from 15 to 16."""
    device = {"a": "GPU:0", "b": "GPU:0", "c": "GPU:1", "d": "GPU:0"}
    return diamond_profile, placed(tmp_path / "p.json", device, [0, 1, 0, 2])


def explained(pesto: Pesto, *argv: object) -> Any:
    done = pesto("explain", *argv, "--json")
    assert (done.code, done.err) == (0, "")
    return json.loads(done.out)


def test_an_op_is_explained_with_its_waits_and_followers(
    pesto: Pesto, files: tuple[Path, Path]
) -> None:
    c = explained(pesto, *files, "c")
    assert (c["device"], c["rank"], c["start_us"], c["end_us"]) == ("GPU:1", 0, 3, 13)
    assert (c["why"], c["is_critical"], c["ready_us"]) == ("transfer", True, 3)
    wait = {"op": "a", "device": "GPU:0", "why": "transfer", "num_bytes": 1000}
    assert c["waited_for"] == [{**wait, "at_us": 3, "was_last": True}]
    follower = {"op": "d", "device": "GPU:0", "why": "transfer", "num_bytes": 1000}
    assert c["followers"] == [{**follower, "at_us": 15, "was_last": True}]
    sent = {"to": "GPU:0", "link": "GPU:1 -> GPU:0", "made_us": 13, "start_us": 13, "end_us": 15}
    assert c["outputs"] == [
        {"num_bytes": 1000, "consumers": ["d"], "sent": [{**sent, "waited_for": None}]}
    ]
    b = explained(pesto, *files, "b")
    assert (b["is_critical"], b["why"]) == (False, "predecessor")


def test_other_devices_are_simulated_or_refused_with_the_reason(
    pesto: Pesto, files: tuple[Path, Path]
) -> None:
    elsewhere = {each["device"]: each for each in explained(pesto, *files, "c")["elsewhere"]}
    assert elsewhere["CPU:0"]["why_not"] == "the profile has no time for it on a CPU"
    assert elsewhere["CPU:0"]["kept_us"] is None
    assert [elsewhere[name]["is_here"] for name in ("GPU:0", "GPU:1")] == [False, True]
    assert (elsewhere["GPU:0"]["kept_us"], elsewhere["GPU:0"]["dispatched_us"]) == (22, 22)
    assert (elsewhere["GPU:1"]["kept_us"], elsewhere["GPU:1"]["dispatched_us"]) == (16, 16)


def test_a_group_moves_together_and_may_not_fit(pesto: Pesto, tmp_path: Path) -> None:
    graph = OpGraph.build(
        ["v", "w", "x"],
        [Tensor(0, 8, [1])],
        colocation_group=["V", "V", None],
        resident_bytes=[600, 0, 600],
    )
    profile = tmp_path / "group.profile.json"
    write_profile(profile, Profile(on_gpus(graph, [1, 2, 4], two_gpus(memory_bytes=1000))))
    device = {"v": "GPU:0", "w": "GPU:0", "x": "GPU:1"}
    placement = placed(tmp_path / "p.json", device, [0, 1, 0])
    v = explained(pesto, profile, placement, "v")
    assert (v["group"], v["group_resident_bytes"]) == (["w"], 600)
    there = v["elsewhere"][2]
    assert there["kept_us"] == there["dispatched_us"] == 7
    assert there["kept_short_bytes"] == there["dispatched_short_bytes"] == {"GPU:1": 208}
    shown = pesto("explain", profile, placement, "v").out
    assert "OOM: GPU:1 208 B short" in shown
    assert "shares its device with 1 more" in shown


def test_a_pattern_or_a_prefix_lists_ops_by_start_time(
    pesto: Pesto, files: tuple[Path, Path]
) -> None:
    assert [row["op"] for row in explained(pesto, *files, "[bcd]")] == ["b", "c", "d"]
    whole = pesto("explain", *files, "*")
    assert whole.out.startswith("4 ops match '*'\n\n  op ")
    assert explained(pesto, *files, "?")[3]["cause"].startswith("the transfer of an output of 'c'")


def test_an_unknown_op_is_refused_with_similar_names(
    pesto: Pesto, tmp_path: Path, diamond: Problem
) -> None:
    graph = OpGraph.build(["lstm/MatMul", "lstm/BiasAdd"])
    profile = tmp_path / "p.profile.json"
    write_profile(profile, Profile(on_gpus(graph, [1, 1])))
    placement = placed(tmp_path / "p.json", dict.fromkeys(graph.names, "GPU:0"), [0, 1])
    for wanted, alike in (("lstm/MatMil", "lstm/MatMul"), ("biasadd", "lstm/BiasAdd")):
        refused = pesto("explain", profile, placement, wanted)
        assert refused.code == 2
        assert f"no op {wanted!r}" in refused.err
        assert f"did you mean {alike!r}" in refused.err
    with pytest.raises(BadInputError, match="'lstm/' matches 2 ops"):
        api.explain(api.read_profile(profile), api.read_placement(placement), "lstm/")


def test_a_name_inside_a_while_loop_is_refused_with_the_name_of_the_loop() -> None:
    names = ["l0/while/LoopCond", "l1/while/LoopCond", "gradients/b_count_2", "out"]
    graph = labelled(OpGraph.build(names, types=["While"] * 3 + ["Add"]))
    for wanted, loop in (
        ("l0/while/MatMul", "l0/while/LoopCond"),
        ("gradients/l0/while/MatMul", "gradients/b_count_2"),
    ):
        with pytest.raises(BadInputError, match=f"inside the while loop '{loop}', which is one op"):
            matching_ops(graph, wanted)
    with pytest.raises(BadInputError) as refused:
        matching_ops(graph, "l0/MatMul")
    assert "while loop" not in str(refused.value)


def test_without_an_op_the_critical_path_is_summed_up(
    pesto: Pesto, files: tuple[Path, Path]
) -> None:
    step = explained(pesto, *files)
    assert step["makespan_us"] == 16
    for sums in ("by_place", "by_cause", "by_type"):
        assert sum(part["time_us"] for part in step[sums]) == 16
        assert sum(part["num_pieces"] for part in step[sums]) == 5
    places = {part["name"]: part["time_us"] for part in step["by_place"]}
    assert places == {"GPU:0": 2, "GPU:1": 10, "GPU:0 -> GPU:1": 2, "GPU:1 -> GPU:0": 2}
    assert [piece["op"] for piece in step["pieces"]] == ["a", "a", "c", "c", "d"]
    shown = pesto("explain", *files).out
    assert "The last op ends at 16.00 us. The critical path of the schedule has 5 segments" in shown


@pytest.mark.parametrize("seed", range(8))
def test_what_if_schedules_are_valid_and_unchanged_on_the_present_device(seed: int) -> None:
    plain = random_problem(seed, 12, memory=False, num_devices=3)
    problem = every_third_contended(plain, seed)
    rng = np.random.default_rng(seed)
    simulator = Simulator(problem)
    device = random_placement(problem, seed)
    schedule = simulator.list_schedule(device, rng.random(12))
    for op in range(12):
        group = problem.graph.colocation_group == problem.graph.colocation_group[op]
        for to in np.flatnonzero(problem.allowed[op]).tolist():
            found = what_if(simulator, schedule, op, to)
            for each in (found.kept, found.dispatched):
                assert (each.device == np.where(group, to, device)).all()
                assert violations(problem, each) == []
            if to == device[op]:
                assert (found.kept.start_us == schedule.start_us).all()
