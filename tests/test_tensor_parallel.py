"""`tensor-parallel`: weights in pieces, and baselines with mirrored variables."""

from functools import cache
from typing import Any

import pytest
from float64_graphs import in_float64
from split_models import exported_model, weights
from split_training import check_equal, trained
from training_graphs import exported
from variable_accesses import unordered_accesses

from pesto_cli import api
from pesto_cli.apply.splitting import split_graph
from pesto_cli.data.plan import Plan
from pesto_cli.data.schedule import sent_bytes
from pesto_cli.errors import UnfitError
from pesto_cli.files import Profile

WIDTH, LAYERS = 64, 4


def chain(tf: Any) -> list[Any]:
    """Dense layers one after the other."""
    tf1 = tf.compat.v1
    hidden = tf1.placeholder(tf.float32, [32, WIDTH], name="rows")
    for layer in range(LAYERS):
        matrix = weights(tf, f"weights_{layer}", [WIDTH, WIDTH])
        hidden = tf.tanh(tf.matmul(hidden, matrix, name=f"product_{layer}"))
    loss = tf.reduce_mean(tf.square(hidden), name="loss")
    return [tf1.train.MomentumOptimizer(0.1, 0.9).minimize(loss, name="train"), loss]


def priced(meta: Any, machine: str = "v100x2-nvlink") -> Profile:
    return api.profile(meta, machine, parts=(2, 4, 8))


@cache
def graph_of(name: str) -> Any:
    """Return `chain`, or a model of `split_models`."""
    return exported(chain) if name == "chain" else exported_model(name)


@cache
def priced_model(name: str, machine: str = "v100x2-nvlink") -> Profile:
    """Return the profile of a graph with prices of parts, which is made once for all tests."""
    return priced(graph_of(name), machine)


def plan_of(profile: Profile, strategy: str) -> Plan:
    result = api.solve(profile, strategy)
    assert result.solution.plan is not None
    return result.solution.plan


def test_layers_are_split_by_turns_along_columns_and_rows() -> None:
    choices = plan_of(priced_model("chain"), "tensor-parallel").choices
    axes = [choices[f"weights_{layer}"].alternative for layer in range(LAYERS)]
    assert axes in (["variable 1", "variable 0"] * 2, ["variable 0", "variable 1"] * 2)
    products = [choices[f"product_{layer}"].alternative for layer in range(LAYERS)]
    of_axis = {"variable 1": "columns", "variable 0": "contracted"}
    assert products == [of_axis[axis] for axis in axes]
    slots = [choices[f"weights_{layer}/Momentum"].alternative for layer in range(LAYERS)]
    assert slots == axes


def test_weights_are_not_sent() -> None:
    profile = priced_model("chain")
    sent = {
        strategy: sent_bytes(result.problem, result.schedule).sum()
        for strategy in ("tensor-parallel", "ev-ps")
        for result in [api.solve(profile, strategy)]
    }
    assert sent["tensor-parallel"] < sent["ev-ps"]


@pytest.mark.parametrize("strategy", ["tensor-parallel", "ev-ar"])
@pytest.mark.parametrize("machine", ["v100x2-nvlink", "v100x4-nvlink"])
def test_the_step_trains_as_before(strategy: str, machine: str) -> None:
    for name in ("chain", "gpt"):
        plan = plan_of(priced_model(name, machine), strategy)
        ways = {choice.alternative for choice in plan.choices.values()}
        assert ways & {"variable 0", "variable 1", "mirrored"}
        whole = in_float64(graph_of(name))
        check_equal(trained(whole), trained(split_graph(whole, plan)), 1e-9)


@pytest.mark.parametrize("strategy", ["tensor-parallel", "ev-ar"])
def test_accesses_to_a_copy_or_a_piece_are_ordered_as_before(strategy: str) -> None:
    """Adam's powers: each copy is read by all updates, and written by its own op after them."""
    for name in ("gpt", "bert"):
        meta, plan = graph_of(name), plan_of(priced_model(name, "v100x4-nvlink"), strategy)
        assert not set(unordered_accesses(meta))
        assert not set(unordered_accesses(split_graph(meta, plan)))


def test_a_step_without_weights_is_left_to_others() -> None:
    def build(tf: Any) -> list[Any]:
        rows = tf.compat.v1.placeholder(tf.float32, [8, 4], name="rows")
        return [tf.reduce_sum(tf.exp(rows), name="sum")]

    with pytest.raises(UnfitError, match="no weights can be split over 2 accelerators"):
        api.solve(priced(exported(build)), "tensor-parallel")
