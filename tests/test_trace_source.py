"""The cost source `trace`: real traces in every format, and generated traces of a GPU."""

import gzip
import json
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from gpu_traces import Copy, gpu_step_stats, gpu_trace
from training_graphs import convnet, exported

from pesto_cli.apply import session_config
from pesto_cli.data.machine import CommModel, Device, Link, Machine
from pesto_cli.data.presets import PRESETS, V100
from pesto_cli.errors import BadInputError
from pesto_cli.files import read_profile, write_profile
from pesto_cli.graphdef.containers import write_meta_graph
from pesto_cli.graphdef.read import read_step
from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.profile import profile
from pesto_cli.profile.measured import Measured, TimedTransfer, costs
from pesto_cli.profile.measured.node_names import Match, NodeNames
from pesto_cli.profile.source import CostRequest
from pesto_cli.profile.traces import step_stats
from pesto_cli.profile.traces.received import ReceivedLabel
from pesto_cli.profile.traces.source import read_trace
from pesto_cli.profile.traces.steps import Run, steps_by_repetition

SERVER = PRESETS["v100x2-nvlink"]
NUM_STEPS = 3
TRIPS = 4


def training_step(tf):
    """Build a product, a loop, a conditional with an unused branch, a size that depends on data."""
    tf1 = tf.compat.v1
    fed = tf1.placeholder(tf.float32, [64, 48], name="fed")
    weights = tf1.get_variable("weights", [48, 48], use_resource=True)
    product = tf.matmul(fed, weights, name="product")

    def body(trip, value):
        return trip + 1, tf.tanh(tf.matmul(value, weights, name="inner"))

    looped = tf1.while_loop(lambda trip, _: trip < TRIPS, body, [0, product], name="loop")[1]
    chosen = tf1.cond(tf.reduce_sum(fed) >= 0, lambda: looped * 2.0, lambda: tf.exp(looped))
    values, _ = tf.unique(tf.cast(tf.reshape(chosen, [-1]) > 0, tf.float32), name="distinct")
    text = tf.strings.as_string(tf.reduce_sum(values), name="text")
    loss = tf.reduce_mean(tf.square(chosen), name="loss")
    train = tf1.train.GradientDescentOptimizer(0.1).minimize(loss, name="train")
    return [tf.group(train, text, name="all"), loss]


class Recorded(NamedTuple):
    """A graph, the folder with its traces, and the step stats of each recorded step."""

    meta: object
    folder: Path
    stats: list


def viewer_json(xplane):
    """Convert an XSpace to the JSON of TensorBoard's trace viewer, with TensorFlow's converter."""
    from tensorflow.python.profiler.internal import _pywrap_profiler_plugin as converter

    whole = {"resolution": "0", "full_dma": True, "start_time_ms": "0", "end_time_ms": "1e9"}
    options = {"use_saved_result": False, "trace_viewer_options": whole}
    return converter.xspace_to_tools_data([str(xplane)], "trace_viewer@", options)[0]


