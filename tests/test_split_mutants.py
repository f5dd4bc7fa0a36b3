"""Wrong ways to rewrite a graph are found by training it, each on a graph where it matters."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pytest
from float64_graphs import in_float64
from split_models import BATCH, batch_norm, weights
from split_training import check_equal, trained
from training_graphs import Build, exported

from pesto_cli.apply import splitting
from pesto_cli.apply.splitting import split_graph
from pesto_cli.data.plan import Choice, Plan
from pesto_cli.sharding import control_edges, program_columns
from pesto_cli.sharding.alternative import one_op_each
from pesto_cli.sharding.conversions import Conversions
from pesto_cli.sharding.layouts import Partial
from pesto_cli.sharding.pieces import sliced
from pesto_cli.sharding.rules import batch_norm as batch_norm_rules
from pesto_cli.sharding.rules import reductions


def regression(tf: Any) -> Sequence[Any]:
    """A mean over examples, a clipped gradient, and weight decay, with names for all of them."""
    tf1 = tf.compat.v1
    inputs = tf1.placeholder(tf.float32, [BATCH, 4], name="inputs")
    targets = tf1.placeholder(tf.float32, [BATCH, 3], name="targets")
    kernel = weights(tf, "kernel", [4, 3])
    outputs = tf.matmul(inputs, kernel)
    errors = tf.math.squared_difference(outputs, targets, name="errors")
    each = tf.reduce_sum(errors, axis=1)
    loss = tf.reduce_mean(each, name="loss")
    gradient = tf.matmul(inputs, outputs - targets, transpose_a=True, name="gradient")
    norm = tf.nn.l2_loss(gradient, name="norm")
    decayed = tf.add(gradient, 0.1 * kernel, name="decayed")
    with tf.control_dependencies([loss]):
        train = kernel.assign_sub(0.01 * decayed / (1.0 + norm), read_value=False)
    return [train, each, norm, loss]


def read_before_assignment(tf: Any) -> Sequence[Any]:
    """A slow read of a variable, which a control edge puts before the assignment of the next one.

    Without the edge the assignment comes first.
    """
    inputs = tf.compat.v1.placeholder(tf.float32, [400, 400], name="inputs")
    variable = weights(tf, "variable", [4])
    slow = inputs
    for _ in range(12):
        slow = tf.tanh(tf.matmul(slow, inputs))
    with tf.control_dependencies([slow]):
        read = variable.read_value()
    result = tf.exp(read, name="result")
    with tf.control_dependencies([result]):
        train = variable.assign_add(tf.ones([4]), read_value=False)
    return [train, result]


def fetched_after_update(tf: Any) -> Sequence[Any]:
    """A fetched tensor that is the only op that waits for the update of a variable."""
    inputs = tf.compat.v1.placeholder(tf.float32, [BATCH, 4], name="inputs")
    variable = weights(tf, "variable", [BATCH, 4])
    loss = tf.reduce_sum(inputs * variable, name="loss")
    with tf.control_dependencies([loss]):
        update = variable.assign_add(inputs, name="update", read_value=False)
    with tf.control_dependencies([update]):
        return [tf.identity(loss, name="result")]


def forget_shares(patch: pytest.MonkeyPatch) -> None:
    share = reductions._share
    patch.setattr(reductions, "_share", lambda mean, _: share(mean, 0.5))


def exchange_slices(patch: pytest.MonkeyPatch) -> None:
    slices = Conversions._slices
    patch.setattr(Conversions, "_slices", lambda *arguments: slices(*arguments)[::-1])


def take_norms_of_partial_sums(patch: pytest.MonkeyPatch) -> None:
    slices = Conversions._slices

    def of_summands(self: Any, tensor: int, axis: int, extents: tuple[int, ...]) -> Any:
        found, key = self._produced[tensor], (tensor, axis, extents)
        if isinstance(found.layout, Partial) and key not in self._split:
            add, name, operand = self._adding(tensor), self._split_name(key), self._operand(tensor)
            self._split[key] = sliced(add, name, operand, axis, extents, found.refs)
        return slices(self, tensor, axis, extents)

    patch.setattr(Conversions, "_slices", of_summands)


def decay_in_each_part(patch: pytest.MonkeyPatch) -> None:
    program_of = program_columns.program_of

    def of_decision(decision: Any) -> Any:
        if "whole" in decision.alternative.name:
            return one_op_each(decision.spec, decision.alternative, decision.sizes)
        return program_of(decision)

    patch.setattr(program_columns, "program_of", of_decision)


def take_statistics_of_one_part(patch: pytest.MonkeyPatch) -> None:
    statistics = batch_norm_rules._statistics
    patch.setattr(
        batch_norm_rules, "_statistics", lambda build, parts: statistics(build, parts[:1])
    )


def lose_control_edges(patch: pytest.MonkeyPatch) -> None:
    replace = splitting._Writer._replace_controls

    def without_parts(self: Any, node: Any) -> None:
        self._images = {name: [] for name in self._images}
        replace(self, node)

    patch.setattr(splitting._Writer, "_replace_controls", without_parts)


def wait_for_one_part(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(control_edges.ControlEdges, "_gives_copies", lambda *_: False)


class Mutant(NamedTuple):
    """A wrong rewriting, with a graph and a plan where it changes the results."""

    change: Callable[[pytest.MonkeyPatch], None]
    graph: Build
    plan: dict[str, Choice]


PIECES = Choice("variable 0", (3, 3))
GRADIENT = Choice("contracted", (3, 3))
MUTANTS = {
    "a share of a mean is forgotten": Mutant(
        forget_shares, regression, {"loss": Choice("reduced axis 0", (4, 2))}
    ),
    "two slices are exchanged": Mutant(
        exchange_slices, regression, {"errors": Choice("axis 0", (3, 3))}
    ),
    "a gradient is clipped before it is summed": Mutant(
        take_norms_of_partial_sums,
        regression,
        {"gradient": GRADIENT, "norm": Choice("reduced axis 0", (2, 2))},
    ),
    "weights decay once for each part": Mutant(
        decay_in_each_part,
        regression,
        {"gradient": GRADIENT, "decayed": Choice("sum, input 1 whole", (1, 1))},
    ),
    "a mean is that of a part": Mutant(
        take_statistics_of_one_part, batch_norm, {"FusedBatchNormV3": Choice("batch", (3, 3))}
    ),
    "a control edge is lost": Mutant(
        lose_control_edges, read_before_assignment, {"result": Choice("axis 0", (3, 1))}
    ),
    "a part of an update is lost": Mutant(
        wait_for_one_part,
        fetched_after_update,
        {
            **dict.fromkeys(("variable", "mul/ReadVariableOp", "update"), PIECES),
            "result": Choice("replicated", (1, 1)),
        },
    ),
}


@pytest.fixture
def forgotten_programs() -> Iterator[Callable[[], None]]:
    """A function that forgets the programs of split ops, which are kept between expansions."""
    yield program_columns.columns_of.cache_clear
    program_columns.columns_of.cache_clear()


@pytest.mark.parametrize("name", MUTANTS)
def test_training_finds_that(
    name: str, monkeypatch: pytest.MonkeyPatch, forgotten_programs: Callable[[], None]
) -> None:
    mutant = MUTANTS[name]
    meta, tolerance = exported(mutant.graph), 1e-5
    if mutant.graph is not batch_norm:
        meta, tolerance = in_float64(meta), 1e-9
    whole = trained(meta)
    check_equal(whole, trained(split_graph(meta, Plan(mutant.plan))), tolerance)
    mutant.change(monkeypatch)
    forgotten_programs()
    wrong = trained(split_graph(meta, Plan(mutant.plan)))
    with pytest.raises(AssertionError, match="of max"):
        check_equal(whole, wrong, tolerance)
