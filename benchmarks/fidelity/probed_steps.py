"""Steps by turns, and how fast the cores were meanwhile.

On a machine that others use too, a core may be slower for seconds, up to a quarter on a virtual
machine whose neighbours compute. Before and after each step a probe runs: a chain of matrix
products on every worker at once. A step is quiet if both probes took at most QUIET times as long as
the fastest tenth of all probes. While a placement has too few quiet steps, more steps run.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
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
# There are at most this many rounds for each quiet step that is asked for.
MOST_TIMES = 3
# The products take about 10 ms on one core.
NUM_PRODUCTS, NUM_WARM_UP = 40, 5


@dataclass(frozen=True, eq=False)
class ProbedSteps:
    """The steps of one placement.

    us: `[num_rounds]`, time of each step.
    probe_us: `[num_rounds]`, the longer one of the probes before and after each step.
    is_quiet: `[num_rounds]`, whether the cores were fast before and after the step.
    num_departures: number of ops that ran elsewhere or too early in a traced step.
    """

    us: FloatArray
    probe_us: FloatArray
    is_quiet: BoolArray
    num_departures: int

    @property
    def times(self) -> StepTimes:
        """The times of all steps, one in each round."""
        return StepTimes(self.us[:, None], (), {})

    @property
    def quiet_us(self) -> float:
        """The median time of the quiet steps; NaN without any."""
        return float(np.median(self.us[self.is_quiet])) if self.is_quiet.any() else np.nan


def probed_steps(
    meta: Any, cluster: Cluster, placements: Sequence[PlacementFile], num_steps: int
) -> list[ProbedSteps]:
    """Run rounds until each placement has `num_steps` quiet steps.

    A round has one step of each placement, in random order. There are at least `num_steps` rounds,
    and at most `MOST_TIMES * num_steps`.
    """
    devices = cluster.call(device_names)
    plans = [planned_run(meta, placement, devices) for placement in placements]
    ran = cluster.call(_rounds, [plan.meta for plan in plans], [*devices.values()], num_steps)
    found = []
    for number, plan in enumerate(plans):
        graph = plan.changes.changed_graph(meta)
        seen = spans(ran.traced[number], graph.graph_def)
        departures = verified(graph, plan.placement, plan.changes, seen).departures
        columns = (ran.us[:, number], ran.probe_us[:, number], ran.is_quiet[:, number])
        found.append(ProbedSteps(*columns, len(departures)))
    return found


@dataclass(frozen=True, eq=False)
class _Rounds:
    """us, probe_us: `[num_rounds, num_graphs]`, as in `ProbedSteps`."""

    us: FloatArray
    probe_us: FloatArray
    traced: tuple[Any, ...] = ()

    @property
    def is_quiet(self) -> BoolArray:
        """`[num_rounds, num_graphs]`: whether a step was quiet."""
        return self.probe_us <= QUIET * np.quantile(self.probe_us, 0.1)


def _rounds(
    connection: Connection, metas: Sequence[Any], devices: Sequence[str], num_steps: int
) -> _Rounds:
    """Open a session for each graph and run them by turns; runs in the client process."""
    random = np.random.default_rng(0)
    shape = (0, len(metas))
    ran = _Rounds(np.zeros(shape), np.zeros(shape))
    with ExitStack() as sessions:
        steps = [sessions.enter_context(opened(connection, meta)) for meta in metas]
        probe = sessions.enter_context(_probe(connection, devices))
        for step in steps:
            for _ in range(NUM_WARM_UP):
                step.run()
        before_us = timed_us(probe)
        while len(ran.us) < num_steps or (
            len(ran.us) < MOST_TIMES * num_steps and ran.is_quiet.sum(axis=0).min() < num_steps
        ):
            us, probe_us = np.zeros((2, 1, len(steps)))
            for index in random.permutation(len(steps)).tolist():
                us[0, index] = steps[index].run().us
                after_us = timed_us(probe)
                probe_us[0, index] = max(before_us, after_us)
                before_us = after_us
            ran = _Rounds(np.concatenate([ran.us, us]), np.concatenate([ran.probe_us, probe_us]))
        return replace(ran, traced=tuple(step.traced() for step in steps))


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