def recorded_in(folder, meta):
    """Run a graph and record it in every trace format of TensorFlow."""
    from tensorflow.python.client.timeline import Timeline

    tf = tensorflow()
    tf1 = tf.compat.v1
    for name in ("steps", "timelines", "events"):
        (folder / name).mkdir(parents=True)
    stats = []
    with tf1.Graph().as_default() as graph, tf1.Session(config=session_config()) as session:
        tf1.import_graph_def(meta.graph_def, name="")
        session.run(list(meta.collection_def["init_op"].node_list.value))
        fetches = list(meta.collection_def["train_op"].node_list.value)
        fed = [op.outputs[0] for op in graph.get_operations() if op.type == "Placeholder"]
        feeds = {tensor: np.ones(tensor.shape, tensor.dtype.as_numpy_dtype) for tensor in fed}
        session.run(fetches, feeds)
        writer = tf1.summary.FileWriter(str(folder / "events"))
        options = tf1.RunOptions(trace_level=tf1.RunOptions.FULL_TRACE)
        for step in range(NUM_STEPS):
            metadata = tf1.RunMetadata()
            session.run(fetches, feeds, options, metadata)
            stats.append(metadata.step_stats)
            (folder / "steps" / f"{step}.pb").write_bytes(metadata.SerializeToString())
            timeline = Timeline(metadata.step_stats).generate_chrome_trace_format()
            (folder / "timelines" / f"{step}.json").write_text(timeline)
            writer.add_run_metadata(metadata, f"step {step}", step)
        writer.close()
        tf.profiler.experimental.start(str(folder / "log"))
        for _ in range(NUM_STEPS):
            session.run(fetches, feeds)
        tf.profiler.experimental.stop()
    (xplane,) = (folder / "log").rglob("*.xplane.pb")
    viewer = viewer_json(xplane)
    (folder / "viewer.json").write_bytes(viewer)
    (folder / "viewer.json.gz").write_bytes(gzip.compress(viewer))
    (folder / "host.xplane.pb").write_bytes(xplane.read_bytes())
    return Recorded(meta, folder, stats)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    return recorded_in(tmp_path_factory.mktemp("recorded"), exported(training_step))


@pytest.fixture(scope="module")
def other():
    """The graph of another model."""
    return exported(convnet)


def traced(recorded, name, machine=SERVER, **options):
    return profile(recorded.meta, machine, source=f"trace:{recorded.folder / name}", **options)


def times(found, kind="CPU"):
    column = found.problem.time_us[:, found.problem.kinds.index(kind)]
    return dict(zip(found.problem.graph.names, column.tolist(), strict=True))


def note_on(found, words):
    (note,) = [note for note in found.provenance["notes"] if words in note]
    return note


# Format -> most ops that compute which may be missing in it, not counting the untaken branch:
# TensorFlow's profiler leaves out the ops that it considers cheapest.
FORMATS = {
    "steps": 0,
    "events": 0,
    "timelines": 0,
    "log": 2,
    "host.xplane.pb": 2,
    "viewer.json": 2,
    "viewer.json.gz": 2,
}
BRANCH = ["cond/Exp", "gradients/cond/Exp_grad/mul", "gradients/zeros_1"]


@pytest.mark.parametrize(("form", "lacking"), FORMATS.items())
def test_a_trace_in_any_format_has_the_times_of_the_graph(recorded, form, lacking):
    found = traced(recorded, form)
    coverage = found.provenance["coverage"]
    matched, num_ops = coverage["matched_ops"], coverage["num_ops"]
    time = coverage["matched_us"] / coverage["recorded_us"]
    print(f"{form}: {matched} of {num_ops} ops, {time:.1%} of the time")
    assert found.provenance["num_runs"] == NUM_STEPS
    assert num_ops - len(BRANCH) - lacking <= matched <= num_ops - len(BRANCH)
    assert time > 0.99
    cpu_us = times(found)
    for op in ("product", "loss", "loop/LoopCond", "gradients/product_grad/MatMul_1"):
        assert cpu_us[op] > 0
    assert note_on(found, "ops that compute were measured")


def test_a_trace_gives_op_times_on_a_machine_of_local_workers(tmp_path, recorded, pesto):
    graph, path = tmp_path / "step.meta", tmp_path / "step.profile.json"
    write_meta_graph(graph, recorded.meta)
    source = f"trace:{recorded.folder / 'steps'}"
    done = pesto("profile", graph, "-m", "local-workers:2", "--source", source, "-o", path)
    assert done.code == 0, done.err
    found = read_profile(path)
    names = [device.name for device in found.problem.machine.devices]
    assert names == ["worker:0/CPU:0", "worker:1/CPU:0"]
    assert times(found) == times(traced(recorded, "steps"))


def total_us(stats, nodes):
    """Return the total time of some nodes in each step, from the step stats."""
    return [
        sum(
            row.op_end_rel_nanos - row.op_start_rel_nanos
            for device in step.dev_stats
            for row in device.node_stats
            if row.node_name in nodes
        )
        / 1e3
        for step in stats
    ]


