"""Changes of placements with a plan, and what must hold for those that are accepted."""

import json
import pickle
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from random_problems import random_placement
from split_training import check_equal, trained

from fuzz import odd
from pesto_cli import api
from pesto_cli.data.problem import Problem
from pesto_cli.errors import PestoError
from pesto_cli.files.plan import PlanSchema, plan_of
from pesto_cli.sharding.problems import rewritten
from pesto_cli.sharding.rules import alternatives
from pesto_cli.sharding.variables import variable_decisions

GRAPH, PROFILE, PLACEMENT, TRAINED = "plan.meta", "plan.profile.json", "plan.json", "plan.pickle"
STEPS = 3
TOLERANCE = 1e-5
HOSTS = ([], [0, 1], [1, 0], [0, 0], [0, 1, 0, 1], [7] * 16, [0], [-1, 0], [2**31 - 1, 0])
COLUMNS = (("parts", "origin"), ("parts", "part"), ("parts", "ops"), ("ops", "name"))


def embedded(tf: Any) -> Sequence[Any]:
    """An embedding and two dense layers with dropout; clipped gradients, Momentum."""
    tf1 = tf.compat.v1
    words = tf1.placeholder(tf.int32, [8, 3], name="words")
    labels = tf1.placeholder(tf.int32, [8], name="labels")
    table, first, second = (
        tf1.get_variable(
            name, shape, initializer=tf1.random_normal_initializer(seed=1), use_resource=True
        )
        for name, shape in (("table", [10, 6]), ("first", [6, 12]), ("second", [12, 5]))
    )
    rows = tf.reduce_mean(tf.nn.embedding_lookup(table, words), axis=1)
    hidden = tf.nn.relu(tf.matmul(rows, first, name="product"), name="hidden")
    logits = tf.matmul(tf1.nn.dropout(hidden, rate=0.2, seed=3), second, name="logits")
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    loss = tf.reduce_mean(losses, name="loss")
    clipped, _ = tf.clip_by_global_norm(tf1.gradients(loss, [table, first, second]), 1.0)
    sparse = tf1.train.GradientDescentOptimizer(0.1).apply_gradients([(clipped[0], table)])
    pairs = [(clipped[1], first), (clipped[2], second)]
    return [sparse, tf1.train.MomentumOptimizer(0.1, 0.9).apply_gradients(pairs), loss]


def changed(rng: random.Random, data: bytes) -> bytes:
    """Return a placement with another plan. The profile is in the current folder.

    In half of the cases the rows of the placement are those that the new plan makes, so that only
    the plan can be wrong.
    """
    if rng.random() < 0.05:
        return odd.changed_bytes(rng, data)
    value, problem = json.loads(data), api.read_profile(PROFILE).problem
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        if value["plan"]["choices"]:
            rng.choice(_CHANGES)(rng, value, problem)
    if rng.random() < 0.5:
        _place_again(rng, value, problem)
    if rng.random() < 0.05:
        _column(rng, value, problem)
    return json.dumps(value).encode()


def check_accepted() -> None:
    """Check what a command wrote in the current folder: it trains as the graph before the split.

    Raises:
        AssertionError: it does not.
    """
    if Path("out.meta").exists():
        _check_graph(api.read_graph("out.meta"))
    if Path("out.json").exists() and b"pesto-placement" in Path("out.json").read_bytes()[:200]:
        placed, profile = api.read_placement("out.json"), api.read_profile(PROFILE)
        stored = placed.predicted["makespan_us"]
        assert abs(api.simulate(profile, placed).makespan_us - stored) < 1e-6 * stored
        _check_graph(api.apply(api.read_graph(GRAPH), placed))


def _check_graph(meta: Any) -> None:
    for node in meta.graph_def.node:
        node.device = ""
    whole = pickle.loads(Path(TRAINED).read_bytes())
    check_equal(whole, trained(meta, STEPS), TOLERANCE)


