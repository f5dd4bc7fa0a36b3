"""Tests of profiles of version 2, of labels derived for version 1, and of refused values."""

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import jsonschema
import networkx as nx
import numpy as np
import pytest
import training_graphs
from conftest import on_gpus
from training_graphs import exported

from pesto_cli import api
from pesto_cli.data.graph import OpGraph, Tensor
from pesto_cli.data.inputs import NO_TENSOR, Inputs
from pesto_cli.data.labels import Compound, Labels, Phase, Role
from pesto_cli.data.plan import WHOLE_OPS, Choice, Plan
from pesto_cli.errors import BadInputError
from pesto_cli.files import Profile, read_placement, read_profile, write_placement, write_profile
from pesto_cli.files.networkx_graphs import problem_from_networkx, to_networkx
from pesto_cli.files.plan import PlacedParts
from pesto_cli.files.tensorflow_names import labelled
from pesto_cli.graphdef.read import read_step

EXAMPLES = Path(__file__).parents[1] / "examples"
SCHEMAS = Path(__file__).parents[1] / "docs" / "schemas"


def columns(value: Any) -> dict[str, Any]:
    """Return all fields of a graph as lists, with those of its labels and inputs."""
    found: dict[str, Any] = {}
    for each in fields(value):
        column = getattr(value, each.name)
        if isinstance(column, Labels | Inputs):
            found |= {f"{each.name}.{name}": row for name, row in columns(column).items()}
        else:
            found[each.name] = column.tolist() if isinstance(column, np.ndarray) else column
    return found


def everything() -> OpGraph:
    """Return a graph with repeated and unordered inputs, inputs without tensor, all labels."""
    return OpGraph.build(
        ["x", "square", "join", "loop", "out"],
        [
            Tensor(1, 40, [2], shape=(None, 10), dtype="float32"),
            Tensor(0, 40, [1, 2, 4], shape=(1, 10), dtype="float32"),
            Tensor(2, 80, [3], dtype="int32"),
            Tensor(3, 8, [4], shape=()),
        ],
        labels=Labels.build(
            ["x", "square", "join", "loop", "out"],
            role=["feed", None, "update", "variable", "fetch"],
            phase=["forward", "forward", "backward", "update", None],
            compound=[None, "call", "conditional", "loop", None],
            forward_op=[None, None, "square", None, None],
            scope=[None, "", "layer_0/square", None, "layer_0"],
            repetition=[None, "step_0", "step_1", None, None],
        ),
        inputs=Inputs.build([[], [1, 1], [0, None, 1], [2, None], [3, 1]]),
    )


def reread(profile: Profile, tmp_path: Path) -> Profile:
    write_profile(tmp_path / "again.profile.json", profile)
    return read_profile(tmp_path / "again.profile.json")


def test_a_profile_keeps_every_column(tmp_path: Path) -> None:
    graph = everything()
    back = reread(Profile(on_gpus(graph, [1.0] * 5)), tmp_path).problem.graph
    assert columns(back) == columns(graph)
    assert back.inputs is not None
    assert list(back.inputs.rows()) == [[], [0, 0], [1, None, 0], [2, None], [3, 0]]
    assert back.inputs.slot.tolist() == [0, 1, 0, 1, 2, 0, 1, 0, 1]


def test_a_networkx_graph_keeps_every_column() -> None:
    problem = on_gpus(everything(), [1.0] * 5)
    assert columns(problem_from_networkx(to_networkx(problem)).graph) == columns(problem.graph)


def test_files_are_as_their_schemas_say(tmp_path: Path) -> None:
    profile = reread(Profile(on_gpus(everything(), [1.0] * 5)), tmp_path)
    placed = tmp_path / "placement.json"
    write_placement(placed, api.placement(profile, api.solve(profile, "single")))
    for path, name in ((tmp_path / "again.profile.json", "profile"), (placed, "placement")):
        schema = json.loads((SCHEMAS / f"{name}.schema.json").read_text())
        value = json.loads(path.read_text())
        jsonschema.validate(value, schema)
        value["version"] = 7
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(value, schema)


@pytest.mark.parametrize("strategy", ["expert", "m-etf", "round-robin"])
def test_an_old_profile_gives_the_same_results_once_it_is_written_anew(
    tmp_path: Path, strategy: str
) -> None:
    old = read_profile(EXAMPLES / "rnnlm.profile.json.gz")
    new = reread(old, tmp_path)
    assert json.loads((tmp_path / "again.profile.json").read_text())["version"] == 2
    assert columns(new.problem.graph) == columns(old.problem.graph)
    one, other = (api.solve(each, strategy).schedule for each in (old, new))
    assert one.device.tolist() == other.device.tolist()
    assert one.start_us.tolist() == other.start_us.tolist()