def test_an_op_time_is_the_median_and_a_loop_includes_all_of_its_nodes(recorded):
    found = traced(recorded, "steps")
    step = read_step(recorded.meta)
    loop = step.nodes[step.graph.index_of["loop/LoopCond"]]
    assert {"inner", "loop/LoopCond"} <= {name.split("/")[-1] for name in loop} | set(loop)
    cpu_us = times(found)
    assert cpu_us["product"] == pytest.approx(np.median(total_us(recorded.stats, {"product"})))
    loop_us = np.median(total_us(recorded.stats, set(loop)))
    assert cpu_us["loop/LoopCond"] == pytest.approx(loop_us)


def test_the_profile_file_has_the_spread_of_the_times(tmp_path, recorded):
    found = traced(recorded, "steps")
    path = tmp_path / "step.profile.json"
    write_profile(path, found)
    read = read_profile(path)
    op = read.problem.graph.index_of["product"]
    us = total_us(recorded.stats, {"product"})
    spread = read.spread
    assert spread.runs[op] == NUM_STEPS
    assert spread.min_us["CPU"][op] == pytest.approx(min(us))
    assert spread.mean_us["CPU"][op] == pytest.approx(np.mean(us))
    assert spread.std_us["CPU"][op] == pytest.approx(np.std(us))
    assert np.isnan(spread.std_us["GPU"][op])
    assert read.provenance["coverage"] == found.provenance["coverage"]


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda ops: ops["runs"].pop(), "ops.runs has .* entries, .* expected"),
        (lambda ops: ops["std_us"]["CPU"].pop(), "ops.std_us.CPU has .* entries, .* expected"),
        (
            lambda ops: ops["std_us"]["CPU"].__setitem__(0, -1.0),
            r"ops.std_us.CPU.0 is -1.0; a number greater",
        ),
        (lambda ops: ops["runs"].__setitem__(0, -1), r"ops.runs.0 is -1; a number greater"),
        (lambda ops: ops.pop("runs"), "ops.min_us without ops.runs"),
    ],
)
def test_a_spread_that_does_not_fit_the_ops_is_refused(tmp_path, recorded, edit, message):
    path = tmp_path / "step.profile.json"
    write_profile(path, traced(recorded, "steps"))
    value = json.loads(path.read_text())
    edit(value["ops"])
    path.write_text(json.dumps(value))
    with pytest.raises(BadInputError, match=message):
        read_profile(path)


def test_an_untaken_branch_takes_no_time_and_is_noted(recorded):
    found = traced(recorded, "steps")
    assert [times(found)[name] for name in BRANCH] == [0.0] * len(BRANCH)
    assert ", ".join(map(repr, BRANCH)) in note_on(found, "never ran in the measured steps")


def test_sizes_that_depend_on_data_are_measured(recorded):
    found = traced(recorded, "steps")
    graph = found.problem.graph
    values = graph.op_tensors[graph.index_of["distinct"]]
    assert graph.tensor_bytes[values] in (4, 8)  # one or two distinct numbers of 64 * 48
    assert not [note for note in found.provenance["notes"] if "size" in note]
    static = traced(recorded, "log").problem.graph
    assert static.tensor_bytes[values] == 64 * 48 * 4


def test_a_loop_in_a_profilers_trace_includes_all_its_iterations(recorded):
    """Compare with the sum of the loop's events between one session run and the next."""
    from tensorflow.tsl.profiler.protobuf.xplane_pb2 import XSpace

    space = XSpace.FromString((recorded.folder / "host.xplane.pb").read_bytes())
    plane = next(plane for plane in space.planes if plane.name == "/host:CPU")
    events = sorted(
        (event.offset_ps, event.duration_ps, plane.event_metadata[event.metadata_id].name)
        for line in plane.lines
        for event in line.events
    )
    runs, products = -1, defaultdict(int)
    for _, duration_ps, name in events:
        runs += name == "SessionRun"
        if name.endswith(("inner:MatMul", "inner:_MklMatMul")):
            products[runs] += duration_ps
    assert len(products) == NUM_STEPS
    measured = read_trace(recorded.folder / "host.xplane.pb")
    (row,) = [us for (node, _), us in measured.us.items() if node.endswith("inner")]
    assert row.tolist() == pytest.approx([us / 1e6 for us in products.values()])


