"""Slow-down of ops while the other worker computes: `python -m benchmarks.contention`.

Each family of ops runs in a chain of about 60 ms on one worker of this host. The other worker runs
the same chain, or one of matrix products. One, the other and both chains run by turns. If the
workers did not affect each other, a step with both chains would take as long as the longer of the
two steps with one chain.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from benchmarks.fidelity import MACHINE
from pesto_cli import api as pesto
from pesto_cli.apply import session_config
from pesto_cli.cluster import Connection
from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.profile.comm.chains import NUM_WARM_UP
from pesto_cli.profile.comm.products import timed_us, variable

CHAIN_US, MAX_OPS, TURNS = 60_000.0, 3000, 12
PRODUCTS = "MatMul 1024 x 1024"

Tensor = Any
Quartiles = tuple[float, float, float]


@dataclass(frozen=True)
class Family:
    """Ops of one kind: shapes of the variables that they read, and the op itself.

    op: called with the output of the previous op and the variables.
    """

    shapes: tuple[tuple[int, ...], ...]
    op: Callable[..., Tensor]


def families() -> Mapping[str, Family]:
    """Return the families: matrix products, convolutions, and ops limited by memory bandwidth."""
    tf = tensorflow()
    return {
        "MatMul 256 x 256": Family(((256, 256),), tf.matmul),
        PRODUCTS: Family(((1024, 1024),), tf.matmul),
        "Conv2D 3 x 3": Family(
            ((8, 32, 32, 64), (3, 3, 64, 64)),
            lambda y, _, kernel: tf.nn.conv2d(y, kernel, 1, "SAME"),
        ),
        "AddV2 of 1 MB": Family(((2**18,),), tf.add),
        "AddV2 of 16 MB": Family(((2**22,),), tf.add),
        "Tanh of 1 MB": Family(((2**18,),), lambda y, _: tf.tanh(y)),
        "Transpose of 4 MB": Family(((1024, 1024),), lambda y, _: tf.transpose(y)),
        "Softmax of 2 MB": Family(((512, 1024),), lambda y, _: tf.nn.softmax(y)),
    }


def chain(family: Family, device: str, count: int) -> Any:
    """Build a chain of `count` ops on a device; return its last op."""
    tf1 = tensorflow().compat.v1
    with tf1.device(device), tf1.variable_scope(None, "chain"):
        variables = [
            variable(f"variable_{number}", [*shape]) for number, shape in enumerate(family.shapes)
        ]
        output = tf1.identity(variables[0])
        for _ in range(count):
            output = family.op(output, *variables)
        return output.op


def step_times_us(connection: Connection, steps: Callable[[], Mapping[Any, Any]]) -> Any:
    """Build the steps in a new graph, run them by turns, and return their times in us by name."""
    tf1 = tensorflow().compat.v1
    with tf1.Graph().as_default() as graph:
        ends = steps()
        start = tf1.global_variables_initializer()
    with connection.session(graph, session_config()) as session:
        session.run(start)
        run = {name: session.make_callable(end) for name, end in ends.items()}
        rows = [
            {name: timed_us(step) for name, step in run.items()} for _ in range(NUM_WARM_UP + TURNS)
        ]
    return {name: np.array([row[name] for row in rows[NUM_WARM_UP:]]) for name in ends}


def two_chains(family: Family, device: str) -> dict[int, Any]:
    """Build two chains of ops; return {number of ops: last op of the chain}."""
    return {num_ops: chain(family, device, num_ops) for num_ops in (1, 11)}


def slow_downs(connection: Connection) -> dict[str, tuple[float, Quartiles, Quartiles]]:
    """Return us of one op and the slow-downs of each family; runs in the client.

    The slow-downs are those beside the same family, and beside matrix products.
    """
    here, there = list(connection.device_names.values())[:2]
    one_us, counts = {}, {}
    for name, family in families().items():
        probe = step_times_us(connection, partial(two_chains, family, here))
        one_us[name] = max(1.0, float(probe[11].min() - probe[1].min()) / 10)
        counts[name] = min(MAX_OPS, int(np.ceil(CHAIN_US / one_us[name])))

    def slow_down(name: str, other: str) -> Quartiles:
        def steps() -> Mapping[str, Any]:
            ends = [
                chain(families()[family], device, counts[family])
                for family, device in ((name, here), (other, there))
            ]
            return {"here": [ends[0]], "there": [ends[1]], "both": ends}

        us = step_times_us(connection, steps)
        ratios = us["both"] / np.maximum(us["here"], us["there"])
        low, median, high = (float(q) for q in np.quantile(ratios, (0.25, 0.5, 0.75)))
        return low, median, high

    return {
        name: (us, slow_down(name, name), slow_down(name, PRODUCTS)) for name, us in one_us.items()
    }


def main() -> None:
    """Measure, and print a table."""
    with pesto.connected(MACHINE) as cluster:
        found = cluster.call(slow_downs)
    print(
        "| ops | one op, us | beside the same | middle half | beside products | middle half |\n"
        "|---|--:|--:|--:|--:|--:|"
    )
    for name, (one_us, *beside) in found.items():
        cells = [f"{median:.3f} | {low:.3f} - {high:.3f}" for low, median, high in beside]
        print(f"| {name} | {one_us:,.0f} | {' | '.join(cells)} |")


if __name__ == "__main__":
    from benchmarks.contention import main as imported  # its functions are found by their module

    imported()
