"""Graphs that were split by random plans compute what they computed: losses, variables, slots.

More plans, and programs of other people, are tried where they are asked for (PESTO_EXAMPLES).
"""

import os

import numpy as np
import pytest
from random_plans import propagated_plan, random_plan
from split_models import MODELS, PROGRAMS, trained_model
from split_training import check_equal, trained

from pesto_cli.apply.splitting import split_graph
from pesto_cli.graphdef.xla import MUST_COMPILE
from pesto_cli.sharding.decisions import Decision
from pesto_cli.sharding.propagation import Prices, propagate
from pesto_cli.sharding.rules.variables import is_variable
from pesto_cli.sharding.variables import variable_decisions

EXAMPLES = int(os.environ.get("PESTO_EXAMPLES", "1"))
ALL = MODELS if EXAMPLES == 1 else {**MODELS, **PROGRAMS}
PLANS = {"random": random_plan, "propagated": propagated_plan}


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("name", [name for name, model in ALL.items() if model.has_float64])
def test_a_split_model_trains_as_before_in_float64(name: str, plan: str) -> None:
    model = trained_model(name, "float64")
    for seed in range(EXAMPLES):
        chosen = PLANS[plan](model.step.graph, model.specs, seed)
        check_equal(model.training, trained(split_graph(model.meta, chosen)), 1e-9)


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, model in ALL.items()
        if EXAMPLES > 1 or not model.has_float64 or name in ("gpt", "keras_cnn")
    ],
)
def test_a_split_model_trains_as_before_in_its_own_precision(name: str) -> None:
    model = trained_model(name, "own")
    for seed in range(100, 100 + EXAMPLES):
        for make in PLANS.values() if not ALL[name].has_float64 else [random_plan]:
            chosen = make(model.step.graph, model.specs, seed)
            training = trained(split_graph(model.meta, chosen))
            check_equal(model.training, training, ALL[name].tolerance, ALL[name].noise)


@pytest.mark.parametrize(
    ("name", "ways"),
    [
        ("gpt", {"table": "variable 0", "scale": "mirrored"}),
        ("bert", {"table": "variable 0", "scale": "mirrored"}),
        ("dlrm", {"users_table": "variable 0", "items_table": "variable 1", "bias": "mirrored"}),
    ],
)
def test_variables_in_pieces_and_copies_train_as_before(name: str, ways: dict[str, str]) -> None:
    model = trained_model(name, "float64")
    graph, specs, decided = model.step.graph, model.specs, dict[int, Decision]()
    for op, spec in enumerate(specs):
        if spec is None or not is_variable(spec):
            continue
        for end_of_name, way in ways.items():
            if graph.names[op].endswith(end_of_name):
                sizes = (1, 1)
                if way != "mirrored":
                    sizes = (2, spec.outputs[0].sizes[int(way[-1])] - 2)
                found = variable_decisions(graph, specs, op, way, sizes)
                assert found
                decided.update(found)
    feeds = [op for op, kind in enumerate(graph.types) if kind == "Placeholder"]
    seeds = {graph.tensors_of(op)[0]: 0 for op in feeds}
    prices = Prices(np.full(graph.num_ops, 1e3), 1e-4, 1.0)
    plan = propagate(graph, specs, seeds, (1.0, 1.0), prices, decided).plan
    ways_of = {choice.alternative for choice in plan.choices.values()}
    assert {*ways.values(), "rows"} <= ways_of
    check_equal(model.training, trained(split_graph(model.meta, plan)), 1e-9)


def test_compiled_convolutions_are_split_along_the_batch_and_stay_compiled() -> None:
    model = trained_model("keras_groups", "float64")
    graph = model.step.graph
    feeds = [op for op, kind in enumerate(graph.types) if kind == "Placeholder"]
    seeds = {graph.tensors_of(op)[0]: 0 for op in feeds}
    prices = Prices(np.full(graph.num_ops, 1e3), 1e-4, 1.0)
    plan = propagate(graph, model.specs, seeds, (1.0, 1.0), prices).plan
    calls = [name for name, kind in zip(graph.names, graph.types, strict=True) if "Call" in kind]
    assert [plan.choices[name].alternative for name in calls] == ["batch"] * 4
    split = split_graph(model.meta, plan)
    parts = [node for node in split.graph_def.node if node.op == "PartitionedCall"]
    assert len(parts) == 8
    assert all(node.attr[MUST_COMPILE].b for node in parts)
    check_equal(model.training, trained(split), 1e-9)


def test_random_plans_have_all_kinds_of_choices() -> None:
    """Two to four parts, uneven ones, open sums, copies, and sums by host."""
    model = trained_model("gpt", "float64")
    plans = [random_plan(model.step.graph, model.specs, seed) for seed in range(6)]
    choices = [choice for plan in plans for choice in plan.choices.values()]
    assert {choice.num_parts for choice in choices} == {2, 3, 4}
    assert any(len(set(choice.sizes)) > 1 for choice in choices)
    assert {"sum", "replicated", "rows", "reduced axis 0"} <= {each.alternative for each in choices}
    assert any(plan.hosts for plan in plans)