def test_the_newest_run_of_a_log_directory_is_read_and_noted(tmp_path, recorded):
    runs = tmp_path / "train" / "plugins" / "profile"
    for run in ("2026_01_02_00_00_00", "2026_11_02_00_00_00"):
        (runs / run).mkdir(parents=True)
        (runs / run / "host.xplane.pb").write_bytes(b"old")
    (runs / run / "host.xplane.pb").write_bytes((recorded.folder / "host.xplane.pb").read_bytes())
    found = profile(recorded.meta, SERVER, source=f"trace:{tmp_path}")
    assert run in note_on(found, "the newest of 2 profiler runs")


def test_traces_of_several_hosts_are_refused(tmp_path, recorded):
    for host in ("a", "b"):
        data = (recorded.folder / "host.xplane.pb").read_bytes()
        (tmp_path / f"{host}.xplane.pb").write_bytes(data)
    with pytest.raises(BadInputError, match="traces of 2 hosts; the trace of one host was exp"):
        profile(recorded.meta, SERVER, source=f"trace:{tmp_path}")


@pytest.mark.parametrize("form", FORMATS)
def test_a_trace_of_another_graph_is_refused(recorded, other, form):
    expected = (
        r"another graph: it has \d+ of the 21 ops .*\d+ of its nodes do not, such as '\S+', '\S+'"
    )
    with pytest.raises(BadInputError, match=expected):
        profile(other, SERVER, source=f"trace:{recorded.folder / form}")


CUT = ["steps/0.pb", "timelines/0.json", "host.xplane.pb", "viewer.json", "viewer.json.gz"]


@pytest.mark.parametrize("name", CUT)
def test_a_trace_that_is_cut_short_is_refused(tmp_path, recorded, name):
    data = (recorded.folder / name).read_bytes()
    path = tmp_path / Path(name).name
    path.write_bytes(data[: len(data) * 2 // 3])
    with pytest.raises(BadInputError, match=r"cut short|truncated"):
        profile(recorded.meta, SERVER, source=f"trace:{path}")


def test_an_event_file_that_is_cut_short_gives_its_complete_steps(tmp_path, recorded):
    (events,) = (recorded.folder / "events").iterdir()
    data = events.read_bytes()
    path = tmp_path / events.name
    path.write_bytes(data[:-100])
    assert read_trace(path).num_steps == NUM_STEPS - 1
    path.write_bytes(data[:100])
    with pytest.raises(BadInputError, match="without any op time"):
        read_trace(path)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty; a RunMetadata"),
        (b"\x89PNG\r\n\x1a\n", "not a trace of TensorFlow"),
        (b"some text", "not a trace of TensorFlow"),
        (b'{"format": "pesto-placement"}', "JSON without traceEvents"),
        (b'{"traceEvents": 3}', "JSON without traceEvents"),
        (b'{"traceEvents": []}', "not a trace of TensorFlow"),
    ],
)
def test_a_file_that_is_no_trace_is_refused(tmp_path, recorded, data, message):
    path = tmp_path / "trace"
    path.write_bytes(data)
    with pytest.raises(BadInputError, match=message):
        profile(recorded.meta, SERVER, source=f"trace:{path}")


def test_a_graph_is_refused_as_a_trace(tmp_path, recorded):
    path = tmp_path / "graph.meta"
    path.write_bytes(recorded.meta.SerializeToString())
    with pytest.raises(BadInputError, match="not a trace of TensorFlow"):
        read_trace(path)


