"""The cost sources `analytic` (TensorFlow's estimates) and `csv`."""

import re
import subprocess
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from training_graphs import exported, nested_loops, recurrent, step_stats

from pesto_cli import __version__
from pesto_cli.data.machine import CommModel, Device, Efficiency, Link, Machine
from pesto_cli.data.presets import PRESETS, V100
from pesto_cli.errors import BadInputError, EnvironmentFailedError
from pesto_cli.files import CommFit, read_profile, write_profile
from pesto_cli.graphdef.hashing import graph_hash
from pesto_cli.graphdef.nodes import needed_nodes, topological_order
from pesto_cli.graphdef.read import read_step
from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.profile import profile
from pesto_cli.profile.analytic import child_process, estimates, virtual_cluster
from pesto_cli.profile.analytic.loops import Loops
from pesto_cli.profile.analytic.unfolding import lowered
from pesto_cli.profile.analytic.virtual_cluster import (
    DEVICE_PREFIX,
    VirtualDevice,
    VirtualRun,
    run_all,
)
from pesto_cli.report.summary import summarize

SERVER = PRESETS["v100x2-nvlink"]
SIZE = 2048
# Operations of a product of two float32 matrices; bytes that an op with two inputs and one output
# of this size reads and writes.
MATMUL_FLOP, TRAFFIC_BYTES = 2 * SIZE**3, 3 * 4 * SIZE**2


def training_step(tf):
    """Build a step with a large product, a small sum, int32 arithmetic, a string and variables."""
    tf1 = tf.compat.v1
    fed = tf1.placeholder(tf.float32, [SIZE, SIZE], name="fed")
    weights = tf1.get_variable("weights", [SIZE, SIZE], use_resource=True)
    product = tf.matmul(fed, weights, name="product")
    total = tf.add(product, fed, name="total")
    small = tf.add(tf.reshape(total, [-1], name="flat")[:4], 1.0, name="small")
    size = tf.multiply(tf.constant(list(range(20))), 2, name="size")
    text = tf.strings.as_string(small, name="text")
    counter = tf1.get_variable("counter", [], tf.int32, use_resource=True)
    counted = counter.assign_add(1, read_value=False, name="counted")
    return [tf.group(text, size, counted, name="train"), total]


@pytest.fixture(scope="module")
def step_graph():
    return exported(training_step)


@pytest.fixture(scope="module")
def analytic(step_graph):
    return profile(step_graph, SERVER)


@pytest.fixture(scope="module")
def offloaded(step_graph):
    return profile(step_graph, machine_with_two_gpu_kinds(), cpu_offload=True)


