"""Buckets: gradients of mirrored variables that are added together, in problems and in steps."""

import re
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from priced_problems import AXIS, Step
from split_models import weights
from split_training import check_equal, trained
from test_split_search import on_machine, two_hosts
from training_graphs import exported

from pesto_cli import api
from pesto_cli.apply.splitting import split_graph
from pesto_cli.data.plan import Choice, Local, Plan
from pesto_cli.data.problem import Problem
from pesto_cli.data.solution import Solution
from pesto_cli.data.specs import SMALL_CONSTANT_ELEMENTS, Operand, OpSpec
from pesto_cli.evaluation.violations import violations
from pesto_cli.files import Profile
from pesto_cli.files.plan import PlanSchema, plan_json, plan_of
from pesto_cli.sharding import bucket_sums, conversions
from pesto_cli.sharding.decisions import decisions
from pesto_cli.sharding.expansion import expand
from pesto_cli.sharding.problems import prices_of, rewritten
from pesto_cli.sharding.propagation import Prices, propagate
from pesto_cli.sharding.variables import choices_of
from pesto_cli.strategies.data_parallel import (
    VariableLayout,
    batch_plan,
    dealt,
    decisions_on_variables,
)
from pesto_cli.strategies.devices import accelerators
from pesto_cli.strategies.meshes import Mesh
from pesto_cli.strategies.replicated_updates import with_replicated_updates

LAYERS = STEPS = 6
KIB = 2**10


def clipped(tf: Any) -> list[Any]:
    """Dense layers of 4 KiB; gradients are clipped by their global norm."""
    tf1 = tf.compat.v1
    hidden = tf1.placeholder(tf.float32, [64, 32], name="rows")
    for layer in range(LAYERS):
        matrix = weights(tf, f"layer_{layer}/weights", [32, 32])
        hidden = tf.tanh(tf.matmul(hidden, matrix))
    loss = tf.reduce_mean(tf.square(hidden), name="loss")
    variables = tf1.trainable_variables()
    gradients, _ = tf.clip_by_global_norm(tf1.gradients(loss, variables), 0.1)
    optimizer = tf1.train.MomentumOptimizer(0.1, 0.9)
    pairs = zip(gradients, variables, strict=True)
    return [optimizer.apply_gradients(pairs, name="train"), loss]


def recurrent(tf: Any) -> list[Any]:
    """A layer that is applied STEPS times, so that its gradient is a sum over these steps."""
    tf1 = tf.compat.v1
    hidden = tf1.placeholder(tf.float32, [64, 32], name="rows")
    matrix = weights(tf, "layer/weights", [32, 32])
    for _ in range(STEPS):
        hidden = tf.tanh(tf.matmul(hidden, matrix))
    loss = tf.reduce_mean(tf.square(hidden), name="loss")
    return [tf1.train.MomentumOptimizer(0.1, 0.9).minimize(loss, name="train"), loss]


@pytest.fixture(scope="module")
def meta() -> Any:
    return exported(clipped)


@pytest.fixture(scope="module")
def profile(meta: Any) -> Profile:
    return api.profile(meta, "v100x4-nvlink", parts=(2, 4, 8))


def plan_of_step(problem: Problem, bucket_bytes: int, hosts: tuple[int, ...] = ()) -> Plan:
    """All work in four parts, and a copy of each variable for each part."""
    graph, parts = problem.graph, prices_of(problem)
    specs = parts.op_specs
    fixed = decisions_on_variables(graph, specs, VariableLayout.MIRRORED, 4, {})
    feeds = [op for op, kind in enumerate(graph.types) if kind == "Placeholder"]
    seeds = {graph.tensors_of(op)[0]: 0 for op in feeds}
    prices = Prices(np.full(graph.num_ops, 1e3), 1e-4, 1.0)
    plan = propagate(graph, specs, seeds, (1.0,) * 4, prices, fixed).plan
    decided = with_replicated_updates(decisions(plan, graph, specs), graph, specs, 4)
    return Plan(choices_of(graph, decided), hosts, bucket_bytes)


