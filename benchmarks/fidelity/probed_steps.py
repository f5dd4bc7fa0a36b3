"""Steps by turns, and how fast the cores were meanwhile.

On a machine that others use too, a core may be slower for seconds, up to a quarter on a virtual
machine whose neighbours compute. Before and after each step a probe runs: a chain of matrix
products on every worker at once. A step is quiet if both probes took at most QUIET times as long as
the fastest tenth of all probes.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pesto_cli.apply import session_config
from pesto_cli.cluster import Cluster, Connection
from pesto_cli.data.graph import BoolArray, FloatArray
from pesto_cli.data.steps import StepTimes
from pesto_cli.files import PlacementFile
from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.profile.comm.products import products, timed_us
from pesto_cli.runtime.comparison import device_names, planned_run
from pesto_cli.runtime.spans import spans
from pesto_cli.runtime.step import opened
from pesto_cli.runtime.verify import verified

QUIET = 1.1
# The products take about 10 ms on one core.
NUM_PRODUCTS, NUM_WARM_UP = 40, 5


@dataclass(frozen=True, eq=False)
class ProbedSteps:
    """The steps of one placement.

    us: `[num_rounds]`, time of each step.
    probe_us: `[num_rounds]`, the longer one of the probes before and after each step.
    fastest_us: a fast probe, of all probes of all placements.
    num_departures: number of ops that ran elsewhere or too early in a traced step.
    """

    us: FloatArray
    probe_us: FloatArray
    fastest_us: float
    num_departures: int

    @property
    def times(self) -> StepTimes:
        """The times of all steps, one in each round."""
        return StepTimes(self.us[:, None], (), {})

    @cached_property
    def is_quiet(self) -> BoolArray:
        """`[num_rounds]`: whether the cores were fast before and after the step."""
        return self.probe_us <= QUIET * self.fastest_us

    @property
    def quiet_us(self) -> float:
        """The median time of the quiet steps; NaN without any."""
        return float(np.median(self.us[self.is_quiet])) if self.is_quiet.any() else np.nan


def probed_steps(
    meta: Any, cluster: Cluster, placements: Sequence[PlacementFile], num_rounds: int
) -> list[ProbedSteps]:
    """Run `num_rounds` rounds: each has one step under each placement, in random order."""
    devices = cluster.call(device_names)
    plans = [planned_run(meta, placement, devices) for placement in placements]
    ran = cluster.call(_rounds, [plan.meta for plan in plans], [*devices.values()], num_rounds)
    fastest_us = float(np.quantile(ran.probe_us, 0.1))
    found = []
    for number, plan in enumerate(plans):
        graph = plan.changes.changed_graph(meta)
        seen = spans(ran.traced[number], graph.graph_def)
        departures = verified(graph, plan.placement, plan.changes, seen).departures
        probe_us = np.maximum(ran.probe_us[:, number, 0], ran.probe_us[:, number, 1])
        found.append(ProbedSteps(ran.us[:, number], probe_us, fastest_us, len(departures)))
    return found


@dataclass(frozen=True, eq=False)
class _Rounds:
    """us: `[num_rounds, num_graphs]`. probe_us: before and after, `[num_rounds, num_graphs, 2]`."""

    us: FloatArray
    probe_us: FloatArray
    traced: tuple[Any, ...]


def _rounds(
    connection: Connection, metas: Sequence[Any], devices: Sequence[str], num_rounds: int
) -> _Rounds:
    """Open a session for each graph and run them by turns; runs in the client process."""
    random = np.random.default_rng(0)
    us, probe_us = np.zeros((num_rounds, len(metas))), np.zeros((num_rounds, len(metas), 2))
    with ExitStack() as sessions:
        steps = [sessions.enter_context(opened(connection, meta)) for meta in metas]
        probe = sessions.enter_context(_probe(connection, devices))
        for step in steps:
            for _ in range(NUM_WARM_UP):
                step.run()
        before_us = timed_us(probe)
        for number in range(num_rounds):
            for index in random.permutation(len(steps)).tolist():
                us[number, index] = steps[index].run().us
                after_us = timed_us(probe)
                probe_us[number, index] = before_us, after_us
                before_us = after_us
        traced = tuple(step.traced() for step in steps)
    return _Rounds(us, probe_us, traced)


@contextmanager
def _probe(connection: Connection, devices: Sequence[str]) -> Iterator[Callable[[], Any]]:
    """Yield a function that runs the products on all devices at once."""
    tf1 = tensorflow().compat.v1
    with tf1.Graph().as_default() as graph:
        ends = [
            products(f"probe_{number}", device, NUM_PRODUCTS)
            for number, device in enumerate(devices)
        ]
        start = tf1.global_variables_initializer()
    with connection.session(graph, session_config()) as session:
        session.run(start)
        run = session.make_callable(ends)
        for _ in range(NUM_WARM_UP):
            run()
        yield run