def machine_with_two_gpu_kinds() -> Machine:
    """Return a CPU, a V100, and a GPU with half its clock rate whose launches take no time."""
    slow = replace(V100, frequency_mhz=V100.frequency_mhz // 2, launch_us=0.0, no_launch_us=0.0)
    devices = (*SERVER.devices[:2], Device("OLD:0", "OLD", 2**33))
    names = [device.name for device in devices]
    links = [Link(a, b, CommModel(1.0, 1e-4)) for a in names for b in names if a != b]
    return Machine(devices, tuple(links), kinds={**SERVER.kinds, "OLD": slow})


def times(found, kind):
    column = found.problem.time_us[:, found.problem.kinds.index(kind)]
    return dict(zip(found.problem.graph.names, column.tolist(), strict=True))


def test_the_time_of_a_large_op_is_arithmetic_plus_traffic_at_peak_rates(analytic):
    gpu_us = times(analytic, "GPU")
    flop_per_us = V100.num_cores * V100.frequency_mhz * 64 * 2  # 64 fused multiply-adds per core
    bytes_per_us = V100.bandwidth_gb_s * 1e3
    assert gpu_us["product"] == pytest.approx(
        MATMUL_FLOP / flop_per_us + TRAFFIC_BYTES / bytes_per_us, rel=1e-3
    )
    assert gpu_us["total"] == pytest.approx(
        SIZE**2 / flop_per_us + TRAFFIC_BYTES / bytes_per_us, rel=0.01
    )


def with_efficiency(efficiency):
    kind = replace(V100, efficiency=efficiency)
    return replace(SERVER, kinds={**SERVER.kinds, "GPU": kind})


def test_arithmetic_and_traffic_are_divided_by_the_efficiencies_of_the_op_type(
    step_graph, analytic
):
    reached = {"MatMul": Efficiency(0.5, 0.25), "": Efficiency(memory=0.1)}
    gpu_us = times(profile(step_graph, with_efficiency(reached)), "GPU")
    flop_per_us = V100.num_cores * V100.frequency_mhz * 64 * 2
    bytes_per_us = V100.bandwidth_gb_s * 1e3
    assert gpu_us["product"] == pytest.approx(
        MATMUL_FLOP / flop_per_us / 0.5 + TRAFFIC_BYTES / bytes_per_us / 0.25, rel=1e-3
    )
    assert gpu_us["total"] == pytest.approx(
        SIZE**2 / flop_per_us + TRAFFIC_BYTES / bytes_per_us / 0.1, rel=0.01
    )
    for free in ("flat", "weights", "size"):
        assert gpu_us[free] == times(analytic, "GPU")[free]


def test_peak_rates_are_efficiencies_of_1(step_graph, analytic):
    found = times(profile(step_graph, with_efficiency({"": Efficiency()})), "GPU")
    assert found == pytest.approx(times(analytic, "GPU"), rel=1e-4, nan_ok=True)


def test_parts_are_priced_with_the_efficiencies(step_graph):
    reached = {"MatMul": Efficiency(0.5, 0.5)}
    plain, slow = (
        profile(step_graph, machine, parts=(2,)).problem
        for machine in (SERVER, with_efficiency(reached))
    )
    op = plain.graph.names.index("product")
    for way in ("rows", "columns"):
        halves = [
            each.parts.part_ratio(op, way, 0.5)[each.kinds.index("GPU")] for each in (plain, slow)
        ]
        assert halves[0] == pytest.approx(halves[1], rel=1e-3)
    column = plain.kinds.index("GPU")
    assert slow.time_us[op, column] == pytest.approx(2 * plain.time_us[op, column], rel=1e-3)


def test_times_are_not_rounded_to_microseconds(analytic):
    assert times(analytic, "GPU")["total"] % 1 != 0


def test_an_op_that_launches_a_kernel_takes_at_least_launch_us(analytic):
    assert times(analytic, "GPU")["small"] == V100.launch_us


@pytest.mark.parametrize("op", ["flat", "weights", "product/ReadVariableOp", "size", "train"])
def test_an_op_that_launches_no_kernel_takes_no_launch_us(analytic, op):
    assert times(analytic, "GPU")[op] == V100.no_launch_us


def test_an_op_runs_on_the_gpu_if_its_colocation_group_can_and_else_on_the_cpu(analytic):
    cpu_us, gpu_us = times(analytic, "CPU"), times(analytic, "GPU")
    for op in ("product", "total", "small", "weights", "product/ReadVariableOp"):
        assert np.isnan(cpu_us[op])
    # The int32 variable could be on a GPU, but its increment has no GPU kernel.
    for op in ("text", "counter", "counted"):
        assert np.isnan(gpu_us[op])
        assert cpu_us[op] > 0


def test_feeds_and_fetches_take_no_time_and_are_on_the_host(analytic):
    problem = analytic.problem
    free = problem.is_feed | problem.is_fetch
    assert free.sum() == 2
    assert (problem.time_us[free, problem.kinds.index("CPU")] == 0).all()
    assert np.isnan(problem.time_us[free, problem.kinds.index("GPU")]).all()


def test_with_cpu_offload_ops_of_the_gpu_have_a_time_on_the_cpu_too(offloaded):
    cpu_us, gpu_us = times(offloaded, "CPU"), times(offloaded, "GPU")
    assert cpu_us["product"] > gpu_us["product"] > 0
    assert np.isnan(gpu_us["text"])


def strings_in_a_loop_and_a_queue(tf):
    """Build a step with strings (CPU only) in a loop and in a queue, and ops for a GPU."""
    tf1 = tf.compat.v1
    fed = tf1.placeholder(tf.float32, [64, 64], name="fed")
    product = tf.matmul(fed, fed, name="product")
    queue = tf1.FIFOQueue(4, [tf.float32], shapes=[[64]])
    fill = queue.enqueue([tf.reduce_sum(product, axis=0)], name="fill")
    with tf.control_dependencies([fill]):
        taken = queue.dequeue(name="taken")
    text = tf.strings.as_string(taken, name="text")
    _, words = tf.while_loop(
        lambda i, _: i < 3,
        lambda i, words: (i + 1, tf.strings.join([words, words], name="joined")),
        [0, tf.strings.as_string(product, name="words")],
    )
    return [tf.group(text, words, name="train"), product]


def test_only_ops_that_may_run_on_a_kind_are_estimated_there_with_equal_times(monkeypatch):
    nodes = []

    def counted(runs):
        nodes.extend({node.name for node in run.graph_def.node} for run in runs)
        return run_all(runs)

    monkeypatch.setattr(estimates, "run_all", counted)
    meta = exported(strings_in_a_loop_and_a_queue)
    alone, offloaded = (profile(meta, SERVER, cpu_offload=each) for each in (False, True))
    for kind in ("CPU", "GPU"):
        some_us, all_us = times(alone, kind), times(offloaded, kind)
        known = {name: time for name, time in some_us.items() if not np.isnan(time)}
        assert known == {name: all_us[name] for name in known}
    on_cpu, on_gpu, *_ = nodes
    assert {"text", "taken", "fill", "product", "words"} <= on_cpu
    assert "product" in on_gpu
    assert not on_gpu & {"text", "words", "train"}


def test_a_kind_that_may_run_no_op_is_not_simulated(monkeypatch):
    simulated = []
    monkeypatch.setattr(estimates, "run_all", lambda runs: simulated.extend(runs) or run_all(runs))

    def build(tf):
        fed = tf.compat.v1.placeholder(tf.float32, [64, 64], name="fed")
        return [tf.matmul(fed, fed, name="product")]

    found = profile(exported(build), SERVER)
    assert [[*run.devices] for run in simulated] == [[f"{DEVICE_PREFIX}GPU:0"]]
    assert times(found, "CPU")["fed"] == 0


def test_every_kind_of_gpu_has_its_own_times(analytic, offloaded):
    gpu_us, old_us = times(offloaded, "GPU"), times(offloaded, "OLD")
    assert gpu_us["product"] == times(analytic, "GPU")["product"]
    assert 1.5 * gpu_us["product"] < old_us["product"] < 2 * gpu_us["product"]
    assert 0 < old_us["small"] < 1  # launch_us is 0
    assert old_us["flat"] == 0


def test_a_profile_has_its_provenance_and_is_equal_after_writing_and_reading(
    tmp_path, step_graph, analytic
):
    assert analytic.provenance == {
        "graph_hash": graph_hash(step_graph.graph_def),
        "pesto_version": __version__,
        "tensorflow_version": tensorflow().__version__,
        "source": "analytic",
        "num_runs": 0,
        "notes": [],
    }
    path = tmp_path / "step.profile.json"
    write_profile(path, analytic)
    read = read_profile(path)
    assert read.provenance == analytic.provenance
    np.testing.assert_array_equal(read.problem.time_us, analytic.problem.time_us)


def three_loops(tf):
    """Build loops of 3 and of 7 iterations, and one whose number of iterations depends on data."""
    fed = tf.compat.v1.placeholder(tf.float32, [SIZE, SIZE], name="fed")

    def body(trip, value):
        return trip + 1, tf.matmul(value, fed)

    def is_small(_, value):
        return tf.reduce_sum(value) < 10

    return [
        tf.while_loop(lambda trip, _: trip < 3, body, [0, fed], name="three")[1],
        tf.while_loop(lambda trip, _: trip < 7, body, [0, fed], name="seven")[1],
        tf.while_loop(is_small, body, [0, fed], name="open")[1],
    ]


@pytest.fixture(scope="module", params=[False, True], ids=["frames", "functional"])
def looping(request):
    return profile(exported(three_loops, functional_control_flow=request.param), SERVER)


def test_the_time_of_a_while_loop_includes_all_its_iterations(looping):
    gpu_us = times(looping, "GPU")
    three, seven = (gpu_us.get(f"{name}/LoopCond", gpu_us.get(name)) for name in ("three", "seven"))
    product_us = MATMUL_FLOP / (V100.num_cores * V100.frequency_mhz * 64 * 2)
    assert (seven - three) / 4 == pytest.approx(product_us, rel=0.15)
    assert seven / three == pytest.approx(7 / 3, rel=0.01)


def test_a_loop_whose_length_depends_on_data_counts_as_one_iteration_and_is_noted(looping):
    gpu_us = times(looping, "GPU")
    once, thrice = (gpu_us.get(f"{name}/LoopCond", gpu_us.get(name)) for name in ("open", "three"))
    assert once == pytest.approx(thrice / 3, rel=0.1)
    (note,) = looping.provenance["notes"]
    assert "while loop 'open" in note


def test_loops_whose_lengths_depend_on_data_have_one_note():
    def build(tf):
        fed = tf.compat.v1.placeholder(tf.float32, [], name="fed")
        halved = [
            tf.while_loop(lambda value: value > 1, lambda value: value / 2, [fed], name=f"loop_{i}")
            for i in range(5)
        ]
        return [tf.add_n(halved, name="total")]

    (note,) = profile(exported(build), SERVER).provenance["notes"]
    assert re.search(r"iterations of 5 while loops \('loop_0\S*', '\S+', '\S+', \.\.\.\) do", note)


def test_sizes_that_depend_on_data_are_noted_unless_the_csv_gives_them(tmp_path):
    def build(tf):
        values = tf.compat.v1.placeholder(tf.float32, [300, 7], name="values")
        some = tf.boolean_mask(values, tf.reduce_sum(values, axis=1) > 0, name="some")
        return [tf.reduce_sum(some, name="total")]

    meta = exported(build)
    estimated = profile(meta, SERVER)
    (note,) = estimated.provenance["notes"]
    assert re.match(
        r"the size of \d tensors depends on the data and was estimated from the inputs of their "
        r"ops: .* 'some/\S+', counts as 8,400 bytes",
        note,
    )

    graph, path = estimated.problem.graph, tmp_path / "times.csv"
    rows = [f"{name},CPU,1,24" for name in graph.names if name not in ("values", "_retval_total_0")]
    path.write_text("\n".join(["name,kind,us,bytes", *rows]))
    assert profile(meta, SERVER, source=f"csv:{path}").provenance["notes"] == []


@pytest.mark.parametrize(("rows", "notes"), [(300, 1), (3, 0)])
def test_sizes_that_depend_on_data_are_only_noted_if_they_are_large(rows, notes):
    def build(tf):
        values = tf.compat.v1.placeholder(tf.float32, [rows, 7], name="values")
        some = tf.boolean_mask(values, tf.reduce_sum(values, axis=1) > 0, name="some")
        large = tf.ones([500, 500]) * tf.reduce_sum(some)
        return [tf.reduce_sum(large * large, name="total")]

    assert len(profile(exported(build), SERVER).provenance["notes"]) == notes


def test_an_unknown_size_is_noted():
    def build(tf):
        rows = tf.TensorArray(tf.float32, 3, infer_shape=False)
        rows = rows.unstack(tf.compat.v1.placeholder(tf.float32, [3, 7, 2], name="values"))
        return [tf.identity(rows.concat(name="joined"), name="copy")]

    (note,) = profile(exported(build), SERVER).provenance["notes"]
    assert note.startswith("the size of 2 tensors is unknown: open dimensions count as 1")
    assert "'joined" in note


@pytest.mark.parametrize("functional", [False, True])
@pytest.mark.parametrize("build", [recurrent, nested_loops])
def test_the_computed_numbers_of_iterations_are_those_of_a_real_run(build, functional):
    meta = lowered(exported(build, functional_control_flow=functional))
    fetches = [name.split(":")[0] for name in meta.collection_def["train_op"].node_list.value]
    nodes = needed_nodes(meta.graph_def, fetches)
    loops = Loops(meta.graph_def, nodes, topological_order(nodes))
    runs = Counter(
        stats.node_name for device in step_stats(meta, {}).dev_stats for stats in device.node_stats
    )
    inside = [
        index
        for index, node in enumerate(nodes)
        if loops.frames[index] and node.type in {"MatMul", "Tanh", "TanhGrad", "Mul", "ConcatV2"}
    ]
    assert inside
    assert loops.of_unknown_length == []
    for index in inside:
        assert loops.iterations(index) == runs[nodes[index].name]


def test_a_machine_without_the_description_of_a_kind_is_refused(step_graph):
    kinds = {"CPU": SERVER.kinds["CPU"], "Gpu": V100}
    undescribed = replace(SERVER, kinds=kinds)
    message = r"'GPU:0' is of kind 'GPU'.*\[kinds.GPU\].* Did you mean 'Gpu'\?"
    with pytest.raises(BadInputError, match=message):
        profile(step_graph, undescribed)


def test_a_gpu_without_architecture_is_refused(step_graph):
    kinds = {**SERVER.kinds, "GPU": replace(V100, architecture="")}
    with pytest.raises(BadInputError, match="compute capability"):
        profile(step_graph, replace(SERVER, kinds=kinds))


@pytest.mark.parametrize("source", ["guess", "analytic:fast", "csv"])
def test_a_source_that_is_unknown_or_misused_is_refused(step_graph, source):
    with pytest.raises(BadInputError):
        profile(step_graph, SERVER, source=source)


@pytest.mark.usefixtures("new_virtual_cluster")
def test_if_the_virtual_cluster_dies_the_error_has_its_last_output():
    tf1 = tensorflow().compat.v1
    dangling = tf1.NodeDef(name="op", op="Identity", input=["nowhere"], device="/device:CPU:0")
    dangling.attr["T"].type = 1
    cpu = VirtualDevice("CPU", 1000, 1, 1_000_000)
    run = VirtualRun(tf1.GraphDef(node=[dangling]), ["op"], {f"{DEVICE_PREFIX}CPU:0": cpu})
    with pytest.raises(EnvironmentFailedError, match=r"(?s)virtual cluster died.*nowhere"):
        run_all([run])


def test_the_virtual_cluster_gives_the_same_times_with_the_whole_of_tensorflow(
    monkeypatch, step_graph, analytic
):
    programs = []

    def served(command, **_):
        programs.append(Path(command[-3]).name)
        child_process.serve(*command[-2:])
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(virtual_cluster, "subprocess", SimpleNamespace(run=served))
    found = profile(step_graph, SERVER)
    np.testing.assert_array_equal(found.problem.time_us, analytic.problem.time_us)
    assert set(programs) == {"child_process.py"}


# Measured times.


def small_step(tf):
    """Build a feed, `head` with two outputs, a loop, `tail` which joins all of these; a string."""
    tf1 = tf.compat.v1
    fed = tf1.placeholder(tf.float32, [2, 8], name="fed")
    head = tf.split(fed, [1, 7], axis=1, name="head")
    looped = tf.while_loop(lambda i, _: i < 3, lambda i, v: (i + 1, v * 2.0), [0, fed], name="loop")
    tail = tf.concat([*head, looped[1]], 1, name="tail")
    return [tf.strings.as_string(tail, name="text").op]


ROWS = [
    "head,GPU,3.5,64",
    "tail,GPU,4,",
    "tail,CPU,9,",
    "text,CPU,8,",
    "loop/mul,GPU,10,",
    "loop/LoopCond,GPU,2,",
]


@pytest.fixture(scope="module")
def small_graph():
    return exported(small_step)


def from_csv(tmp_path, meta_graph, rows, header="name,kind,us,bytes", **options):
    path = tmp_path / "times.csv"
    path.write_text("\n".join([header, *rows, ""]))
    return profile(meta_graph, SERVER, source=f"csv:{path}", **options)


def test_a_csv_decides_the_times_and_the_kinds_of_an_op(tmp_path, small_graph):
    found = from_csv(tmp_path, small_graph, ROWS)
    cpu_us, gpu_us = times(found, "CPU"), times(found, "GPU")
    assert (gpu_us["head"], gpu_us["tail"], cpu_us["tail"], cpu_us["text"]) == (3.5, 4, 9, 8)
    assert np.isnan([cpu_us["head"], gpu_us["text"], gpu_us["fed"]]).all()
    assert cpu_us["fed"] == 0


def test_the_time_of_a_while_loop_is_the_sum_of_its_rows(tmp_path, small_graph):
    assert times(from_csv(tmp_path, small_graph, ROWS), "GPU")["loop/LoopCond"] == 12


def test_a_loop_cannot_run_on_a_kind_that_lacks_some_of_its_rows(tmp_path, small_graph):
    found = from_csv(tmp_path, small_graph, [*ROWS, "loop/mul,CPU,30,"])
    assert np.isnan(times(found, "CPU")["loop/LoopCond"])
    assert times(found, "GPU")["loop/LoopCond"] == 12


def test_a_loop_whose_kinds_have_rows_of_different_nodes_is_refused(tmp_path, small_graph):
    rows = [*ROWS[:4], "loop/mul,GPU,10,", "loop/LoopCond,CPU,2,"]
    with pytest.raises(BadInputError, match=r"no time for 1 of .* ops: 'loop/LoopCond'"):
        from_csv(tmp_path, small_graph, rows)


def test_feeds_are_free_on_a_host_without_rows(tmp_path):
    graph = exported(lambda tf: [tf.square(tf.compat.v1.placeholder("float", [2], "x")).op])
    problem = from_csv(tmp_path, graph, ["Square,GPU,3,"]).problem
    assert times(from_csv(tmp_path, graph, ["Square,GPU,3,"]), "CPU")["x"] == 0
    assert problem.graph.num_ops == 2


def test_given_bytes_are_divided_among_an_ops_outputs_in_proportion(tmp_path, small_graph):
    graph = from_csv(tmp_path, small_graph, ["head,GPU,3.5,128", *ROWS[1:]]).problem.graph
    head, tail = graph.index_of["head"], graph.index_of["tail"]
    assert graph.tensor_bytes[graph.tensor_producer == head].tolist() == [16, 112]
    assert graph.tensor_bytes[graph.tensor_producer == tail].tolist() == [2 * 16 * 4]


def test_a_small_constant_may_be_listed(tmp_path, small_graph):
    from_csv(tmp_path, small_graph, [*ROWS, "tail/axis,CPU,1,"])


def test_columns_may_come_in_any_order_and_without_bytes(tmp_path, small_graph):
    rows = [",".join(reversed(row.split(",")[:3])) for row in ROWS]
    found = from_csv(tmp_path, small_graph, rows, header="us,kind,name")
    assert times(found, "GPU")["head"] == 3.5


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["head,GPU,-1,", *ROWS[1:]], "line 2: us is '-1'"),
        (["head,GPU,,", *ROWS[1:]], "line 2: no us"),
        (["head,GPU,soon,", *ROWS[1:]], "line 2: us is 'soon'"),
        (["head,GPU,nan,", *ROWS[1:]], "line 2: us is 'nan'"),
        (["head,GPU,1,2.5", *ROWS[1:]], "line 2: bytes is '2.5'"),
        ([*ROWS, "heart,GPU,1,"], "line 8: the step has no op 'heart'"),
        ([*ROWS, "head,TPU,1,"], "line 8: kind 'TPU'.*CPU, GPU"),
        ([*ROWS, "head,GPU,1,"], "line 8: op 'head' has a time on GPU already.*line 2"),
        ([*ROWS, "head,CPU,1,65"], "line 8: op 'head' has 65 bytes here and 64 in .*line 2"),
        ([*ROWS, "text,GPU,1,"], r"line 8: TensorFlow cannot run op 'text' \(AsString\) on a GPU"),
        (ROWS[2:], "no time for 1 of .* ops: 'head'"),
        ([], "no time for 4 of .* ops: 'head', .*, ..."),
    ],
)
def test_a_csv_that_does_not_fit_is_refused_naming_the_line(tmp_path, small_graph, rows, message):
    with pytest.raises(BadInputError, match=message):
        from_csv(tmp_path, small_graph, rows)