def test_a_trace_must_be_named_and_exist(tmp_path, recorded):
    with pytest.raises(BadInputError, match="names no file"):
        profile(recorded.meta, SERVER, source="trace")
    with pytest.raises(BadInputError, match="does not exist"):
        profile(recorded.meta, SERVER, source=f"trace:{tmp_path / 'nothing'}")
    with pytest.raises(BadInputError, match="has no file in it"):
        profile(recorded.meta, SERVER, source=f"trace:{tmp_path}")


def test_a_trace_of_a_cpu_gives_no_times_on_the_gpus_of_a_machine(recorded):
    found = traced(recorded, "steps")
    assert "no op was measured on GPU" in note_on(found, "GPU")
    assert np.isnan(found.problem.time_us[:, found.problem.kinds.index("GPU")]).all()


# Traces of a GPU. The ops of `gpu_step`: times of kernels, and times on the host to run or launch.
KERNELS = {
    "product:MatMul": [[50.0, 20.0], [52.0, 20.0], [90.0, 20.0]],
    "total:AddV2": [[5.0], [6.0], [4.0]],
    "product-0-TransposeNHWCToNCHW-LayoutOptimizer:Transpose": [[1.0], [1.0], [1.0]],
}
HOST = {
    "product:MatMul": 17.0,
    "total:AddV2": 11.0,
    "product/ReadVariableOp:ReadVariableOp": 3.0,
    "text:AsString": 21.0,
    "fed/_1:_Recv": 40.0,
}
COPIES = [Copy("H2D", 2**power, 10 + 2**power * 1e-4) for power in range(10, 22, 2)]


def gpu_step(tf):
    tf1 = tf.compat.v1
    fed = tf1.placeholder(tf.float32, [32, 32], name="fed")
    weights = tf1.get_variable("weights", [32, 32], use_resource=True)
    total = tf.add(tf.matmul(fed, weights, name="product"), fed, name="total")
    return [tf.strings.as_string(total, name="text").op]


@pytest.fixture(scope="module")
def gpu_meta():
    return exported(gpu_step)


def of_gpu(tmp_path, meta, machine=SERVER, kernels=KERNELS, host=HOST, copies=COPIES, **options):
    path = tmp_path / "gpu.xplane.pb"
    path.write_bytes(gpu_trace(kernels, host, copies, **options).SerializeToString())
    return profile(meta, machine, source=f"trace:{path}")


@pytest.mark.parametrize("stat", ["tf_op", "annotation"])
def test_the_time_of_a_gpu_op_is_the_median_of_its_kernels_without_launches(
    tmp_path, gpu_meta, stat
):
    found = of_gpu(tmp_path, gpu_meta, stat=stat)
    gpu_us, cpu_us = times(found, "GPU"), times(found)
    assert gpu_us["product"] == 73  # 52 + 20, and 1 for the added transpose
    assert gpu_us["total"] == 5
    assert np.isnan([cpu_us["product"], cpu_us["total"], gpu_us["text"]]).all()


def test_an_op_without_kernel_has_its_host_time_on_the_device_of_its_group(tmp_path, gpu_meta):
    found = of_gpu(tmp_path, gpu_meta)
    assert times(found, "GPU")["product/ReadVariableOp"] == 3
    assert times(found)["text"] == 21


def test_in_a_trace_without_host_ops_without_kernel_take_no_time(tmp_path, gpu_meta):
    found = of_gpu(tmp_path, gpu_meta, with_host=False)
    assert times(found, "GPU")["product"] == 73
    assert times(found, "GPU")["product/ReadVariableOp"] == 0
    assert times(found)["text"] == 0
    assert "'text'" in note_on(found, "never ran")