def solved(problem: Problem, bucket_bytes: int, hosts: tuple[int, ...] = ()) -> Solution:
    split = rewritten(problem, plan_of_step(problem, bucket_bytes, hosts))
    solution = dealt(problem, split, Mesh((tuple(accelerators(problem)),)))
    assert violations(solution.problem, solution.schedule) == []
    return solution


@pytest.mark.parametrize("direct_bytes", [0, 2**21])
@pytest.mark.parametrize("hosts", [(), (0, 0, 1, 1), (0, 1, 2, 2)])
@pytest.mark.parametrize("bucket_bytes", [0, 9 * KIB, 2**20])
def test_a_step_trains_as_before(
    meta: Any,
    profile: Profile,
    monkeypatch: pytest.MonkeyPatch,
    bucket_bytes: int,
    hosts: tuple[int, ...],
    direct_bytes: int,
) -> None:
    monkeypatch.setattr(bucket_sums, "DIRECT_BYTES", direct_bytes)
    monkeypatch.setattr(bucket_sums, "SHARE_BYTES", max(1, direct_bytes))
    plan = plan_of_step(profile.problem, bucket_bytes, hosts)
    check_equal(trained(meta), trained(split_graph(meta, plan)), 1e-5)


def sums(problem: Problem) -> int:
    """The number of ops that add gradients or other partial tensors."""
    return Counter(problem.graph.types)["AddN"]


def test_each_gradient_is_added_once_and_with_others(profile: Profile) -> None:
    alone, together = (solved(profile.problem, size) for size in (0, 2**20))
    names = together.problem.graph.names
    packed = {name.rpartition("_")[0] for name in names if ".bucket.packed_" in name}
    assert len(packed) == 1
    # Each device adds the small vectors. None is added a second time for the norm.
    assert sums(alone.problem) - sums(together.problem) == LAYERS - 4
    norms = [name for name in names if "L2Loss" in name and ".part_3" in name]
    assert len(norms) == LAYERS
    small = solved(profile.problem, 9 * KIB).problem.graph.names
    packed = {name.rpartition("_")[0] for name in small if ".bucket.packed_" in name}
    assert len(packed) == LAYERS / 2


def test_buckets_save_messages_and_time_if_messages_are_slow(profile: Profile) -> None:
    machine = two_hosts()
    links = [
        replace(link, comm=replace(link.comm, latency_us=300.0, us_per_byte=1e-4))
        for link in machine.links
    ]
    problem = on_machine(profile.problem, replace(machine, links=tuple(links)))
    alone, together = (solved(problem, size, (0, 0, 1, 1)) for size in (0, 2**20))
    count = [len(each.schedule.transfers.tensor) for each in (alone, together)]
    assert count[1] < 0.6 * count[0]
    assert together.schedule.makespan_us < 0.8 * alone.schedule.makespan_us


def test_each_part_has_the_ops_of_its_own_buckets(profile: Profile) -> None:
    solution = solved(profile.problem, 2**20)
    graph, device = solution.problem.graph, solution.schedule.device
    for name in ("packed", "unpacked"):
        ops = [op for op, each in enumerate(graph.names) if f".bucket.{name}_" in each]
        assert np.unique(device[ops]).size == len(ops) == 4


@pytest.mark.parametrize("bucket_bytes", [0, 2**20])
def test_a_gradient_over_steps_of_time_is_exchanged_once(bucket_bytes: int) -> None:
    meta = exported(recurrent)
    problem = api.profile(meta, "v100x4-nvlink", parts=(2, 4, 8)).problem
    plan = batch_plan(problem, accelerators(problem), variables=VariableLayout.MIRRORED)
    plan = replace(plan, bucket_bytes=bucket_bytes)
    graph = rewritten(problem, plan).problem.graph
    terms = [
        op for op, name in enumerate(graph.names) if re.search(r"gradients/.*MatMul_1\.part_", name)
    ]
    assert len(terms) == 4 * STEPS
    for term in terms:
        _, _, part = graph.names[term].rpartition(".")
        assert all(graph.names[each].endswith(part) for each in graph.successors[term])
    check_equal(trained(meta), trained(split_graph(meta, plan)), 1e-5)