def test_a_graph_and_its_old_profile_have_the_same_labels(tmp_path: Path) -> None:
    graph = read_step(exported(training_graphs.convnet)).graph
    problem = on_gpus(graph, [1.0] * graph.num_ops)
    path = tmp_path / "old.profile.json"
    write_profile(path, Profile(problem))
    value = json.loads(path.read_text())
    value["version"] = 1
    for name in ("role", "phase", "compound", "forward_op", "scope", "repetition"):
        value["ops"].pop(name, None)
    path.write_text(json.dumps(value))
    assert columns(read_profile(path).problem.graph.labels) == columns(graph.labels)
    assert set(graph.labels.role.tolist()) == set(map(int, Role))
    assert set(graph.labels.phase.tolist()) == set(map(int, Phase))


NAMED: Mapping[str, tuple[str, Phase, str | None, str | None, str | None]] = {
    "layer_0/step_3/MatMul": ("MatMul", Phase.FORWARD, None, "step_3", None),
    "layer_0/update_gate/Tanh": ("Tanh", Phase.FORWARD, None, None, None),
    "gradients/layer_0/step_3/MatMul_grad/MatMul_1": (
        *("MatMul", Phase.BACKWARD, "layer_0/step_3/MatMul_grad", "step_3"),
        "layer_0/step_3/MatMul",
    ),
    "gradient_tape/layer_0/update_gate/Tanh/TanhGrad": (
        *("TanhGrad", Phase.BACKWARD, "layer_0/update_gate/Tanh", None, "layer_0/update_gate/Tanh"),
    ),
    "gradients/AddN": ("AddN", Phase.BACKWARD, "", None, None),
    "clip/Mul": ("Mul", Phase.UPDATE, None, None, None),
    "train/update_layer_0/kernel/ResourceApplyAdam": (
        *("ResourceApplyAdam", Phase.UPDATE, "layer_0/kernel", None, None),
    ),
}


def test_scopes_are_derived_from_tensorflow_names() -> None:
    names = list(NAMED)
    types = [row[0] for row in NAMED.values()]
    clipped = [(names.index("gradients/AddN"), names.index("clip/Mul"))]
    labels = labelled(OpGraph.build(names, types=types, control_edges=clipped)).labels
    for op, (_, *expected) in enumerate(NAMED.values()):
        found = [labels.phase[op], labels.scope[op], labels.repetition[op], labels.forward_op[op]]
        assert found == expected, names[op]
    layers = dict(zip(names, labels.layer_paths(names), strict=True))
    assert layers["layer_0/step_3/MatMul"] == ("layer_0", "MatMul")
    assert layers["gradients/layer_0/step_3/MatMul_grad/MatMul_1"][:2] == ("layer_0", "MatMul_grad")
    assert layers["train/update_layer_0/kernel/ResourceApplyAdam"][:2] == ("layer_0", "kernel")


@pytest.mark.parametrize(
    ("op_type", "role", "compound"),
    [
        ("Placeholder", Role.FEED, Compound.NONE),
        ("_Retval", Role.FETCH, Compound.NONE),
        ("VarHandleOp", Role.VARIABLE, Compound.NONE),
        ("ResourceApplyAdam", Role.UPDATE, Compound.NONE),
        ("ResourceSparseApplyMomentum", Role.UPDATE, Compound.NONE),
        ("AssignSubVariableOp", Role.UPDATE, Compound.NONE),
        ("AssignAdd", Role.UPDATE, Compound.NONE),
        ("ResourceScatterAdd", Role.UPDATE, Compound.NONE),
        ("ScatterNd", Role.COMPUTE, Compound.NONE),
        ("ReadVariableOp", Role.COMPUTE, Compound.NONE),
        ("StatelessWhile", Role.COMPUTE, Compound.LOOP),
        ("Case", Role.COMPUTE, Compound.CONDITIONAL),
        ("StatefulPartitionedCall", Role.COMPUTE, Compound.CALL),
    ],
)
def test_roles_are_derived_from_tensorflow_types(
    op_type: str, role: Role, compound: Compound
) -> None:
    labels = labelled(OpGraph.build(["op"], types=[op_type])).labels
    assert (labels.role[0], labels.compound[0]) == (role, compound)


def test_the_reader_fills_slots_shapes_and_element_types() -> None:
    def build(tf: Any) -> list[Any]:
        fed = tf.compat.v1.placeholder(tf.float32, [4, 6], name="fed")
        product = tf.matmul(fed, tf.transpose(fed, [1, 0], name="turned"), name="product")
        square = tf.multiply(product, product, name="square")
        return [tf.reshape(tf.subtract(square, product, name="less"), [2, 8], name="flat")]

    graph = read_step(exported(build)).graph
    assert graph.inputs is not None

    def taken(name: str) -> list[str | None]:
        row = graph.inputs[graph.index_of[name]] if graph.inputs is not None else []
        return [
            None if each == NO_TENSOR else graph.names[graph.tensor_producer[each]] for each in row
        ]

    assert taken("turned") == ["fed", None]
    assert taken("product") == ["fed", "turned"]
    assert taken("square") == ["product", "product"]
    assert taken("less") == ["square", "product"]
    assert taken("flat") == ["less", None]
    made = {graph.names[op]: row for row, op in enumerate(graph.tensor_producer.tolist())}
    assert graph.tensor_shape[made["turned"]] == (6, 4)
    assert graph.tensor_shape[made["flat"]] == (2, 8)
    assert graph.tensor_dtype[made["flat"]] == "float32"