def test_lines_that_tensorboard_derives_give_the_same_times_as_kernels(tmp_path, gpu_meta):
    """TensorFlow's converter derives ops and steps; then the test removes the kernels' op names."""
    one_kernel = {name: [each[:1] for each in steps] for name, steps in KERNELS.items()}
    plain = of_gpu(tmp_path, gpu_meta, kernels=one_kernel, copies=())
    trace = json.loads(viewer_json(tmp_path / "gpu.xplane.pb"))
    lines = {
        event["args"]["name"]
        for event in trace["traceEvents"]
        if event["ph"] == "M" and event["name"] == "thread_name"
    }
    assert {"Framework Ops", "Steps"} <= lines
    for event in trace["traceEvents"]:
        if "kernel_details" in event["args"]:
            del event["args"]["tf_op"]
    path = tmp_path / "derived.json"
    path.write_text(json.dumps(trace))
    derived = profile(gpu_meta, SERVER, source=f"trace:{path}")
    for name, us in times(plain, "GPU").items():
        assert times(derived, "GPU")[name] == pytest.approx(us, nan_ok=True)


def test_a_line_fitted_to_copies_is_noted_with_the_machines_model(tmp_path, gpu_meta):
    found = of_gpu(tmp_path, gpu_meta)
    note = note_on(found, "copies CPU -> GPU")
    assert "18 copies CPU -> GPU of 1,024 to 1,048,576 bytes suggest 10.00 us + 0.0001 us" in note
    assert "the machine has 7.00 us + 7.78e-05 us a byte" in note
    few = of_gpu(tmp_path, gpu_meta, copies=COPIES[:2])
    assert not [note for note in few.provenance["notes"] if "copies" in note]


def test_step_stats_of_a_gpu_count_each_kernel_once_and_no_launch():
    stats = gpu_step_stats({"product:MatMul": [50, 20]}, HOST, [Copy("D2H", 64, 7), *COPIES])
    measured = step_stats.measured([stats])
    assert {key: us.tolist() for key, us in measured.us.items()} == {
        ("product", "GPU"): [70],
        ("total", "GPU"): [11],
        ("product/ReadVariableOp", "GPU"): [3],
        ("text", "GPU"): [21],
    }
    assert measured.transfers[0] == TimedTransfer("/device:GPU:0", "/device:CPU:0", 64, 7)
    assert measured.device["product"].endswith("device:GPU:0")


def test_a_received_tensor_is_a_transfer_with_the_exact_size_of_the_output():
    """TensorFlow 2.21 writes this label for 262,144 bytes."""
    stats = tensorflow().compat.v1.RunMetadata().step_stats
    first, second = (f"/job:worker/replica:0/task:{task}/device:CPU:0" for task in range(2))
    ran = stats.dev_stats.add(device=first).node_stats.add(
        node_name="y", timeline_label="[cpu 0.2MB 0.2MB] y = MatMul(_recv_x_0, _recv_x_0)"
    )
    shape = ran.output.add(slot=0).tensor_description
    shape.dtype = 1
    for size in (256, 256):
        shape.shape.dim.add(size=size)
    stats.dev_stats.add(device=second).node_stats.add(
        node_name="RecvTensor",
        timeline_label=f"[0.2MB] [6.9Gb/s] edge_9_y from {first} to {second}",
        op_end_rel_micros=306,
    )
    measured = step_stats.measured([stats])
    assert measured.transfers == (TimedTransfer(first, second, 262144, 306.0),)
    assert list(measured.us) == [("y", "CPU")]


@pytest.mark.parametrize(
    ("label", "us", "num_bytes"),
    [
        ("[5000B] [416.666667Mb/s] edge_13_Identity_6", 96, 5000),
        ("[5000B] [1.0Gb/s] edge_13_Identity_6", 40, 5000),
        ("[5000B] [infGb/s] edge_13_Identity_6", 0, 5000),
        ("[5000B] edge_13_Identity_6", 40, 5000),
        ("[12.0MB] [6.9Gb/s] edge_13_Identity_6", 14_589, 12_583_012),
        ("[12.0MB] [3.2Gb/s] edge_13_Identity_6", 14_589, round(11.95 * 2**20)),
        ("[0B] [0.000000Mb/s] edge_13_Identity_6", 40, 0),
        ("[0B] [nanMb/s] edge_13_Identity_6", 0, 0),
    ],
)
def test_the_size_of_a_received_tensor_follows_from_its_label(label, us, num_bytes):
    received = ReceivedLabel.parse(f"{label} from /task:0 to /task:1")
    assert (received.node, received.src, received.dst) == ("Identity_6", "/task:0", "/task:1")
    assert received.num_bytes(us, []) == num_bytes