def embedded(tf: Any) -> list[Any]:
    """An embedding, whose gradient has a row for each id."""
    tf1 = tf.compat.v1
    ids = tf1.placeholder(tf.int32, [64], name="ids")
    rows = tf.gather(weights(tf, "table", [5, 32]), ids)
    loss = tf.reduce_mean(tf.square(tf.matmul(rows, weights(tf, "matrix", [32, 32]))), name="loss")
    return [tf1.train.GradientDescentOptimizer(0.1).minimize(loss, name="train"), loss]


@pytest.mark.parametrize("hosts", [(0, 0, 1, 1), (0, 1, 2, 2)])
def test_rows_of_a_gradient_are_sent_to_each_host_once(
    monkeypatch: pytest.MonkeyPatch, hosts: tuple[int, ...]
) -> None:
    monkeypatch.setattr(conversions, "LARGE_BYTES", 1)
    meta = exported(embedded)
    problem = api.profile(meta, "v100x4-nvlink", parts=(2, 4, 8)).problem
    plan = batch_plan(problem, accelerators(problem), variables=VariableLayout.MIRRORED)
    plan = replace(plan, hosts=hosts)
    names = rewritten(problem, plan).problem.graph.names
    copies = [name for name in names if name.startswith("gradients/Gather_grad/Reshape.copy_host_")]
    hosts_of_several = {host for host in hosts if hosts.count(host) > 1}
    assert len(copies) == sum(4 - hosts.count(host) for host in hosts_of_several)
    check_equal(trained(meta), trained(split_graph(meta, plan)), 1e-5)


def normalised(tf: Any) -> list[Any]:
    """A convolution and a batch normalisation with a moving average."""
    tf1 = tf.compat.v1
    x = tf1.placeholder(tf.float32, [64, 2, 2, 3], name="images")
    scale, offset, average = (weights(tf, name, [8]) for name in ("scale", "offset", "average"))
    x = tf.nn.conv2d(x, weights(tf, "filter", [1, 1, 3, 8]), 1, "SAME")
    x, mean, _ = tf1.nn.fused_batch_norm(x, scale, offset)
    change = tf.multiply(tf.subtract(average, mean, name="difference"), 0.1, name="change")
    loss = tf.reduce_mean(tf.square(x), name="loss")
    update = tf1.train.GradientDescentOptimizer(0.1).minimize(loss)
    return [tf.group(update, average.assign_sub(change, read_value=False), name="train"), loss]


def test_each_device_computes_the_changes_of_moving_averages() -> None:
    problem = api.profile(exported(normalised), "v100x4-nvlink", parts=(2, 4, 8)).problem
    problem = replace(problem, local=frozenset(Local))
    plan = batch_plan(problem, accelerators(problem), variables=VariableLayout.MIRRORED)
    assert plan.choices["difference"].alternative == "replicated"
    assert plan.choices["change"].alternative == "replicated"


def test_a_plan_is_stored_with_its_buckets(profile: Profile) -> None:
    plan = plan_of_step(profile.problem, 9 * KIB)
    assert plan_of(PlanSchema.model_validate(plan_json(plan))) == plan


def many_layers(tf: Any) -> list[Any]:
    """More layers than a small constant has elements; their weights have different sizes."""
    tf1 = tf.compat.v1
    hidden, width = tf1.placeholder(tf.float32, [64, 8], name="rows"), 8
    for layer in range(SMALL_CONSTANT_ELEMENTS + 4):
        matrix = weights(tf, f"layer_{layer}/weights", [width, width + 1])
        hidden, width = tf.tanh(tf.matmul(hidden, matrix)), width + 1
    loss = tf.reduce_mean(tf.square(hidden), name="loss")
    return [tf1.train.GradientDescentOptimizer(0.1).minimize(loss, name="train"), loss]


