"""Run several graphs alternately, so that other load of the machine affects all of them equally."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from pesto_cli.cluster import Connection
from pesto_cli.data.graph import FloatArray
from pesto_cli.runtime.step import Ran, Step, opened

# With so many steps in a row, most steps find the CPU caches as a step of the same graph left them.
MOST_STEPS_IN_A_ROW = 5


@dataclass(frozen=True)
class Turns:
    """How many steps of each graph are run; the graphs take turns.

    num_steps: number of timed steps of each graph.
    num_warm_up: number of untimed steps of each graph, before the timed steps of all graphs.
    num_traced: number of further steps of each graph that are traced, at least 1.
    most_in_a_row: largest number of consecutive steps of one graph.
    """

    num_steps: int
    num_warm_up: int = 5
    num_traced: int = 1
    most_in_a_row: int = MOST_STEPS_IN_A_ROW

    @property
    def num_all(self) -> int:
        """Number of all steps of each graph."""
        return self.num_steps + self.num_warm_up + self.num_traced

    @property
    def num_in_a_row(self) -> int:
        """Number of consecutive steps of one graph in a round; it divides `num_steps`."""
        fits = (n for n in range(self.most_in_a_row, 0, -1) if self.num_steps % n == 0)
        return next(fits)


@dataclass(frozen=True, eq=False)
class Runs:
    """The measurements of one graph.

    us: `[num_rounds, num_in_a_row]`, times of the untraced steps after the warm-up.
    losses: loss of every step in running order, warm-up included; empty if the graph has no loss.
    traced: RunMetadata of each traced step.
    """

    us: FloatArray
    losses: tuple[float, ...]
    traced: tuple[Any, ...]


def interleaved(
    connection: Connection, metas: Sequence[Any], turns: Turns, feeds: str | None = None
) -> list[Runs]:
    """Run MetaGraphDefs alternately, each in a session of its own.

    In each round every graph runs `num_in_a_row` steps. The order within a round is random, so that
    no graph always runs after the same one. Raises the errors of `opened`.
    """
    random = np.random.default_rng(0)
    with ExitStack() as sessions:
        steps = [sessions.enter_context(opened(connection, meta, feeds)) for meta in metas]
        ran = [[step.run() for _ in range(turns.num_warm_up)] for step in steps]
        for _ in range(turns.num_steps // turns.num_in_a_row):
            for index in random.permutation(len(steps)).tolist():
                ran[index] += [steps[index].run() for _ in range(turns.num_in_a_row)]
        return [_runs(step, rows, turns) for step, rows in zip(steps, ran, strict=True)]


def _runs(step: Step, ran: Sequence[Ran], turns: Turns) -> Runs:
    us = np.array([run.us for run in ran[turns.num_warm_up :]])
    return Runs(
        us=us.reshape(-1, turns.num_in_a_row),
        losses=tuple(run.loss for run in ran if run.loss is not None),
        traced=tuple(step.traced() for _ in range(turns.num_traced)),
    )
