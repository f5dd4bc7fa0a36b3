"""`pesto run`: real TensorFlow steps follow their placement, are timed and compared."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Pesto
from test_apply_in_tensorflow import round_robin_placement
from training_graphs import exported
from two_cpus import FULL, NAMES, TwoCpus, two_cpus

from pesto_cli import api
from pesto_cli.apply import planned_changes
from pesto_cli.cluster import Cluster
from pesto_cli.data.steps import StepTimes
from pesto_cli.errors import BadInputError
from pesto_cli.files import PlacementFile, Profile, write_placement, write_profile
from pesto_cli.graphdef.containers import write_meta_graph
from pesto_cli.graphdef.read import read_step
from pesto_cli.report.runs import RunRow, busy_note
from pesto_cli.report.step_warnings import step_warnings
from pesto_cli.runtime import comparison
from pesto_cli.runtime.interleaved import Turns, interleaved
from pesto_cli.runtime.scripts import run_script_on
from pesto_cli.runtime.spans import Span, busy_us, idle_us, spans
from pesto_cli.runtime.step import opened
from pesto_cli.runtime.verify import Departure, verified

SCRIPT = Path(__file__).parent.parent / "examples" / "train_v1.py"


@pytest.fixture(scope="module")
def rnnlm() -> Any:
    return api.export("zoo:RNNLM-tiny")


@pytest.fixture(scope="module")
def placed(rnnlm: Any) -> PlacementFile:
    return round_robin_placement(read_step(rnnlm), two_cpus().machine)


def counter(tf: Any) -> Sequence[Any]:
    """Build a graph that counts its steps in a variable: the loss; its other fetch is large."""
    tf1 = tf.compat.v1
    count = tf1.get_variable("count", [], initializer=tf1.zeros_initializer(), use_resource=True)
    large = tf.fill([1000, 1000], 1.0, name="large")
    return [large, tf.add(count.assign_add(1.0), 0.0, name="loss")]


def test_graphs_run_alternately_each_with_its_own_variables() -> None:
    one, other = interleaved(TwoCpus("", FULL), [exported(counter)] * 2, Turns(10, num_warm_up=3))
    for runs in (one, other):
        assert runs.losses == tuple(range(1, 14))
        assert runs.us.shape == (2, 5)
        assert (runs.us > 0).all()


@pytest.mark.parametrize(("steps", "in_a_row"), [(50, 5), (8, 4), (7, 1), (1, 1)])
def test_the_steps_in_a_row_divide_the_number_of_steps(steps: int, in_a_row: int) -> None:
    assert Turns(steps).num_in_a_row == in_a_row


def test_a_large_fetch_is_computed_but_not_sent_to_the_client() -> None:
    with opened(TwoCpus("", FULL), exported(counter)) as step:
        assert step.run().loss == 1
        (outputs,) = (
            run.output
            for device in step.traced().step_stats.dev_stats
            for run in device.node_stats
            if run.node_name == "large"
        )
        assert outputs
        assert [tensor.name for tensor in step._losses] == ["loss:0"]


def test_a_placed_graph_runs_as_planned_with_equal_losses(
    rnnlm: Any, placed: PlacementFile
) -> None:
    plain, spread = api.run_steps(rnnlm, two_cpus(), [None, placed], steps=4)
    assert spread.times.losses == plain.times.losses
    assert len(set(spread.times.losses)) == len(spread.times.losses) == 9
    assert min(spread.times.busy_us.values()) > 0
    assert plain.times.busy_us[NAMES[1]] == 0
    found = spread.verification
    assert found.departures == ()
    assert found.num_ops > 400
    assert found.num_nodes > found.num_ops
    assert plain.verification.num_nodes == 0


@pytest.fixture(scope="module")
def ran(rnnlm: Any, placed: PlacementFile) -> list[Span]:
    """Return the spans of one step under the placement."""
    with opened(TwoCpus("", FULL), api.apply(rnnlm, placed, devices=FULL)) as step:
        step.run()
        return spans(step.traced(), rnnlm.graph_def)


def departures(rnnlm: Any, placed: PlacementFile, ran: list[Span]) -> tuple[Departure, ...]:
    changes = planned_changes(rnnlm, placed, devices=FULL)
    return verified(rnnlm, placed, changes, ran).departures


def test_a_node_on_another_device_is_found(
    rnnlm: Any, placed: PlacementFile, ran: list[Span]
) -> None:
    matmul = next(span for span in ran if span.node.endswith("MatMul"))
    (elsewhere,) = {*FULL.values()} - {matmul.device}
    moved = [replace(span, device=elsewhere) if span is matmul else span for span in ran]
    assert departures(rnnlm, placed, ran) == ()
    assert departures(rnnlm, placed, moved) == (Departure(matmul.node, matmul.device, elsewhere),)


def test_an_op_that_starts_before_the_end_of_the_previous_op_is_found(
    rnnlm: Any, placed: PlacementFile, ran: list[Span]
) -> None:
    here = [span for span in ran if span.device == FULL[NAMES[0]] and "MatMul" in span.node]
    ahead, early = here[3], here[4]
    rushed = replace(early, start_us=ahead.start_us - 1)
    found = departures(rnnlm, placed, [rushed if span is early else span for span in ran])
    assert {each.name for each in found} == {early.node}
    assert found[0].planned.startswith("after ")


def test_idle_time_is_between_ops_and_not_before_or_after_them() -> None:
    def span(device: str, start_us: float, end_us: float) -> Span:
        return Span(f"{device} at {start_us}", device, start_us, end_us, end_us - start_us)

    ran = [span("a", 5, 7), span("b", 6, 8), span("a", 6, 10), span("a", 12, 13), span("b", 9, 20)]
    assert idle_us(ran, "a") == 2
    assert idle_us(ran, "b") == 1
    assert busy_us(ran) == {"a": 7, "b": 13}


def test_a_placement_for_other_devices_is_refused(rnnlm: Any) -> None:
    other = round_robin_placement(read_step(rnnlm), api.read_machine("v100x2-nvlink"))
    found = r"it uses CPU:0, GPU:0, GPU:1, the machine has CPU:0"
    with pytest.raises(BadInputError, match=rf"{found}.*pesto apply --devices"):
        api.run_steps(rnnlm, two_cpus(), [other])
    with pytest.raises(BadInputError, match=found) as of_a_script:
        run_script_on(TwoCpus("", FULL), SCRIPT, [], other)
    assert "--devices" not in str(of_a_script.value)  # `run` has no such option


def test_a_graph_that_is_placed_on_other_devices_is_refused(
    rnnlm: Any, placed: PlacementFile
) -> None:
    elsewhere = api.apply(rnnlm, placed, devices={"CPU:0": "CPU:0", "CPU:1": "/device:GPU:3"})
    with pytest.raises(BadInputError, match=r"on /device:GPU:3, the machine has /job:localhost"):
        api.run_steps(elsewhere, two_cpus(), [None])


def test_a_graph_that_tensorflow_cannot_run_is_refused() -> None:
    def build(tf: Any) -> Sequence[Any]:
        checked = tf.debugging.assert_equal(tf.compat.v1.placeholder(tf.int32, [], name="x"), 1)
        return [checked]

    with pytest.raises(BadInputError, match="TensorFlow cannot run the step: assertion failed: "):
        api.run_steps(exported(build), two_cpus(), [None])


@pytest.fixture
def files(
    rnnlm: Any, placed: PlacementFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """Write a graph and its placement; replace every machine by the two devices of this process."""

    @contextmanager
    def connected(spec: str, *, open_ports: bool = False) -> Iterator[Cluster]:
        assert spec == "here"
        assert not open_ports
        yield two_cpus()

    monkeypatch.setattr(api, "connected", connected)
    monkeypatch.setattr(api, "is_live", lambda spec: spec == "here")
    write_meta_graph(tmp_path / "graph.meta", rnnlm)
    write_placement(tmp_path / "placed.json", placed)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def profile(rnnlm: Any) -> Profile:
    return api.profile_by_run(rnnlm, two_cpus(), steps=3)


@pytest.fixture
def profiled(files: Path, profile: Profile) -> Path:
    write_profile(files / "graph.profile.json", profile)
    return files / "graph.profile.json"


def test_a_live_machine_is_profiled_by_real_steps(files: Path, pesto: Pesto) -> None:
    done = pesto("profile", "graph.meta", "-m", "here", "--steps", 3, "-o", "graph.profile.json")
    assert done.code == 0
    provenance = api.read_profile("graph.profile.json").provenance
    assert (provenance["source"], provenance["num_runs"]) == ("run", 3)


def test_strategies_and_placements_are_run_and_compared(profiled: Path, pesto: Pesto) -> None:
    run = ("run", "graph.meta", "-m", "here", "--steps", 10, "--profile", profiled)
    shown = pesto(*run, "--compare", "single,expert,placed.json", "--verify")
    assert shown.code == 0
    for word in ("single", "expert", "placed.json", "predicted", "95 %", "loss"):
        assert word in shown.out
    assert shown.err.count("ops in their order.") == 3
    records = json.loads(pesto(*run, "--compare", "single,placed.json", "--json").out)
    overhead_us = api.read_profile(profiled).problem.machine.step_overhead_us
    for record in records:
        assert np.shape(record["steps_us"]) == (2, 5)
        assert record["predicted_us"] > overhead_us > 0
        assert record["verification"]["departures"] == []


def test_a_graph_without_devices_runs_with_a_note_that_it_is_not_placed(
    files: Path, pesto: Pesto
) -> None:
    run = ("run", "graph.meta", "-m", "here", "--steps", 1)
    done = pesto(*run)
    assert (done.code, "graph.meta is not placed: TensorFlow chose the" in done.err) == (0, True)
    assert pesto(*run, "--quiet").err == ""
    assert "is not placed" not in pesto(*run, "--placement", "placed.json").err


def test_a_placed_graph_runs_with_a_note_that_names_its_placement(
    files: Path, pesto: Pesto
) -> None:
    names = (f"{old}={new}" for old, new in zip(NAMES, FULL.values(), strict=True))
    devices = ("--devices", ",".join(names))
    assert pesto("apply", "graph.meta", "placed.json", "-o", "placed.meta", *devices).code == 0
    run = ("run", "placed.meta", "-m", "here", "--steps", 1)
    found = pesto(*run)
    assert "two files: pesto run GRAPH -m here --placement PLACEMENT" in found.err
    folder = files / "placed.pesto"
    folder.mkdir()
    for name, kept in (("graph.meta", "graph.meta"), ("placed.json", "placement.json")):
        (folder / kept).write_bytes((files / name).read_bytes())
    assert "--placement placed.pesto/placement.json" in pesto(*run).err


def test_a_busy_share_above_100_percent_is_explained() -> None:
    def row(busy_us: float) -> RunRow:
        return RunRow("graph", StepTimes(np.array([[100.0]]), (), {"a": busy_us, "b": 1.0}))

    assert busy_note([row(99.0), row(104.0)]) == ""
    assert "above 100 % if a device ran several ops at once" in busy_note([row(99.0), row(160.0)])


def test_op_times_that_explain_little_of_a_step_cause_a_warning() -> None:
    def notes(ops_us: float, num_devices: int = 1) -> list[str]:
        step = {"kind": "CPU", "num_devices": num_devices, "ops_us": ops_us, "step_us": 200.0}
        step["quartiles_us"] = [190.0, 210.0]
        return list(step_warnings({"reconciled": [step]}))

    assert notes(160.0) == notes(100.0, num_devices=2) == []
    assert list(step_warnings({"source": "analytic"})) == []
    (note,) = notes(100.0)
    assert note.startswith("op times are only 50% of an untraced step on one CPU, where 80%")


def test_steps_that_vary_cause_a_warning() -> None:
    def notes(low_us: float, high_us: float, num_devices: int = 1) -> list[str]:
        step = {"kind": "CPU", "num_devices": num_devices, "ops_us": 1.9e4, "step_us": 2e4}
        step["quartiles_us"] = [low_us, high_us]
        return list(step_warnings({"reconciled": [step]}))

    assert notes(1.9e4, 2.1e4) == []
    assert notes(1.9e4, 2.6e4) == notes(1.9e4, 2.6e4, num_devices=2)
    (note,) = notes(1.9e4, 2.6e4)
    assert note.startswith("untraced steps vary: the middle half of them took 19.000 to 26.000 ms")


def test_without_a_profile_the_prediction_is_that_of_the_placement(
    files: Path, pesto: Pesto
) -> None:
    run = ("run", "graph.meta", "-m", "here", "--steps", 1, "--json", "--placement", "placed.json")
    (record,) = json.loads(pesto(*run).out)
    assert (
        record["predicted_us"]
        == json.loads(Path("placed.json").read_text())["predicted"]["step_us"]
    )


def test_verify_fails_and_lists_departures_if_tensorflow_departs_from_the_plan(
    files: Path, pesto: Pesto, monkeypatch: pytest.MonkeyPatch
) -> None:
    def with_changes(meta: Any, changes: Any) -> Any:
        all_here = dict.fromkeys(changes.device, FULL[NAMES[0]])
        return api_with_changes(meta, replace(changes, device=all_here))

    api_with_changes: Callable[[Any, Any], Any] = comparison.with_changes
    monkeypatch.setattr(comparison, "with_changes", with_changes)
    run = ("run", "graph.meta", "-m", "here", "--steps", 1, "--placement", "placed.json")
    done = pesto(*run, "--verify")
    assert done.code == 1
    assert f"planned {FULL[NAMES[1]]}, ran {FULL[NAMES[0]]}" in done.err
    assert "more" in done.err
    assert pesto(*run).code == 0


def test_invalid_requests_are_refused(files: Path, profile: Profile, pesto: Pesto) -> None:
    run = ("run", "graph.meta", "-m", "here")
    machine = profile.problem.machine
    faster = tuple(replace(device, kind="Xeon") for device in machine.devices)
    elsewhere = replace(profile.problem, machine=replace(machine, devices=faster), kinds=("Xeon",))
    write_profile("other.profile.json", replace(profile, problem=elsewhere))
    predicted = ("--profile", "other.profile.json")
    for options, message in (
        (("--compare", "single"), "a strategy needs op times"),
        (("--compare", "singel", *predicted), "neither a strategy nor a file"),
        (("--compare", "single,,expert", *predicted), "'single,,expert' has an empty entry"),
        (("--compare", "placed.json,placed.json"), "names placed.json twice"),
        (
            ("--compare", "single", "--placement", "placed.json"),
            "--placement does not go with --compare; add the placement to --compare: --compare "
            "single,placed.json",
        ),
        (("--placement", "placed.json", "--profile", "other.profile.json"), "of another machine"),
        (("--placement", "expert"), "expert does not exist"),
        (("--verify", "--steps", 1), "sets no device"),
        (("--feeds", "none.npz"), "none.npz does not exist"),
    ):
        refused = pesto(*run, *options)
        assert refused.code == 2
        assert message in refused.err


def test_on_two_workers_of_this_host(rnnlm: Any) -> None:
    with api.connected("local-workers:2") as cluster:
        profile = api.profile_by_run(rnnlm, cluster, steps=5)
        (single,) = api.compare(profile, ["single"])
        placements = [
            api.placement(profile, single),
            round_robin_placement(read_step(rnnlm), cluster.machine),
        ]
        runs = api.run_steps(rnnlm, cluster, placements, steps=5)
    assert runs[0].times.losses == runs[1].times.losses
    assert min(runs[1].times.busy_us.values()) > 0
    assert [run.verification.departures for run in runs] == [(), ()]


def test_a_script_trains_on_two_workers_as_planned(tmp_path: Path, pesto: Pesto) -> None:
    graph, placement = tmp_path / "towers.meta", tmp_path / "towers.placement.json"
    assert pesto("export", SCRIPT, "--capture", "-o", graph, "--quiet").code == 0
    meta = api.read_meta_graph(graph)
    with api.connected("local-workers:2") as cluster:
        machine = cluster.machine
    write_placement(placement, round_robin_placement(read_step(meta), machine))
    run = ("run", SCRIPT, "-m", "local-workers:2", "--placement", placement, "--verify")
    done = pesto(*run, "--json", "--", "--steps", 4)
    assert done.code == 0, done.err
    (record,) = json.loads(done.out)
    assert len(record["steps_us"][0]) == 2
    assert min(record["busy_us"].values()) > 0
    assert record["verification"]["num_ops"] > 50


def test_options_that_do_not_go_with_a_script_are_refused(pesto: Pesto) -> None:
    run = ("run", SCRIPT, "-m", "local-workers:2")
    for options, message in (
        ((), "which needs --placement"),
        (("--placement", SCRIPT, "--compare", "single"), "--compare does not go with a script"),
        (("--placement", SCRIPT, "--feeds", "a.npz"), "--feeds does not go with a script"),
        (("--placement", SCRIPT, "--steps", 9), "--steps does not go with a script"),
        (("--tune", 9, "--warm-up", 9), "--warm-up does not go with a script"),
    ):
        refused = pesto(*run, *options)
        assert refused.code == 2
        assert message in refused.err
    refused = pesto("run", "none.py", "-m", "local-workers:2", "--placement", SCRIPT)
    assert (refused.code, "none.py does not exist" in refused.err) == (2, True)
    refused = pesto("run", "graph.meta", "-m", "local-workers:2", "--", "--steps", "4")
    assert (refused.code, "are for a script" in refused.err) == (2, True)