def test_a_bucket_of_many_gradients_is_cut_in_two_steps_and_applied() -> None:
    meta = exported(many_layers)
    profile = api.profile(meta, "v100x2-nvlink", parts=(2,))
    found = api.solve(profile, "data-parallel", variables="mirrored", bucket_bytes=2**20)
    cuts = [name for name in found.problem.graph.names if ".unpacked_0." in name]
    assert [name.rpartition(".")[2] for name in cuts] == ["first", "of_0", "of_1"]
    host = "/device:CPU:0"
    devices = {device.name: host for device in profile.problem.machine.devices}
    applied = api.apply(meta, api.placement(profile, found), devices=devices)
    check_equal(trained(meta), trained(applied), 1e-5)


def test_an_op_with_other_parts_takes_the_sum_of_a_bucket_whole() -> None:
    step, rows, sums = Step(), Operand((8, 4), "float32"), Operand((4,), "float32")
    handle = Operand((4,), "resource")
    variable = OpSpec("VarHandleOp", (("dtype", "float32"), ("shape", (4,))), (), (handle,))
    first, second = step.add(variable), step.add(variable)
    data = step.add(OpSpec("Dequeue", (), (), (rows,)), has_rule=False)
    attributes = (("T", "float32"), ("keep_dims", False))
    gradient = OpSpec("Sum", attributes, (rows, AXIS), (sums,))
    gradients = step.add(gradient, data, None), step.add(gradient, data, None)
    step.add(OpSpec("Exp", (("T", "float32"),), (sums,), (sums,)), gradients[0])
    update = OpSpec("AssignSubVariableOp", (("dtype", "float32"),), (handle, sums), (), True)
    step.add(update, first, gradients[0])
    step.add(update, second, gradients[1])
    mirrored, summands = Choice("mirrored", (1, 1)), Choice("reduced axis 0", (4, 4))
    choices = dict.fromkeys(("op0", "op1", "op6", "op7"), mirrored)
    choices |= dict.fromkeys(("op3", "op4"), summands)
    choices["op5"] = Choice("replicated", (1, 1, 1, 1))
    ops = expand(step.graph(), step.specs, Plan(choices, bucket_bytes=2**20)).ops
    taken = {ops.inputs[op] for op, name in enumerate(ops.names) if name.startswith("op5.part_")}
    (((producer, _),),) = taken
    assert ops.names[producer] == "op3.bucket.unpacked_0"


def test_a_clipped_gradient_is_added_once(profile: Profile) -> None:
    problem = profile.problem
    graph = rewritten(problem, batch_plan(problem, accelerators(problem))).problem.graph
    terms = [
        op for op, name in enumerate(graph.names) if re.search(r"gradients/.*MatMul_1\.part_", name)
    ]
    assert len(terms) == 4 * LAYERS
    assert all(len(graph.successors[term]) == 1 for term in terms)


def centred(tf: Any) -> list[Any]:
    """Nine narrow layers, and then a wide one, from which the mean of the batch is subtracted."""
    tf1 = tf.compat.v1
    x = tf1.placeholder(tf.float32, [64, 3], name="rows")
    for layer in range(9):
        x = tf.tanh(x - tf.reduce_mean(x, 0, name=f"mean_{layer}"))
    x = tf.matmul(x, weights(tf, "matrix", [3, 2**13]))
    loss = tf.reduce_mean(tf.square(x - tf.reduce_mean(x, 0, name="wide_mean")), name="loss")
    return [tf1.train.GradientDescentOptimizer(0.1).minimize(loss, name="train"), loss]


def test_small_sums_are_dealt_to_the_device_of_a_large_one_too() -> None:
    problem = api.profile(exported(centred), "v100x4-nvlink", parts=(2, 4, 8)).problem
    split = rewritten(problem, batch_plan(problem, accelerators(problem)))
    solution = dealt(problem, split, Mesh((tuple(accelerators(problem)),)))
    sums = [
        op for op, name in enumerate(split.problem.graph.names) if re.match(r"\w*mean_?\d?$", name)
    ]
    assert len(sums) == 10
    _, numbers = np.unique(solution.schedule.device[sums], return_counts=True)
    assert sorted(numbers) == [2, 2, 3, 3]
