"""Time hops between devices by running graphs that are chains of hops.

In one hop, tensors or signals (control edges) go between devices, all at the same time. The next
hop begins when all have arrived. The rest of the step takes the same time for a chain of any
length, so with T_k the time of a step with k hops

    hop_us = (T_k - T_1) / (k - 1)

The tensors are values of variables, because TensorFlow copies small constants to every device.
Grappler is off, and nothing is fetched. The chains of a graph run in turn, so that a disturbance
affects all of them equally. T_k is the median over the turns, as for op times.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pesto_cli.apply import session_config
from pesto_cli.cluster import Connection
from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.runtime.repetitions import repetitions

NUM_WARM_UP = 2
# No new turn begins after LIMIT_S, except for the first MIN_TURNS.
LIMIT_S, MIN_TURNS = 40.0, 3


@dataclass(frozen=True)
class Effort:
    """How long a link is timed.

    num_turns: of each measurement. share: of the usual time limits of the measurements.
    """

    num_turns: int = 20
    share: float = 1.0


def turns(effort: Effort, limit_s: float, began_s: float, times: int = 1) -> Iterator[int]:
    """Return an iterator over the numbers of the turns, the NUM_WARM_UP first.

    After the share of `limit_s` there are no more turns, except for the warm-up and the next
    MIN_TURNS. began_s: when the limit began, by `time.monotonic`. times: turns for each turn of
    the effort.
    """
    most = NUM_WARM_UP + times * effort.num_turns
    return repetitions(most, NUM_WARM_UP + MIN_TURNS, began_s + effort.share * limit_s)


@dataclass(frozen=True)
class Hop:
    """A transfer of `tensor` from one device to another; a signal if `tensor` is None."""

    src: str
    dst: str
    tensor: Any = None


class Chains:
    """A graph of chains of hops; an op on device `home` ends each hop and starts the next.

    assignments: the ops that initialise the variables.
    ends: (name of a chain, number of its hops) -> its last op, in a list.
    """

    def __init__(self, connection: Connection, home: str) -> None:
        self.graph = tensorflow().Graph()
        self.assignments: list[Any] = []
        self.ends: dict[tuple[int | str, int], Any] = {}
        self._connection, self._home, self._began_s = connection, home, time.monotonic()

    def variable(self, device: str, num_bytes: int) -> Any:
        """Return the value of a new variable, which is on the device before the step begins."""
        tf = tensorflow()
        raw = tf.raw_ops
        with self.graph.as_default(), tf.device(device):
            name = f"variable_{len(self.assignments)}"
            handle = raw.VarHandleOp(dtype=tf.uint8, shape=[num_bytes], shared_name=name)
            value = raw.Fill(dims=[num_bytes], value=tf.constant(1, tf.uint8))
            self.assignments.append(raw.AssignVariableOp(resource=handle, value=value))
            return raw.ReadVariableOp(resource=handle, dtype=tf.uint8)

    def add(self, name: int | str, num_hops: int, *moves: Hop) -> None:
        """Add a chain of one hop and a chain of `num_hops`; each hop does all `moves` at once."""
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

    def hop_us(self, effort: Effort) -> dict[int | str, float]:
        """Run all chains in turn; return the time of one hop of each chain, by its name.

        On a busy machine there may be fewer turns than asked for: see `LIMIT_S`.
        """
        us: dict[tuple[int | str, int], list[float]] = {key: [] for key in self.ends}
        with self._connection.session(self.graph, session_config()) as session:
            session.run(self.assignments)
            steps = {key: session.make_callable(end) for key, end in self.ends.items()}
            for _ in turns(effort, LIMIT_S, self._began_s):
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
