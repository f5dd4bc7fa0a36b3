"""`pesto place`: the four steps in one command, and what a second call does not do again."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import Outcome, Pesto, Write

from pesto_cli import api
from pesto_cli.cli.place import gain_text
from pesto_cli.data.problem import Problem
from pesto_cli.data.solution import PlanSet
from pesto_cli.files import Profile, read_placement
from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.report.times import time_text

QUICK = ("--time-limit", 0.1, "--deterministic")
# Two towers of dense layers; `build` gives the training step.
PROGRAM = """
import tensorflow as tf

def tower(name, inputs):
    with tf.compat.v1.variable_scope(name):
        for layer in range(WIDTHS):
            weights = tf.compat.v1.get_variable(f"w{layer}", [512, 512])
            inputs = tf.nn.relu(inputs @ weights)
    return inputs

def build():
    inputs = tf.random.normal([256, 512], seed=1)
    loss = tf.reduce_mean(tower("left", inputs) * tower("right", inputs))
    return tf.compat.v1.train.GradientDescentOptimizer(0.1).minimize(loss)
"""
FILES = ("graph.meta", "placement.json", "profile.json")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "towers.py"
    path.write_text(PROGRAM.replace("WIDTHS", "3"))
    return path


@pytest.fixture
def place(pesto: Pesto, tmp_path: Path, model: Path) -> Pesto:
    """Place the towers, unless another source is given."""

    def run(*options: object, source: object = "", machine: object = "v100x2-nvlink") -> Outcome:
        output = tmp_path / "placed.meta"
        source = source or f"{model}:build"
        return pesto("place", source, "-m", machine, "-o", output, *QUICK, *options)

    return run


def reused(outcome: Outcome) -> list[str]:
    assert outcome.code == 0, outcome.err
    found: list[str] = json.loads(outcome.out)["reused"]
    return found


def contents(tmp_path: Path) -> dict[str, bytes]:
    folder = tmp_path / "placed.pesto"
    assert sorted(path.name for path in folder.iterdir()) == list(FILES)
    return {name: (folder / name).read_bytes() for name in FILES}


@pytest.mark.parametrize("parts", [(), ("--parts", "2,4")], ids=["whole", "parts"])
def test_it_gives_what_the_single_commands_give(
    parts: tuple[str, ...], pesto: Pesto, place: Pesto, model: Path, tmp_path: Path
) -> None:
    assert place(*parts).code == 0
    graph, profile, placement, placed = (
        tmp_path / f"single.{n}" for n in ("meta", "p", "q", "placed.meta")
    )
    assert pesto("export", f"{model}:build", "-o", graph).code == 0
    assert pesto("profile", graph, "-m", "v100x2-nvlink", "-o", profile, *parts).code == 0
    assert pesto("solve", profile, "-o", placement, *QUICK).code == 0
    assert pesto("apply", graph, placement, "-o", placed).code == 0
    found = contents(tmp_path)
    assert found["graph.meta"] == graph.read_bytes()
    assert found["profile.json"] == profile.read_bytes()
    assert json.loads(found["placement.json"]) == json.loads(placement.read_bytes())
    assert (tmp_path / "placed.meta").read_bytes() == placed.read_bytes()


def test_a_result_is_shown_with_baselines_and_next_steps(
    place: Pesto, pesto: Pesto, model: Path, tmp_path: Path
) -> None:
    shown = place()
    assert [line.split()[0] for line in shown.out.splitlines() if "feasible" in line] == [
        *("single", "expert", "pesto")
    ]
    assert "times as fast as expert. No placement of whole ops on this machine takes" in shown.out
    for text in ("export ", "profile ", "apply ", "pesto report", "pesto explain", "pesto compare"):
        assert text in shown.err
    assert "import_meta_graph" in shown.err
    graph_alone = ("-o", tmp_path / "placed.pb", "-m", "v100x2-nvlink", *QUICK)
    assert "import_meta_graph" not in pesto("place", f"{model}:build", *graph_alone).err
    quiet = place("--quiet")
    assert (quiet.code, quiet.out, quiet.err) == (0, "", "")


def test_the_predicted_step_time_includes_the_overhead_of_a_step(diamond: Problem) -> None:
    machine = replace(diamond.machine, step_overhead_us=1000.0)
    single = api.solve(Profile(replace(diamond, machine=machine)), "single")
    step_us, bound_us = single.makespan_us + 1000, single.lower_bound_us + 1000
    assert gain_text([single, single]) == (
        f"Predicted step time: {time_text(step_us)}, of which 1.000 ms is overhead, 1.00 times as "
        f"fast as single. No placement of whole ops on this machine takes less than "
        f"{time_text(bound_us)}."
    )


def test_the_bound_is_said_to_hold_for_what_was_allowed(diamond: Problem) -> None:
    result = api.solve(Profile(diamond), "single")
    of_all_plans = replace(result.solution, bound_holds_for=PlanSet.ALL_PLANS)
    for solution, is_constrained, placements in (
        (of_all_plans, False, "No placement on this machine"),
        (of_all_plans, True, "No placement that these options allow on this machine"),
        (result.solution, True, "No placement of whole ops that these options allow on"),
    ):
        found = replace(result, solution=solution)
        assert placements in gain_text([result, found], is_constrained=is_constrained)


def test_a_second_call_keeps_the_bound_that_the_search_proved(place: Pesto, tmp_path: Path) -> None:
    assert reused(place("--json")) == []
    path = tmp_path / "placed.pesto" / "placement.json"
    record = json.loads(path.read_text())
    record["predicted"]["lower_bound_us"] = record["predicted"]["makespan_us"]
    path.write_text(json.dumps(record))
    second = json.loads(place("--json").out)
    assert second["reused"] == ["profile", "solve"]
    assert [result["status"] for result in second["results"]] == [
        *("feasible", "feasible", "optimal")
    ]


def test_a_second_call_reuses_what_is_fresh(place: Pesto, tmp_path: Path) -> None:
    assert reused(place("--json")) == []
    before = contents(tmp_path)
    (tmp_path / "placed.meta").unlink()
    assert reused(place("--json")) == ["profile", "solve"]
    assert contents(tmp_path) == before
    assert (tmp_path / "placed.meta").exists()
    damaged = tmp_path / "placed.pesto" / "placement.json"
    damaged.write_bytes(before["placement.json"][:200])
    assert reused(place("--json")) == ["profile"]
    assert contents(tmp_path) == before


def test_what_has_changed_is_done_again(place: Pesto, tmp_path: Path) -> None:
    assert reused(place("--json")) == []
    assert reused(place("--json", "--seed", 1)) == ["profile"]
    assert reused(place("--json", "--seed", 1, "--time-limit", 0.05)) == ["profile", "solve"]
    assert reused(place("--json", "--seed", 1, "--time-limit", 0.2)) == ["profile"]
    earlier = read_placement(tmp_path / "placed.pesto" / "placement.json")
    other = place("--json", machine="v100x2-pcie")
    assert reused(other) == []
    assert "starts from the earlier placement: 100% of ops" in other.err
    started = read_placement(tmp_path / "placed.pesto" / "placement.json")
    assert started.provenance["parameters"]["warm_start"] == earlier.file_hash


def test_a_deeper_model_starts_from_the_placement_of_the_shallower_one(
    place: Pesto, model: Path
) -> None:
    assert reused(place("--json")) == []
    model.write_text(PROGRAM.replace("WIDTHS", "4"))
    deeper = place("--json")
    assert reused(deeper) == []
    assert "starts from the earlier placement: " in deeper.err
    assert "100% of ops" not in deeper.err


def test_constraints_hold_and_are_part_of_what_is_asked(place: Pesto, tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text('[[pin]]\nops = "left/*"\ndevice = "GPU:1"\n')
    assert reused(place("--json")) == []
    assert reused(place("--json", "--constraints", rules)) == ["profile"]
    placed = read_placement(tmp_path / "placed.pesto" / "placement.json")
    rows = zip(placed.names, placed.device, strict=True)
    left = {placed.devices[device] for name, device in rows if name.startswith("left/")}
    assert left == {"GPU:1"}
    assert reused(place("--json", "--constraints", rules)) == ["profile", "solve"]
    assert reused(place("--json")) == ["profile"]


@pytest.mark.parametrize("asked", [("max_parts", 2), ("random", "local"), ("batch_norm", "local")])
def test_what_parts_may_compute_is_part_of_what_is_asked(
    asked: tuple[str, object], place: Pesto, tmp_path: Path
) -> None:
    name, value = asked
    option = f"--{name.replace('_', '-')}"
    assert reused(place("--json", "--parts", "2,4")) == []
    assert reused(place("--json", "--parts", "2,4", option, value)) == ["profile"]
    placed = read_placement(tmp_path / "placed.pesto" / "placement.json")
    assert placed.provenance["parameters"][name] == value
    assert placed.plan.num_parts <= 2 or name != "max_parts"
    assert reused(place("--json", "--parts", "2,4", option, value)) == ["profile", "solve"]


def test_a_written_graph_is_a_source_too_and_a_page_is_written(
    pesto: Pesto, place: Pesto, model: Path, tmp_path: Path
) -> None:
    graph, page = tmp_path / "a.meta", tmp_path / "page.html"
    assert pesto("export", f"{model}:build", "-o", graph).code == 0
    taken = "is also an input or another output"
    assert taken in place("--report", tmp_path / "placed.pesto", source=graph).err
    shown = place("--report", page, source=graph)
    assert shown.code == 0
    assert taken in place("--report", tmp_path / "placed.pesto" / FILES[0], source=graph).err
    assert "<html" in page.read_text()[:200]
    assert "pesto explain" in shown.err
    assert "pesto report" not in shown.err


def test_a_split_that_the_user_chose_is_compared_with_whole_ops(
    place: Pesto, tmp_path: Path
) -> None:
    rules, page = tmp_path / "rules.toml", tmp_path / "page.html"
    rules.write_text('[[split]]\nops = "*"\nparts = 2\n')
    shown = place("--parts", 2, "--constraints", rules, "--report", page)
    assert shown.code == 0, shown.err
    assert [line.split()[0] for line in shown.out.splitlines() if "feasible" in line] == [
        *("single", "expert", "pesto")
    ]
    assert "compared with whole ops" in page.read_text()
    again = place("--parts", 2, "--constraints", rules, "--json")
    assert reused(again) == ["profile", "solve"]


def test_a_graph_by_another_program_is_exported(place: Pesto, tmp_path: Path) -> None:
    graph, frozen = tmp_path / "open.meta", tmp_path / "frozen.pb"
    tf = tensorflow()
    with tf.Graph().as_default():
        data = tf.compat.v1.placeholder(tf.float32, [None, 8], name="data")
        tf.io.write_graph(tf.nn.relu(data).graph, str(tmp_path), frozen.name, as_text=False)
        loss = tf.reduce_mean(data @ tf.compat.v1.get_variable("weights", [8, 8]))
        tf.compat.v1.train.GradientDescentOptimizer(0.1).minimize(loss)
        tf.compat.v1.train.export_meta_graph(str(graph))
    refused = place(source=graph)
    assert refused.code == 2
    assert "--feed data=32,8" in refused.err
    assert not (tmp_path / "placed.pesto").exists()
    assert reused(place("--json", "--feed", "data=4,8", source=graph)) == []
    assert reused(place("--json", "--feed", "data=4,8", source=frozen)) == []
    kept = tmp_path / "placed.pesto" / "graph.meta"
    assert reused(place("--json", source=kept)) == ["profile", "solve"]


def test_a_placed_graph_is_refused(place: Pesto, pesto: Pesto, tmp_path: Path) -> None:
    assert place().code == 0
    again = tmp_path / "again.meta"
    argv = ("place", tmp_path / "placed.meta", "-m", "v100x2-nvlink", "-o", again)
    for options in ((), ("--fetch", "GradientDescent")):
        refused = pesto(*argv, *options)
        assert refused.code == 2
        assert "is a placed graph" in refused.err
        assert "(placed.pesto)" in refused.err
    assert not again.with_suffix(".pesto").exists()


def test_a_signature_of_a_saved_model_is_placed(place: Pesto, tmp_path: Path) -> None:
    tf = tensorflow()
    module = tf.Module()
    module.weights = tf.Variable(tf.ones([8, 8]))
    specs = [tf.TensorSpec([4, 8])]
    serve = tf.function(lambda data: {"out": data @ module.weights}, input_signature=specs)
    add = tf.function(
        lambda data: {"out": module.weights.assign_add(tf.transpose(data) @ data)},
        input_signature=specs,
    )
    tf.saved_model.save(module, str(tmp_path / "saved"), {"serve": serve, "add": add})
    refused = place(source=tmp_path / "saved")
    assert refused.code == 2
    assert "2 signatures (add, serve)" in refused.err
    assert "--signature NAME" in refused.err
    shown = place("--signature", "add", source=tmp_path / "saved")
    assert shown.code == 0
    assert "train nothing" not in shown.err


def test_a_bad_machine_is_refused_before_the_script_runs(place: Pesto, script: Write) -> None:
    source = f"{script('raise RuntimeError')}:build"
    assert "RuntimeError" in place(source=source).err
    for machine in ("local-workers:0", "gone.toml"):
        refused = place(source=source, machine=machine)
        assert refused.code == 2
        assert refused.err.startswith(f"Error: machine {machine!r}")


def test_two_calls_do_not_use_one_folder_at_the_same_time(
    place: Pesto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    second: list[Outcome] = []
    solve = api.solve

    def with_a_second_call(*args: object, **options: object) -> object:
        monkeypatch.setattr(api, "solve", solve)
        second.append(place())
        return solve(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(api, "solve", with_a_second_call)
    assert place().code == 0
    assert second[0].code == 5
    assert "placed.pesto is in use by another call" in second[0].err
    assert sorted(contents(tmp_path)) == list(FILES)


def test_the_next_call_continues_an_interrupted_search(
    place: Pesto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    solve = api.solve

    def stopped(*args: object, **options: object) -> object:
        args[2].limits.stop.set()  # type: ignore[attr-defined]
        return solve(*args, **options)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(api, "solve", stopped)
        ended = place("--json")
    assert ended.code == 130
    assert "has the best placement so far" in ended.err
    assert (tmp_path / "placed.meta").exists()
    assert reused(place("--json")) == ["profile"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"machine": "v100x3"}, "v100x2-nvlink"),
        ({"source": "zoo:RNLM-tiny"}, "RNLM-tiny"),
        ({"source": "towers.py:missing"}, "towers.py"),
        ({"source": "gone.py:build"}, "gone.py"),
        ({"machine": "local-workers:0"}, "from 1 to 64 was expected"),
    ],
)
def test_nothing_is_left_where_the_input_is_bad(
    place: Pesto, tmp_path: Path, options: dict[str, str], message: str, model: Path
) -> None:
    ended = place(**options)  # type: ignore[call-arg]
    assert ended.code == 2
    assert message in ended.err
    assert {path.name for path in tmp_path.iterdir()} <= {model.name, "__pycache__"}


@pytest.mark.parametrize("command", [("place", "-m", "v100x2-nvlink"), ("export",)])
def test_the_script_is_not_overwritten(pesto: Pesto, model: Path, command: tuple[str, ...]) -> None:
    text = model.read_text()
    ended = pesto(*command, f"{model}:build", "-o", model)
    assert ended.code == 2
    assert model.read_text() == text


def test_a_model_of_the_zoo_with_other_arguments_is_placed_anew(place: Pesto) -> None:
    name = "zoo:RNNLM-tiny@steps=1,batch=2"
    assert reused(place("--json", source=name)) == []
    assert "profile" in reused(place("--json", source=name))
    assert reused(place("--json", source="zoo:RNNLM-tiny@steps=1,batch=3")) == []


def test_an_output_without_room_for_the_folder_is_refused(
    pesto: Pesto, place: Pesto, tmp_path: Path
) -> None:
    ended = pesto("place", "zoo:RNNLM-tiny", "-m", "v100x2-nvlink", "-o", "/dev/stdout")
    assert ended.code == 2
    assert "the path of a file was expected" in ended.err
    ended = pesto("place", "zoo:RNNLM-tiny", "-m", "v100x2-nvlink", "-o", tmp_path / "a.pesto")
    assert ended.code == 2
    assert "such as" in ended.err
    assert "a.meta" in ended.err
    (tmp_path / "placed.pesto").write_text("mine")
    ended = place()
    assert ended.code == 2
    assert "choose another name for the output" in ended.err
    assert (tmp_path / "placed.pesto").read_text() == "mine"


def test_a_model_that_fits_nowhere_ends_with_3(place: Pesto, tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text("headroom = 1e-6\n")
    ended = place("--constraints", rules)
    assert ended.code == 3
    assert not (tmp_path / "placed.meta").exists()


def test_measured_op_times_are_reused_on_the_same_devices(place: Pesto) -> None:
    assert reused(place("--json", machine="local-workers:2")) == []
    assert reused(place("--json", machine="local-workers:2")) == ["profile", "solve"]


def test_a_robust_search_needs_measured_times(place: Pesto) -> None:
    failed = place("--robust")
    assert failed.code == 2
    assert "all samples would be equal" in failed.err
