"""A fed tensor is in host memory; it is cut where the parts arrive first."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

import numpy as np
import pytest
from split_training import trained
from training_graphs import exported

from pesto_cli import api
from pesto_cli.apply.splitting import split_graph
from pesto_cli.data.machine import Machine
from pesto_cli.data.plan import Choice, Plan
from pesto_cli.data.specs import CUTS, Operand, OpSpec
from pesto_cli.files import Profile
from pesto_cli.graphdef.spec_nodes import node_def
from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.profile import profile
from pesto_cli.sharding import added_ops, pieces
from pesto_cli.sharding.new_ops import NewOps, Ref
from pesto_cli.sharding.pieces import cut
from pesto_cli.sharding.problems import rewritten

CUT = "data.split_0_2"


def fed_graph(columns: int, num_rows: int = 2**16) -> Any:
    """Return a MetaGraphDef of one op. Its input is a fed tensor of so many rows."""

    def fed(tf: Any) -> list[Any]:
        data = tf.compat.v1.placeholder(tf.float32, [num_rows, columns], name="data")
        return [tf.exp(data, name="exp")]

    return exported(fed)


def fed_profile(columns: int) -> Profile:
    """Return the profile of `fed_graph`.

    The host reads and writes memory more slowly than it sends to a GPU.
    """
    machine: Machine = api.read_machine("v100x2-nvlink")
    host = replace(machine.kinds["CPU"], bandwidth_gb_s=4.0)
    machine = replace(machine, kinds={**machine.kinds, "CPU": host})
    return profile(fed_graph(columns), machine, parts=(2,))


def test_a_fed_tensor_may_be_cut_on_its_host_and_on_gpus() -> None:
    problem = fed_profile(16).problem
    half = 2**15
    new = rewritten(problem, Plan({"exp": Choice("axis 0", (half, half))})).problem
    cut, gpu = new.graph.names.index(CUT), new.kinds.index("GPU")
    assert np.isnan(problem.time_us[problem.graph.names.index("data"), gpu])
    assert (new.time_us[cut] > 0).all()


@pytest.mark.parametrize(("columns", "device"), [(16, "CPU:0"), (15, "GPU:0"), (17, "CPU:0")])
def test_a_feed_is_cut_on_its_host_unless_copying_there_takes_longer(
    columns: int, device: str
) -> None:
    # Rows of 64 bytes are cut without a copy. The tensor with rows of 68 bytes is large enough for
    # a view, and the one with rows of 60 bytes is not.
    found = api.solve(fed_profile(columns), strategy="data-parallel")
    names, devices = found.problem.graph.names, found.problem.machine.devices
    assert devices[found.schedule.device[names.index(CUT)]].name == device


def test_both_cuts_of_a_feed_are_on_its_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "SMALL_CONSTANT_ELEMENTS", 2)
    machine = api.read_machine("v100x4-nvlink")
    priced = profile(fed_graph(17, 4 * 16_376 + 1), machine, parts=(4,))
    found = api.solve(priced, strategy="data-parallel")
    names, devices = found.problem.graph.names, found.problem.machine.devices
    on = {name: devices[found.schedule.device[op]].name for op, name in enumerate(names)}
    cut = "data.split_0_of_16377_16376_16376_16376"
    assert [on[f"{cut}.{each}"] for each in ("first", "of_0", "of_1")] == ["CPU:0"] * 3


def test_each_large_part_of_a_feed_is_cut_on_its_host() -> None:
    machine = api.read_machine("v100x4-nvlink")
    priced = profile(fed_graph(17, 4 * 2**16 + 1), machine, parts=(4,))
    found = api.solve(priced, strategy="data-parallel")
    names, devices = found.problem.graph.names, found.problem.machine.devices
    on = {name: devices[found.schedule.device[op]].name for op, name in enumerate(names)}
    cuts = [name for name in names if name.startswith("data.split_0_of_65537_65536")]
    assert [(name[-7:], on[name]) for name in cuts] == [(f".part_{i}", "CPU:0") for i in range(4)]


LARGE = Operand((64, 299, 299, 3), "float32")


def cut_ops(operand: Operand, axis: int, extents: tuple[int, ...]) -> NewOps:
    """Return the ops that cut the output 0 of op 0."""
    ops = NewOps()
    ops.add("data", (), serves=0, origin=0)

    def add(name: str, inputs: Sequence[Ref | None], spec: OpSpec) -> int:
        return ops.add(name, inputs, serves=0, spec=spec)

    parts = cut(add, "data.split", operand, axis, extents, (0, 0))
    found = [(ops.specs[op], output) for op, output in parts]
    shapes = [spec.outputs[output].shape for spec, output in found if spec is not None]
    assert shapes == [operand.resized(axis, extent).shape for extent in extents]
    return ops


def types_of(ops: NewOps) -> list[str]:
    return [spec.type for spec in ops.specs if spec is not None]


@pytest.mark.parametrize(
    ("extents", "split"), [((16, 48), "SplitV"), ((32, 32), "Split"), ((16,) * 4, "Split")]
)
def test_large_rows_that_are_aligned_together_are_cut_through_a_view(
    extents: tuple[int, ...], split: str
) -> None:
    ops = cut_ops(LARGE, 0, extents)
    assert types_of(ops) == ["Reshape", split, *["Reshape"] * len(extents)]
    cut_spec = ops.specs[2]
    assert cut_spec is not None
    assert cut_spec.shares_memory


@pytest.mark.parametrize(
    "extents", [(8,) * 8, (4,) * 16, (7, 9, 9, 7), (9, 7, 17, 31), (24, 40), (61, 4)]
)
def test_large_parts_that_are_not_aligned_are_cut_one_by_one(extents: tuple[int, ...]) -> None:
    ops = cut_ops(LARGE.resized(0, sum(extents)), 0, extents)
    slices = [spec for spec in ops.specs if spec is not None]
    assert {spec.type for spec in slices} == {"Slice"}
    assert [spec.outputs[0].sizes[0] for spec in slices] == list(extents)
    begins = [spec.inputs[1].value for spec in slices]
    assert begins == [(begin, 0, 0, 0) for begin in accumulate(extents[:-1], initial=0)]


@pytest.mark.parametrize(
    ("operand", "axis", "extents"),
    [
        pytest.param(LARGE, 0, (1, 63), id="a small part"),
        pytest.param(LARGE.resized(1, 304), 1, (152, 152), id="another axis"),
        pytest.param(Operand((64, 224, 224, 3), "float32"), 0, (32, 32), id="aligned rows"),
        pytest.param(Operand((64, 15), "float32"), 0, (32, 32), id="a small tensor"),
    ],
)
def test_other_tensors_are_cut_as_they_are(
    operand: Operand, axis: int, extents: tuple[int, ...]
) -> None:
    assert len(types_of(cut_ops(operand, axis, extents))) == 1


def test_the_parts_of_a_view_have_the_rows_of_the_tensor() -> None:
    meta, found = fed_graph(17), fed_profile(17)
    placed = api.placement(found, api.solve(found, strategy="data-parallel"))
    host = "/device:CPU:0"
    split = api.apply(meta, placed, devices={"CPU:0": host, "GPU:0": host, "GPU:1": host})
    assert f"{CUT}.view" in {node.name for node in split.graph_def.node}
    ((whole,),) = trained(meta, 1).fetched
    ((parts,),) = trained(split, 1).fetched
    assert np.array_equal(parts, whole)


def test_parts_that_are_cut_one_by_one_have_the_rows_of_the_tensor() -> None:
    meta = fed_graph(17, 2**18)
    sizes = (65_529, 65_543, 65_536, 65_536)
    split = split_graph(meta, Plan({"exp": Choice("axis 0", sizes)}))
    cuts = {node.name for node in split.graph_def.node if node.op in CUTS}
    assert cuts == {f"data.split_0_of_65529_65543_65536_65536.part_{i}" for i in range(4)}
    ((whole,),) = trained(meta, 1).fetched
    ((parts,),) = trained(split, 1).fetched
    # The last elements of a part are computed one by one, and others as vectors.
    np.testing.assert_array_max_ulp(parts, whole, maxulp=2)


def _cuts() -> dict[str, OpSpec]:
    def tensor(*sizes: int, dtype: str = "float32") -> Operand:
        return Operand(sizes, dtype)

    return {
        "rows of 64 bytes": added_ops.split(tensor(8, 16), 0, (4, 4)),
        "rows of 60 bytes": added_ops.split(tensor(8, 15), 0, (4, 4)),
        "rows of 64 bytes in three dimensions": added_ops.split(tensor(8, 4, 4), 0, (2,) * 4),
        "rows of 64 bytes of doubles": added_ops.split(tensor(8, 8, dtype="float64"), 0, (4, 4)),
        "columns": added_ops.split(tensor(16, 16), 1, (8, 8)),
        "uneven": added_ops.split(tensor(8, 32), 0, (3, 5)),
        "uneven rows of 60 bytes": added_ops.split(tensor(8, 15), 0, (3, 5)),
        "uneven columns": added_ops.split(tensor(8, 32), 1, (16, 8, 8)),
        "slice": added_ops.sliced(tensor(8, 16), 0, 2, 3),
        "slice of rows of 60 bytes": added_ops.sliced(tensor(8, 15), 0, 1, 3),
        "slice of columns": added_ops.sliced(tensor(8, 32), 1, 16, 16),
    }


@pytest.mark.parametrize("name", list(_cuts()))
def test_tensorflow_copies_nothing_where_a_cut_shares_memory(name: str) -> None:
    spec = _cuts()[name]
    assert spec.shares_memory == _shares_memory_in_tensorflow(spec)


def _shares_memory_in_tensorflow(spec: OpSpec) -> bool:
    """Return whether TensorFlow stores all outputs of a cut in the buffer of its input."""
    tf = tensorflow()
    slot = CUTS[spec.type]
    with tf.Graph().as_default() as graph:
        tensors = [
            tf.constant(operand.value, operand.dtype)
            if operand.value is not None
            else tf.exp(tf.compat.v1.placeholder(operand.dtype, operand.shape, "fed"), "tensor")
            for operand in spec.inputs
        ]
        graph_def = graph.as_graph_def()
        graph_def.node.append(node_def("cut", spec, [tensor.name for tensor in tensors]))
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(graph_def, name="")
        cut, metadata = graph.get_operation_by_name("cut"), tf.compat.v1.RunMetadata()
        with tf.compat.v1.Session() as session:
            session.run(
                cut.outputs,
                {"fed:0": np.zeros(spec.inputs[slot].shape)},
                options=tf.compat.v1.RunOptions(trace_level=3),
                run_metadata=metadata,
            )
    buffers = {
        node.node_name: {
            output.tensor_description.allocation_description.ptr for output in node.output
        }
        for device in metadata.step_stats.dev_stats
        for node in device.node_stats
    }
    assert all(buffers["cut"])
    return buffers["cut"] == buffers["tensor"]