def _place_again(rng: random.Random, value: Any, problem: Problem) -> None:
    """Place the ops of the plan, on random devices in a topological order, if the plan fits."""
    try:
        split = rewritten(problem, plan_of(PlanSchema(**value["plan"])))
        device = random_placement(split.problem, rng.randrange(2**31))
    except (PestoError, ValueError):
        return
    graph, rank = split.problem.graph, np.zeros(split.problem.num_ops, dtype=np.int64)
    order = graph.topological_order
    for number in range(split.problem.num_devices):
        ops = order[device[order] == number]
        rank[ops] = np.arange(len(ops))
    value["devices"] = [each.name for each in problem.machine.devices]
    value["ops"] = {"name": list(graph.names), "device": device.tolist(), "rank": rank.tolist()}
    value["parts"]["origin"], value["parts"]["part"] = split.origin.tolist(), split.part.tolist()
    value["parts"]["ops"] = list(problem.graph.names)


def _choose(value: Any, ops: Sequence[str], alternative: str, sizes: Sequence[int]) -> None:
    plan = value["plan"]
    for op in ops:
        plan["ops"][op] = len(plan["choices"])
    plan["choices"].append({"alternative": alternative, "sizes": list(sizes)})


def _known_op(rng: random.Random, value: Any, problem: Problem) -> str:
    """Return an op, in most cases one of the plan."""
    split = list(value["plan"]["ops"])
    return rng.choice(split if split and rng.random() < 0.7 else problem.graph.names)


def _other_way(rng: random.Random, value: Any, problem: Problem) -> None:
    """Split an op in one of its own ways."""
    op = _known_op(rng, value, problem)
    spec = problem.parts.spec(problem.graph.index_of[op]) if problem.parts else None
    ways = [] if spec is None else list(alternatives(spec))
    if ways:
        way = rng.choice(ways)
        _choose(value, [op], way.name, _sizes(rng, way.size))


