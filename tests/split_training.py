"""Trains a graph and the same graph in parts, and compares what they compute."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from pesto_cli.graphdef.fetches import fetch_names, init_names
from pesto_cli.graphdef.tensorflow import tensorflow

STEPS = 5
MAX_PARTS = 16
VARIABLES = ("VarHandleOp", "VariableV2", "Variable")
Values = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Training:
    """What some steps compute.

    fetched: `[num_steps]`, the fetched tensors of each step. state: the variables after the last
        step, also those of optimisers.
    """

    fetched: Sequence[Sequence[np.ndarray]]
    state: Values


def trained(meta: Any, num_steps: int = STEPS) -> Training:
    """Train from the initial values on the same random batch in each step."""
    with session_of(meta) as session:
        session.run(list(init_names(meta)))
        fetches = [name for name in fetch_names(meta) if ":" in name]
        runs = {"tensors": fetches, "updates": list(fetch_names(meta))}
        feeds = random_feeds(session.graph)
        fetched = [session.run(runs, feeds)["tensors"] for _ in range(num_steps)]
        return Training(fetched, state(session))


@contextmanager
def session_of(meta: Any) -> Iterator[Any]:
    """Yield a session on a new graph, in which grappler changes nothing."""
    tf1 = tensorflow().compat.v1
    config = tf1.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = -1
    with tf1.Graph().as_default() as graph, tf1.Session(config=config, graph=graph) as session:
        tf1.import_graph_def(meta.graph_def, name="")
        yield session


def random_feeds(graph: Any, seed: int = 0) -> dict[Any, np.ndarray]:
    """Return a value for each placeholder: normal, or integers from 0 to 4."""
    rng = np.random.default_rng(seed)
    feeds = {}
    for tensor in (op.outputs[0] for op in graph.get_operations() if op.type == "Placeholder"):
        if tensor.dtype.name == "resource" or not tensor.shape.is_fully_defined():
            continue
        is_whole = tensor.dtype.is_integer or tensor.dtype.is_bool
        drawn = rng.integers(5, size=tensor.shape) if is_whole else rng.normal(size=tensor.shape)
        feeds[tensor] = np.asarray(drawn).astype(tensor.dtype.as_numpy_dtype)
    return feeds


def state(session: Any) -> dict[str, np.ndarray]:
    """Return the values of all variables that have one."""
    tf = tensorflow()
    known, values = {}, {}
    for op in session.graph.get_operations():
        tensor = op.outputs[0] if op.type in VARIABLES else None
        if op.type == "VarHandleOp":
            known[op.name] = tf.raw_ops.VarIsInitializedOp(resource=tensor)
            dtype = op.get_attr("dtype")
            values[op.name] = tf.raw_ops.ReadVariableOp(resource=tensor, dtype=dtype)
        elif tensor is not None:
            known[op.name] = tf.compat.v1.is_variable_initialized(tensor)
            values[op.name] = tensor
    has_value = session.run(known)
    return session.run({name: value for name, value in values.items() if has_value[name]})


def check_equal(first: Training, second: Training, tolerance: float, skip: str = "\0") -> None:
    """Compare two trainings.

    tolerance: largest difference, relative to max(1, the largest value of the tensor).
    skip: a part of the names of variables that are not compared.

    Raises:
        AssertionError: a tensor differs; the message names it.
    """
    state = with_whole_variables(second.state, first.state)
    assert first.state.keys() == state.keys()
    for number, (ours, others) in enumerate(zip(first.fetched, second.fetched, strict=True)):
        for place, pair in enumerate(zip(ours, others, strict=True)):
            _check_tensor(*pair, tolerance, f"fetch {place} of step {number}")
    for name, value in first.state.items():
        if skip not in name:
            _check_tensor(value, state[name], tolerance, name)


def with_whole_variables(state: Values, like: Values) -> Values:
    """Join the pieces of variables, and drop the copies of others.

    like: the variables of the graph before it was split.

    Raises:
        AssertionError: a copy differs from the first one, or pieces do not fit.
    """
    whole = {name: value for name, value in state.items() if name in like}
    for name, value in like.items():
        found = (state.get(f"{name}.part_{part}") for part in range(MAX_PARTS))
        pieces = [piece for piece in found if piece is not None]
        if name in state:
            for piece in pieces:
                np.testing.assert_array_equal(piece, state[name], name)
        elif pieces:
            total = np.sum([piece.shape for piece in pieces], axis=0)
            (axis,) = np.flatnonzero(total == value.shape)
            whole[name] = np.concatenate(pieces, axis)
    return whole


def _check_tensor(first: np.ndarray, second: np.ndarray, tolerance: float, what: str) -> None:
    first, second = np.asarray(first), np.asarray(second)
    assert (first.dtype, first.shape) == (second.dtype, second.shape), what
    if first.dtype.kind not in "fcV":
        assert (first == second).all(), f"{what}: {first} and {second}"
        return
    first, second = first.astype(np.float64), second.astype(np.float64)
    assert np.isfinite(first).all(), f"{what}: {first}"
    scale = max(1.0, np.abs(first).max(initial=0))
    distance = np.abs(first - second).max(initial=0) / scale
    assert distance <= tolerance, f"{what}: {distance:.3g} of max(1, {scale:.3g})"