def test_a_csv_without_its_columns_is_refused(tmp_path, small_graph):
    with pytest.raises(BadInputError, match=r"columns name,kind,us \(and bytes where known\)"):
        from_csv(tmp_path, small_graph, ["head,3.5"], header="op,time")


def test_cpu_offload_is_refused_with_a_csv(tmp_path, small_graph):
    with pytest.raises(BadInputError, match="cpu-offload"):
        from_csv(tmp_path, small_graph, ROWS, cpu_offload=True)


def test_a_fitted_communication_model_replaces_that_of_the_machine(tmp_path, small_graph):
    fits = [CommFit("GPU", "GPU", CommModel(3.0, 1e-3))]
    machine = from_csv(tmp_path, small_graph, ROWS, comm=fits).problem.machine
    assert machine.latency_us[1, 2] == 3.0
    assert machine.latency_us[0, 1] == SERVER.latency_us[0, 1]


def test_a_summary_counts_ops_by_duration_and_sums_the_work(tmp_path, small_graph):
    rows = ["head,GPU,9.9,", "tail,GPU,10,", "text,CPU,100,", "loop/mul,GPU,100.1,"]
    problem = from_csv(tmp_path, small_graph, rows).problem
    summary = summarize(problem, critical_path_us=210.1)
    assert summary.num_ops == read_step(small_graph).graph.num_ops == 5
    assert (summary.num_short, summary.num_medium, summary.num_long) == (2, 2, 1)
    assert summary.work_us == pytest.approx(220.0)
    assert summary.critical_path_us == 210.1