def _sizes(rng: random.Random, size: int | None) -> list[int]:
    number = rng.choice((2, 2, 2, 3, 4, 1, 17))
    if size is None:
        return [rng.choice((1, 1, 1, 1, 1, 1, 2, 0))] * number
    ends = sorted(rng.randrange(size + 1) for _ in range(number - 1))
    uneven = np.diff([0, *ends, size]).tolist()
    even = np.diff(np.arange(number + 1) * size // number).tolist()
    return rng.choice((uneven, even, even))


def _other_sizes(rng: random.Random, value: Any, problem: Problem) -> None:
    """Change the sizes of all ops that share a choice, or of one op."""
    choice = rng.choice(value["plan"]["choices"])
    if rng.random() < 0.5:
        op = _known_op(rng, value, problem)
        index = value["plan"]["ops"].get(op, 0)
        choice = value["plan"]["choices"][index % len(value["plan"]["choices"])]
        _choose(value, [op], choice["alternative"], choice["sizes"])
        choice = value["plan"]["choices"][-1]
    old = choice["sizes"]
    others = (
        *(old[::-1], old[1:], [*old, *old[:1]], [*old[:-1], 0], [-1, *old[1:]], [sum(old)]),
        *([max(old, default=1) - 1, *old[1:-1], min(old, default=1) + 1], [10**9, *old[1:]]),
        *(_sizes(rng, sum(old) or None), _sizes(rng, sum(old) or None), [1] * (len(old) + 1)),
    )
    choice["sizes"] = rng.choice(others)


def _other_name(rng: random.Random, value: Any, problem: Problem) -> None:
    """Rename an alternative, or an op in one section of the file or in all of them."""
    ops, choices = value["plan"]["ops"], value["plan"]["choices"]
    if rng.random() < 0.4:
        names = [each["alternative"] for each in choices]
        choice = rng.choice(choices)
        choice["alternative"] = rng.choice((*names, "variable 1", "mirrored", "ROWS", "axis 9", ""))
        return
    old = rng.choice(list(ops) or [""])
    new = rng.choice((f"{old}.part_0", f"{old}x", rng.choice(problem.graph.names), "", "a:0", "^b"))
    kind = rng.randrange(3)
    if kind != 1 and old in ops:
        ops[new] = ops.pop(old)
    if kind != 0:
        for section, column in (("parts", "ops"), ("ops", "name")):
            names = value[section][column]
            names[:] = [new if name == old else name for name in names]


def _hosts(rng: random.Random, value: Any, problem: Problem) -> None:
    value["plan"]["hosts"] = rng.choice(HOSTS)


def _column(rng: random.Random, value: Any, problem: Problem) -> None:
    """Truncate, shuffle or change a column of the placed ops or of the parts."""
    section, name = rng.choice(COLUMNS)
    column = value.get(section, {}).get(name, [])
    if not column:
        return
    at, other = rng.randrange(len(column)), rng.randrange(len(column))
    kind = rng.randrange(5)
    if kind == 0:
        del column[at:]
    elif kind == 1:
        column[at], column[other] = column[other], column[at]
    elif kind == 2:
        column[at] = column[other]
    elif kind == 3:
        rng.shuffle(column)
    elif isinstance(column[at], int):
        column[at] = rng.choice((-1, -2, column[at] + 1, 10**6, 2**31))


def _truncate(rng: random.Random, value: Any, problem: Problem) -> None:
    """Leave out a part of the plan."""
    plan = value["plan"]
    names = list(plan["ops"])
    kind = rng.randrange(5)
    if kind == 0:
        del value[rng.choice(("plan", "parts"))]
        value.setdefault("plan", {"choices": [], "ops": {}, "hosts": []})
        value.setdefault("parts", {"ops": [], "origin": [], "part": []})
    elif kind == 1:
        del plan["choices"][rng.randrange(len(plan["choices"]) + 1) :]
        plan["choices"] = plan["choices"] or [{"alternative": "rows", "sizes": [1, 1]}]
    elif kind == 2 and names:
        for name in names[rng.randrange(len(names)) :]:
            del plan["ops"][name]
    else:
        for name in rng.sample(names, min(len(names), rng.choice((1, 2, 9)))):
            del plan["ops"][name]


def _swap(rng: random.Random, value: Any, problem: Problem) -> None:
    """Swap the choices of two ops, or two choices of all ops."""
    plan = value["plan"]
    if rng.random() < 0.3:
        rng.shuffle(plan["choices"])
    elif len(plan["ops"]) > 1:
        first, second = rng.sample(list(plan["ops"]), 2)
        plan["ops"][first], plan["ops"][second] = plan["ops"][second], plan["ops"][first]


def _variable(rng: random.Random, value: Any, problem: Problem) -> None:
    """Store a variable in another way: all ops that take it, or only some of them."""
    variable = rng.choice(("table", "first", "second"))
    way = rng.choice(("variable 0", "variable 1", "mirrored", "mirrored", "whole"))
    extents = {"table": (10, 6), "first": (6, 12), "second": (12, 5)}[variable]
    op = problem.graph.index_of[variable]
    specs = [problem.parts.spec(each) if problem.parts else None for each in range(problem.num_ops)]
    of_it = variable_decisions(problem.graph, specs, op, "mirrored", (1, 1)) or {}
    ops = [problem.graph.names[each] for each in of_it]
    if rng.random() < 0.5:
        ops = rng.sample(ops, rng.randrange(1, len(ops) + 1))
    if way == "whole":
        for op in ops:
            value["plan"]["ops"].pop(op, None)
    else:
        _choose(value, ops, way, _sizes(rng, None if way == "mirrored" else extents[int(way[-1])]))


_Change = Callable[[random.Random, Any, Problem], None]
_CHANGES: tuple[_Change, ...] = (
    *(_other_way, _other_way, _other_sizes, _other_sizes, _other_name, _hosts, _column),
    *(_truncate, _swap, _variable, _variable, _variable),
)