def test_signals_between_workers_are_not_transfers():
    stats = tensorflow().compat.v1.RunMetadata().step_stats
    for size in (0, 5000):
        stats.dev_stats.add(device="/task:1").node_stats.add(
            node_name="RecvTensor",
            timeline_label=f"[{size}B] [1.000000Mb/s] edge_9_y from /task:0 to /task:1",
            op_end_rel_micros=306,
        )
    measured = step_stats.measured([stats])
    assert measured.transfers == (TimedTransfer("/task:0", "/task:1", 5000, 306.0),)


# Costs on a machine from given times.


def of_times(meta, machine, us, **options):
    """Return the costs from times: us is (node, place) -> time in each step."""
    num_steps = len(next(iter(us.values())))
    columns = {key: np.array(row, dtype=float) for key, row in us.items()}
    request = CostRequest(read_step(meta), meta, machine, **options)
    return costs(Measured(num_steps, columns), request)


NAN = np.nan
ON_GPU = {("product", "GPU"): [9, 7, 8], ("total", "GPU"): [1, 1, NAN], ("text", "CPU"): [4, 2, 3]}


def op_us(found, meta, kind, name):
    return found.time_us[kind][read_step(meta).graph.index_of[name]]


def test_the_median_is_over_the_steps_in_which_an_op_ran(gpu_meta):
    found = of_times(gpu_meta, SERVER, ON_GPU)
    assert op_us(found, gpu_meta, "GPU", "product") == 8
    assert op_us(found, gpu_meta, "GPU", "total") == 1
    assert op_us(found, gpu_meta, "CPU", "text") == 3
    runs = dict(zip(read_step(gpu_meta).graph.names, found.spread.runs.tolist(), strict=True))
    assert (runs["product"], runs["total"], runs["weights"]) == (3, 2, 0)


def test_with_cpu_offload_an_op_has_times_on_both_measured_types(gpu_meta):
    both = {**ON_GPU, ("product", "CPU"): [80, 90, 70], ("total", "CPU"): [10, 10, 10]}
    by_default, offloaded = (
        of_times(gpu_meta, SERVER, both, cpu_offload=flag) for flag in (False, True)
    )
    assert np.isnan(op_us(by_default, gpu_meta, "CPU", "product"))
    assert op_us(offloaded, gpu_meta, "CPU", "product") == 80
    assert op_us(offloaded, gpu_meta, "GPU", "product") == 8


def test_kinds_share_the_times_of_their_type_unless_they_were_measured_themselves(gpu_meta):
    devices = (*SERVER.devices[:2], Device("OLD:0", "OLD", 2**33))
    names = [device.name for device in devices]
    links = [Link(a, b, CommModel(1.0, 1e-4)) for a in names for b in names if a != b]
    machine = Machine(devices, tuple(links), kinds={**SERVER.kinds, "OLD": replace(V100)})
    shared = of_times(gpu_meta, machine, ON_GPU)
    assert op_us(shared, gpu_meta, "OLD", "product") == op_us(shared, gpu_meta, "GPU", "product")
    assert any("are used for GPU and OLD" in note for note in shared.notes)
    old = {
        (node, "OLD"): [2 * us for us in row]
        for (node, kind), row in ON_GPU.items()
        if kind == "GPU"
    }
    own = of_times(gpu_meta, machine, {**ON_GPU, **old})
    assert op_us(own, gpu_meta, "OLD", "product") == 16
    assert not any("are used for" in note for note in own.notes)


def test_times_on_devices_that_the_machine_lacks_are_refused(gpu_meta):
    cpu_only = Machine(SERVER.devices[:1], (), kinds=SERVER.kinds)
    with pytest.raises(BadInputError, match=r"has 2 ops, such as 'product', on GPU only"):
        of_times(gpu_meta, cpu_only, ON_GPU)


