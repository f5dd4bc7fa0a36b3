"""Chains of hops between devices, as graphs: what a hop of each takes.

In a hop tensors or signals (control edges) go between devices, all at once, and the next hop begins
when all have arrived. What a step costs beyond its chain is the same for a chain of any length, so
with T_k the time of the step with k hops

    hop_us = (T_k - T_1) / (k - 1)

A tensor comes from a variable, as TensorFlow copies small constants to every device; grappler is
off, and nothing is fetched. All chains of a graph take turns, so that a disturbance hits all alike,
and of each the median counts, as for op times: a machine is measured with one ruler.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pesto_cli.apply import session_config
from pesto_cli.cluster import Connection
from pesto_cli.graphdef.tensorflow import tensorflow

NUM_WARM_UP = 2
# After so long there are no more turns than these.
LIMIT_S, MIN_TURNS = 40.0, 3


def turns(count: int, limit_s: float) -> Iterator[int]:
    """Number the turns, those of the warm-up first; past the limit there are only the fewest."""
    deadline = time.monotonic() + limit_s
    for turn in range(NUM_WARM_UP + count):
        if turn >= NUM_WARM_UP + MIN_TURNS and time.monotonic() > deadline:
            return
        yield turn


@dataclass(frozen=True)
class Hop:
    """From one device to another: a tensor, or a signal where there is no tensor."""

    src: str
    dst: str
    tensor: Any = None


class Chains:
    """A graph of chains under construction; every hop begins and ends at `home`.

    assignments: what gives the variables their values.
    ends: of each chain, by its name and its number of hops.
    """

    def __init__(self, connection: Connection, home: str) -> None:
        self.graph = tensorflow().Graph()
        self.assignments: list[Any] = []
        self.ends: dict[tuple[int | str, int], Any] = {}
        self._connection, self._home = connection, home

    def variable(self, device: str, num_bytes: int) -> Any:
        """A tensor that is there before the step."""
        tf = tensorflow()
        raw = tf.raw_ops
        with self.graph.as_default(), tf.device(device):
            name = f"variable_{len(self.assignments)}"
            handle = raw.VarHandleOp(dtype=tf.uint8, shape=[num_bytes], shared_name=name)
            value = raw.Fill(dims=[num_bytes], value=tf.constant(1, tf.uint8))
            self.assignments.append(raw.AssignVariableOp(resource=handle, value=value))
            return raw.ReadVariableOp(resource=handle, dtype=tf.uint8)

    def add(self, name: int | str, num_hops: int, *moves: Hop) -> None:
        """Add chains of one hop and of `num_hops`, in each hop these moves at once."""
        for count in (1, num_hops):
            end: list[Any] = []
            for _ in range(count):
                end = [self._hop(end, moves)]
            self.ends[name, count] = end

    def _hop(self, after: list[Any], moves: Sequence[Hop]) -> Any:
        tf = tensorflow()
        tf1 = tf.compat.v1
        arrived = []
        with self.graph.as_default():
            for move in moves:
                with tf.device(move.src), tf1.control_dependencies(after):
                    sent = tf1.no_op() if move.tensor is None else tf.identity(move.tensor).op
                with tf.device(move.dst):
                    if move.tensor is None:
                        with tf1.control_dependencies([sent]):
                            arrived.append(tf1.no_op())
                    else:
                        arrived.append(tf.identity(sent.outputs[0]).op)
            with tf.device(self._home), tf1.control_dependencies(arrived):
                return tf1.no_op()

    def hop_us(self, num_turns: int) -> dict[int | str, float]:
        """Run all chains by turns and return the time of a hop of each.

        Where others keep the machine busy there may be fewer turns: see `LIMIT_S`.
        """
        us: dict[tuple[int | str, int], list[float]] = {key: [] for key in self.ends}
        with self._connection.session(self.graph, session_config()) as session:
            session.run(self.assignments)
            steps = {key: session.make_callable(end) for key, end in self.ends.items()}
            for _ in turns(num_turns, LIMIT_S):
                for key, step in steps.items():
                    began = time.perf_counter()
                    step()
                    us[key].append((time.perf_counter() - began) * 1e6)
        usual = {key: np.median(row[NUM_WARM_UP:]) for key, row in us.items()}
        return {
            name: float(usual[name, count] - usual[name, 1]) / (count - 1)
            for name, count in usual
            if count > 1
        }
