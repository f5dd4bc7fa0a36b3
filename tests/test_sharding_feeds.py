"""A fed tensor is in host memory; it is cut where the parts arrive first."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from training_graphs import exported

from pesto_cli import api
from pesto_cli.data.machine import Machine
from pesto_cli.data.plan import Choice, Plan
from pesto_cli.data.specs import CUTS, Operand, OpSpec
from pesto_cli.files import Profile
from pesto_cli.graphdef.spec_nodes import node_def
from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.profile import profile
from pesto_cli.sharding import added_ops
from pesto_cli.sharding.problems import rewritten

CUT = "data.split_0_2"


def fed_profile(columns: int) -> Profile:
    """Return the profile of one op. Its input is a fed tensor of 65,536 rows.

    The host reads and writes memory more slowly than it sends to a GPU.
    """

    def fed(tf: Any) -> list[Any]:
        data = tf.compat.v1.placeholder(tf.float32, [2**16, columns], name="data")
        return [tf.exp(data, name="exp")]

    machine: Machine = api.read_machine("v100x2-nvlink")
    host = replace(machine.kinds["CPU"], bandwidth_gb_s=4.0)
    machine = replace(machine, kinds={**machine.kinds, "CPU": host})
    return profile(exported(fed), machine, parts=(2,))


def test_a_fed_tensor_may_be_cut_on_its_host_and_on_gpus() -> None:
    problem = fed_profile(16).problem
    half = 2**15
    new = rewritten(problem, Plan({"exp": Choice("axis 0", (half, half))})).problem
    cut, gpu = new.graph.names.index(CUT), new.kinds.index("GPU")
    assert np.isnan(problem.time_us[problem.graph.names.index("data"), gpu])
    assert (new.time_us[cut] > 0).all()


@pytest.mark.parametrize(("columns", "device"), [(16, "CPU:0"), (15, "GPU:0")])
def test_a_feed_is_cut_on_its_host_unless_copying_there_takes_longer(
    columns: int, device: str
) -> None:
    # A cut of rows of 64 bytes copies nothing.
    found = api.solve(fed_profile(columns), strategy="data-parallel")
    names, devices = found.problem.graph.names, found.problem.machine.devices
    assert devices[found.schedule.device[names.index(CUT)]].name == device


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
