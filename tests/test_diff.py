"""Tests of `pesto diff`: differences between two placements."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import Pesto, on_gpus, two_gpus

from pesto_cli.data.graph import OpGraph, Tensor
from pesto_cli.data.symmetry import interchangeable
from pesto_cli.diff import Move, placement_diff
from pesto_cli.files import PlacementFile, Profile, write_placement, write_profile
from pesto_cli.files.job_summary import MAX_BYTES, append_summary
from pesto_cli.report.scopes import counts_by_scope, scopes_of

DEVICES = ["CPU:0", "GPU:0", "GPU:1"]


def placed(*queues: str, devices: list[str] = DEVICES) -> PlacementFile:
    """Return a placement; each string has the ops of a device in order, one letter for each."""
    rows = [(op, d, rank) for d, ops in enumerate(queues) for rank, op in enumerate(ops)]
    names, device, rank = (list(column) for column in zip(*rows, strict=True))
    return PlacementFile(devices, names, device, rank, [], {}, {})


def test_moves_additions_and_order_are_separate_differences() -> None:
    changes = placement_diff(placed("", "abcdef", "uvwx"), placed("", "acbdef", "uvxnw"))
    assert (changes.moved, changes.renamed) == ((), {})
    assert changes.reordered == {"CPU:0": 0, "GPU:0": 1, "GPU:1": 1}
    assert (changes.only_in_first, changes.only_in_second) == ((), ("n",))
    changes = placement_diff(placed("", "abcdef", "uvwx"), placed("", "abcde", "fuvw"))
    assert changes.moved == (Move("f", "GPU:0", "GPU:1"),)
    assert changes.only_in_first == ("x",)
    assert set(changes.reordered.values()) == {0}


def test_placements_with_hardly_an_op_in_both_are_of_two_models() -> None:
    one = placed("", "abcdefghij", "klmnopqrst")
    assert placement_diff(one, placed("", "0123456789", "ABCDEFGHIt")).are_of_two_models
    assert not placement_diff(one, placed("", "0123456789", "ABCDEFGHst")).are_of_two_models
    assert not placement_diff(one, placed("", "ab", "")).are_of_two_models


def test_renamed_devices_do_not_count_as_moves() -> None:
    changes = placement_diff(placed("r", "abcd", "uvwx"), placed("r", "uvw", "abcdx"))
    assert changes.renamed == {"GPU:0": "GPU:1", "GPU:1": "GPU:0"}
    assert changes.moved == (Move("x", "GPU:0", "GPU:1"),)


def test_a_device_is_matched_only_with_one_of_its_kind() -> None:
    changes = placement_diff(placed("abcd", "", ""), placed("", "abcd", ""))
    assert not changes.renamed
    assert len(changes.moved) == 4


def test_devices_keep_their_match_if_a_machine_gets_more_devices() -> None:
    after = placed("", "ab", "uv", "w", devices=[*DEVICES, "GPU:2"])
    changes = placement_diff(placed("", "ab", "uvw"), after)
    assert not changes.renamed
    assert changes.moved == (Move("w", "GPU:1", "GPU:2"),)


def test_scopes_with_most_ops_are_opened_up_to_a_limit() -> None:
    names = [f"gradients/layer_{layer}/op_{op}" for layer in range(3) for op in range(9)]
    names += ["gradients/add", "loss", *(f"cell/t_{step}/mul" for step in range(20))]
    scopes = scopes_of(names, most=6)
    assert scopes["gradients/layer_1/op_0"] == "gradients/layer_1"
    assert scopes["gradients/add"] == "gradients/*"
    assert scopes["cell/t_3/mul"] == "cell"
    assert scopes["loss"] == "*"
    many = scopes_of([f"scope_{scope}/op" for scope in range(100)], most=6)
    assert len(set(many.values())) == 6
    assert counts_by_scope({"new": ["a/x", "a/y"], "gone": ["b/z"]}) == [
        ("a", [2, 0]),
        ("b", [0, 1]),
    ]


def three_ops(tmp_path: Path) -> tuple[Path, list[Path]]:
    """A profile of a -> b, c with 1000 bytes; a placement on one GPU, and one with c on another."""
    graph = OpGraph.build(["a", "b", "c"], [Tensor(0, 1000, [1, 2])])
    profile = tmp_path / "profile.json"
    write_profile(profile, Profile(on_gpus(graph, [1, 10, 10])))
    paths = [tmp_path / "one.json", tmp_path / "two.json"]
    for path, placement in zip(paths, (placed("", "abc"), placed("", "ab", "c")), strict=True):
        write_placement(path, placement)
    return profile, paths


def test_figures_are_computed_from_the_profile(pesto: Pesto, tmp_path: Path) -> None:
    profile, paths = three_ops(tmp_path)
    done = pesto("diff", *paths, "--profile", profile, "--format", "json")
    assert done.code == 0
    found = json.loads(done.out)
    assert found["moved"] == [{"op": "c", "src": "GPU:0", "dst": "GPU:1", "work_us": 10.0}]
    # 1 + 10 + 10 us on one device; the transfer takes 1 us and 1 us for 1000 bytes.
    assert (found["before"]["step_us"], found["after"]["step_us"]) == (21.0, 13.0)
    assert found["slower_by"] == pytest.approx(13 / 21 - 1)
    assert found["after"]["sent_bytes"] == [{"src": "GPU:0", "dst": "GPU:1", "bytes": 1000}]
    assert found["after"]["peak_bytes"] == {"CPU:0": 0, "GPU:0": 1000, "GPU:1": 1000}
    text = pesto("diff", *paths, "--profile", profile).out
    assert "\n\nPredicted\n" in text
    assert "\n\nMoved\n" in text
    assert "\n\n\n" not in text


def test_figures_that_a_file_lacks_are_unknown(pesto: Pesto, tmp_path: Path) -> None:
    _, paths = three_ops(tmp_path)
    done = pesto("diff", *paths)
    assert done.code == 0
    assert "?" in done.out
    refused = pesto("diff", *paths, "--max-regression", "2%")
    assert refused.code == 2
    assert "has no predicted step time" in refused.err


def test_a_regression_ends_with_1_and_a_percentage_must_be_one(
    pesto: Pesto, tmp_path: Path
) -> None:
    profile, (one, two) = three_ops(tmp_path)
    by = ("--profile", profile, "--max-regression")
    assert pesto("diff", one, two, *by, "2%").code == 0
    slower = pesto("diff", two, one, *by, "2%", "--quiet")
    assert (slower.code, slower.out) == (1, "")
    assert "61.5% slower" in slower.err
    assert pesto("diff", two, one, *by, "62%").code == 0
    assert pesto("diff", two, one, *by, "0.02").code == 2


def test_a_profile_of_neither_placement_is_refused(
    pesto: Pesto, tmp_path: Path, diamond_profile: Path
) -> None:
    _, paths = three_ops(tmp_path)
    done = pesto("diff", *paths, "--profile", diamond_profile)
    assert done.code == 2
    assert "are not those of either placement" in done.err


def test_markdown_is_valid_for_any_name(pesto: Pesto, tmp_path: Path) -> None:
    names = ["a|b/`c`", "<b>/x", "n\nl/y"]
    first = replace(placed("", "abc"), names=names)
    paths = [tmp_path / "1.json", tmp_path / "2.json"]
    write_placement(paths[0], first)
    write_placement(paths[1], replace(first, device=[0, 0, 0]))
    done = pesto("diff", *paths, "--format", "md")
    rows = [line for line in done.out.splitlines() if line.startswith("| ")]
    assert r"| a\|b | GPU:0 | CPU:0 | 1 |" in rows
    assert "| &lt;b&gt; | GPU:0 | CPU:0 | 1 |" in rows
    assert r"| n\\nl | GPU:0 | CPU:0 | 1 |" in rows


def test_summaries_are_appended_and_stop_at_the_limit(pesto: Pesto, tmp_path: Path) -> None:
    _, paths = three_ops(tmp_path)
    summary = tmp_path / "summary.md"
    for _ in range(2):
        assert pesto("diff", *paths, "--summary", summary, "--quiet").code == 0
    text = summary.read_text()
    assert text.count("### one.json -&gt; two.json") == 2
    append_summary(summary, "<details>\n" + "row\n" * MAX_BYTES + "</details>\n")
    cut = summary.read_text()
    assert cut.startswith(text)
    assert MAX_BYTES - 10 < len(cut) < MAX_BYTES + 300
    assert cut.count("</details>") == cut.count("<details>")
    left_out = MAX_BYTES + 2 - cut[len(text) :].count("row\n") - 1
    assert f"{left_out:,} more lines" in cut
    assert pesto("diff", *paths, "--summary", tmp_path, "--quiet").code == 2


def test_devices_of_a_profile_are_renamed_only_if_they_are_interchangeable() -> None:
    graph = OpGraph.build(list("abcd"))
    alike, unlike = (
        on_gpus(graph, [1] * 4, replace(two_gpus(), devices=(*two_gpus().devices[:2], last)))
        for last in (two_gpus().devices[2], replace(two_gpus().devices[2], speed=0.5))
    )
    first, second = placed("", "abcd", ""), placed("", "", "abcd")
    assert placement_diff(first, second, alike).moved == ()
    assert len(placement_diff(first, second, unlike).moved) == 4


def test_devices_with_different_transfer_overhead_are_not_interchangeable() -> None:
    machine = two_gpus()
    between = [link for link in machine.links if {link.src, link.dst} == {"GPU:0", "GPU:1"}]
    assert interchangeable(on_gpus(OpGraph.build(["a"]), [1], machine)) == [[1, 2]]
    lossy = replace(between[0], comm=replace(between[0].comm, sender_us=100.0))
    links = tuple(lossy if link is between[0] else link for link in machine.links)
    unlike = replace(machine, links=links)
    assert interchangeable(on_gpus(OpGraph.build(["a"]), [1], unlike)) == []


def test_a_placement_names_each_device_once(pesto: Pesto, tmp_path: Path) -> None:
    _, (one, two) = three_ops(tmp_path)
    two.write_text(two.read_text().replace('"GPU:1"', '"GPU:0"'))
    done = pesto("diff", one, two)
    assert done.code == 2
    assert "devices are CPU:0, GPU:0, GPU:0; unique names were expected" in done.err


def test_a_device_without_ops_can_be_renamed(pesto: Pesto, tmp_path: Path) -> None:
    profile, paths = three_ops(tmp_path)
    write_placement(paths[1], placed("", "", "abc"))
    done = pesto("diff", *paths, "--profile", profile, "--json")
    found = json.loads(done.out)
    assert found["renamed_devices"] == {"GPU:0": "GPU:1", "GPU:1": "GPU:0"}
    assert found["moved"] == []
    text = pesto("diff", *paths, "--profile", profile).out
    (peak,) = (line.split() for line in text.splitlines() if "GPU:1 peak" in line)
    assert peak == ["GPU:1", "peak", "1000", "B", "1000", "B", "same"]


def test_if_a_device_is_removed_the_others_keep_their_names(pesto: Pesto, tmp_path: Path) -> None:
    first, second = placed("", "a", "bc"), placed("", "abc", devices=DEVICES[:2])
    changes = placement_diff(first, second)
    assert changes.renamed == {}
    assert [move.op for move in changes.moved] == ["b", "c"]
    _, paths = three_ops(tmp_path)
    smaller = tmp_path / "smaller.json"
    machine = two_gpus()
    links = tuple(link for link in machine.links if "GPU:1" not in (link.src, link.dst))
    graph = OpGraph.build(["a", "b", "c"], [Tensor(0, 1000, [1, 2])])
    one_gpu = replace(machine, devices=machine.devices[:2], links=links)
    write_profile(smaller, Profile(on_gpus(graph, [1, 10, 10], one_gpu)))
    write_placement(paths[0], replace(first, predicted={"step_us": 12.0}))
    write_placement(paths[1], second)
    done = pesto("diff", *paths, "--profile", smaller, "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert (found["before"]["step_us"], found["after"]["step_us"]) == (12.0, 21.0)


def test_a_slowdown_is_relative_to_the_stored_prediction_of_the_old_placement(
    pesto: Pesto, tmp_path: Path
) -> None:
    profile, (one, two) = three_ops(tmp_path)
    write_placement(one, replace(placed("", "abc"), predicted={"step_us": 10.0}))
    by = ("--profile", profile, "--max-regression", "2%")
    done = pesto("diff", one, two, *by)
    assert done.code == 1
    assert "30.0% slower" in done.err
    (row,) = (line.split() for line in done.out.splitlines() if "step us" in line)
    assert row == ["step", "us", "10.00", "21.00", "13.00", "+30.0%"]
    assert "compared with the prediction stored in the first one" in done.out
