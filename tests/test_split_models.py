"""Graphs that were split by random plans compute what they computed: losses, variables, slots.

More plans, and programs of other people, are tried where they are asked for (PESTO_EXAMPLES).
"""

import os

import pytest
from random_plans import propagated_plan, random_plan
from split_models import MODELS, PROGRAMS, trained_model
from split_training import check_equal, trained

from pesto_cli.apply.splitting import split_graph

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


@pytest.mark.parametrize("name", ALL)
def test_a_split_model_trains_as_before_in_its_own_precision(name: str) -> None:
    model = trained_model(name, "own")
    for seed in range(100, 100 + EXAMPLES):
        for make in PLANS.values() if not ALL[name].has_float64 else [random_plan]:
            chosen = make(model.step.graph, model.specs, seed)
            training = trained(split_graph(model.meta, chosen))
            check_equal(model.training, training, ALL[name].tolerance, ALL[name].noise)


def test_random_plans_have_all_kinds_of_choices() -> None:
    """Two to four parts, uneven ones, open sums, copies, and sums by host."""
    model = trained_model("gpt", "float64")
    plans = [random_plan(model.step.graph, model.specs, seed) for seed in range(6)]
    choices = [choice for plan in plans for choice in plan.choices.values()]
    assert {choice.num_parts for choice in choices} == {2, 3, 4}
    assert any(len(set(choice.sizes)) > 1 for choice in choices)
    assert {"sum", "replicated", "rows", "reduced axis 0"} <= {each.alternative for each in choices}
    assert any(plan.hosts for plan in plans)
