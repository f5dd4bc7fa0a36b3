"""Traced steps of several placements of a graph, by turns."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from pesto_cli.cluster import Cluster, Connection
from pesto_cli.files import PlacementFile
from pesto_cli.runtime.comparison import device_names, op_times_us, planned_run
from pesto_cli.runtime.spans import spans
from pesto_cli.runtime.step import opened

NUM_WARM_UP = 3


@dataclass(frozen=True)
class TracedStep:
    """The times of one step.

    length_us: from the start of the first op to the end of the last one.
    op_us: placed op -> its time.
    """

    length_us: float
    op_us: Mapping[str, float]


def traced_steps(
    meta: Any, cluster: Cluster, placed: Sequence[PlacementFile], num_steps: int
) -> Iterator[list[TracedStep]]:
    """Run traced steps under each placement, in random order; yield those of each placement."""
    plans = [planned_run(meta, each, cluster.call(device_names)) for each in placed]
    traced = cluster.call(_rounds, [plan.meta for plan in plans], num_steps)
    for plan, ran in zip(plans, traced, strict=True):
        graph = plan.changes.changed_graph(meta).graph_def
        found = []
        for each in ran:
            seen = spans(each, graph)
            length_us = max(span.end_us for span in seen) - min(span.start_us for span in seen)
            found.append(TracedStep(length_us, op_times_us(plan.changes.step, [seen])))
        yield found


def _rounds(connection: Connection, metas: Sequence[Any], num_steps: int) -> list[list[Any]]:
    """Trace steps of all graphs by turns; runs in the client process."""
    random, traced = np.random.default_rng(0), [list[Any]() for _ in metas]
    with ExitStack() as sessions:
        steps = [sessions.enter_context(opened(connection, meta)) for meta in metas]
        for step in steps:
            for _ in range(NUM_WARM_UP):
                step.run()
        for _ in range(num_steps):
            for index in random.permutation(len(steps)).tolist():
                traced[index].append(steps[index].traced())
    return traced