def test_the_inputs_of_a_while_loop_are_those_of_its_nodes_from_outside() -> None:
    graph = read_step(exported(training_graphs.recurrent)).graph
    assert graph.inputs is not None
    (loop,) = np.flatnonzero(graph.labels.compound == Compound.LOOP)[:1]
    assert len(graph.inputs[loop]) > 2
    assert loop not in graph.tensor_producer[graph.inputs[loop][graph.inputs[loop] >= 0]]


def test_a_front_end_without_tensorflow_names_fills_the_columns(tmp_path: Path) -> None:
    """No type or name is one of TensorFlow's."""
    graph = nx.MultiDiGraph()
    for number, part in enumerate(("enc.1", "enc.2", "dec.1", "dec.2")):
        graph.add_node(f"mm:{number}", time_us=100, scope=f"{part[:3]}/layer_{part[-1]}")
    for number in reversed(range(4)):
        graph.add_node(
            f"mm_back:{number}",
            time_us=200,
            phase="backward",
            forward_op=f"mm:{number}",
            scope=graph.nodes[f"mm:{number}"]["scope"],
        )
    graph.add_node("input", time_us={"CPU": 0}, role="feed")
    nx.add_path(graph, ["input", *list(graph)[:-1]], bytes=8)
    profile = api.from_networkx(graph, "v100x2-nvlink")
    profile = reread(profile, tmp_path)
    assert profile.problem.is_feed.tolist() == [*[False] * 8, True]
    schedule = api.solve(profile, "expert").schedule
    device = dict(zip(profile.problem.graph.names, schedule.device.tolist(), strict=True))
    for number in range(4):  # gradients are on the device of their layer
        assert device[f"mm:{number}"] == device[f"mm_back:{number}"]
    assert api.solve(profile, "m-topo").schedule.device[0] == device["mm:0"]


def test_version_2_does_not_derive_feeds_from_types(tmp_path: Path) -> None:
    graph = OpGraph.build(["x"], types=["Placeholder"])
    assert not reread(Profile(on_gpus(graph, [1.0])), tmp_path).problem.is_feed.any()


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ("ops['role']['values'][0] = 'food'", "op 'x' has role 'food'; one of compute, feed"),
        ("ops['phase'] = ['forward'] * 4", "ops.phase has 4 entries, 5"),
        ("ops['phase'] = ['sideways'] * 5", "op 'x' has phase 'sideways'; one of forward"),
        (
            "ops['scope']['index'][2] = 9",
            "ops.scope.index has 9; an index below the number of values, 4",
        ),
        ("ops['scope']['values'][0] = [1]", r"ops.scope.repeated.values.0 is \[1\]; a text was"),
        ("ops['inputs'].pop()", "ops.inputs has 4 entries, 5"),
        ("ops['inputs'][4] = [3]", "op 'out' takes tensor 0 in tensors.consumers, but not in"),
        ("ops['inputs'][0] = [2]", "op 'x' takes tensor 2 in ops.inputs, but not in tensors.cons"),
        ("ops['inputs'][1] = [0, 99]", "ops.inputs names tensor 99; an index between -1 and 3"),
        (
            "tensors['shape']['values'][0] = [-1]",
            "tensors.shape.repeated.values.0.0 is -1; a number",
        ),
        ("tensors['shape'] = []", "tensors.shape has 0 entries, 4"),
        ("tensors['dtype'] = ['a']", "tensors.dtype has 1 entries, 4"),
    ],
)
def test_a_wrong_column_is_named(tmp_path: Path, edit: str, message: str) -> None:
    path = tmp_path / "odd.profile.json"
    write_profile(path, Profile(on_gpus(everything(), [1.0] * 5)))
    value = json.loads(path.read_text())
    exec(edit, {"ops": value["ops"], "tensors": value["tensors"]})
    path.write_text(json.dumps(value))
    with pytest.raises(BadInputError, match=message):
        read_profile(path)


def test_a_placement_keeps_its_plan_and_parts_and_reads_version_1(tmp_path: Path) -> None:
    profile = Profile(on_gpus(everything(), [1.0] * 5))
    path = tmp_path / "placement.json"
    placed = api.placement(profile, api.solve(profile, "single"))
    plan, row = (
        Plan({placed.names[0]: Choice("rows", (3, 5))}, hosts=(0, 1)),
        range(len(placed.names)),
    )
    parts = PlacedParts(placed.names, [*row], [-1 for _ in row])
    write_placement(path, replace(placed, plan=plan, parts=parts))
    back = read_placement(path)
    assert (back.plan, back.parts) == (plan, parts)
    value = json.loads(path.read_text())
    assert value.pop("version") == 2
    del value["plan"], value["parts"]
    path.write_text(json.dumps(value | {"version": 1}))
    assert read_placement(path).plan == WHOLE_OPS
    assert read_placement(path).match(profile.problem).device.tolist() == list(placed.device)