def test_ops_of_a_group_split_over_device_types_have_their_measured_times(gpu_meta):
    """A variable and its read must share a device; in the trace they are on two."""
    pieces = {**ON_GPU, ("weights", "CPU"): [2, 2, 2], ("product/ReadVariableOp", "GPU"): [3, 3, 3]}
    found = of_times(gpu_meta, SERVER, pieces)
    assert op_us(found, gpu_meta, "GPU", "weights") == 2
    assert op_us(found, gpu_meta, "GPU", "product/ReadVariableOp") == 3
    assert np.isnan(op_us(found, gpu_meta, "CPU", "weights"))
    assert any("split over several device types" in note for note in found.notes)


@pytest.mark.parametrize(
    ("name", "op"),
    [
        ("product", "product"),
        ("StatefulPartitionedCall/product", "product"),
        ("PartitionedCall_2/StatefulPartitionedCall/total", "total"),
        ("product-0-TransposeNHWCToNCHW-LayoutOptimizer", "product"),
        ("product-1-0-TransposeNCHWToNHWC-LayoutOptimizer", "product"),
        ("ArithmeticOptimizer/ReplaceMulWithSquare_total", "total"),
        ("_arg_fed_0_0", None),
        ("fed", None),
        ("_retval_total_0_0", None),
        ("_SOURCE", None),
        ("product/ReadVariableOp/_3", None),
        ("weights/replicate/_7", None),
    ],
)
def test_names_that_tensorflow_changes_at_run_time_are_recognised(gpu_meta, name, op):
    step = read_step(gpu_meta)
    names = NodeNames(CostRequest(step, gpu_meta, SERVER))
    assert names.find(name) == Match(None if op is None else step.graph.index_of[op])


def test_names_that_belong_to_no_op_are_not_matched(gpu_meta):
    names = NodeNames(CostRequest(read_step(gpu_meta), gpu_meta, SERVER))
    for name in ("another/MatMul", "produc", "ArithmeticOptimizer/Rule_none"):
        assert names.find(name) is None


def test_nodes_in_a_functional_loop_count_only_if_the_loop_itself_was_not_recorded():
    def build(tf):
        fed = tf.compat.v1.placeholder(tf.float32, [8, 8], name="fed")
        body = lambda i, v: (i + 1, tf.matmul(v, fed))  # noqa: E731
        return [tf.while_loop(lambda i, _: i < 3, body, [0, fed], name="loop")[1]]

    meta = exported(build, functional_control_flow=True)
    inside = {
        ("loop/body/_5/loop/MatMul", "GPU"): [5.0],
        ("loop/loop_body_control/_9", "GPU"): [2.0],
    }
    cost = op_us(of_times(meta, SERVER, inside), meta, "GPU", "loop")
    assert cost == 7
    whole = of_times(meta, SERVER, {**inside, ("loop", "GPU"): [11.0]})
    assert op_us(whole, meta, "GPU", "loop") == 11


def test_if_every_node_ran_another_number_of_times_the_steps_are_those_of_the_first():
    runs = [Run(f"n{count}", float(at), 0.5) for count in range(1, 8) for at in range(count)]
    assert [len(step) for step in steps_by_repetition(runs)] == [len(runs)]


def test_steps_are_found_from_repeated_runs():
    """Three steps of a, a loop of two iterations, and c; before them the end of a fourth step."""
    runs = [Run("c", 5.0, 1.0)]
    for step in range(3):
        start = 10.0 + 20.0 * step
        runs += [Run("a", start, 1.0), Run("c", start + 15, 1.0)]
        runs += [Run("inner", start + 2 + 4 * trip, 2.0) for trip in range(2)]
    steps = steps_by_repetition(runs)
    inner = [sum(run.us for run in step if run.node == "inner") for step in steps]
    assert inner == [4.0] * 3
