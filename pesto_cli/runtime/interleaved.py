"""Several graphs run by turns, so that whatever else the machine does meets all of them alike."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from pesto_cli.cluster import Connection
from pesto_cli.data.graph import FloatArray
from pesto_cli.runtime.step import Ran, Step, opened

# Long enough that most steps find the caches as their own graph left them.
MOST_STEPS_IN_A_ROW = 5


@dataclass(frozen=True)
class Turns:
    """How often graphs run: a number of steps each, after some to warm up."""

    num_steps: int
    num_warm_up: int = 5

    @property
    def num_in_a_row(self) -> int:
        """Steps of one graph before it is the next one's turn."""
        fits = (n for n in range(MOST_STEPS_IN_A_ROW, 0, -1) if self.num_steps % n == 0)
        return next(fits)


@dataclass(frozen=True, eq=False)
class Runs:
    """What one graph's runs gave.

    us: `[num_rounds, num_in_a_row]`, untraced steps after the warm-up.
    losses: of every step in the order in which they ran, warm-up included; empty without a loss.
    traced: RunMetadata of one more step.
    """

    us: FloatArray
    losses: tuple[float, ...]
    traced: Any


def interleaved(
    connection: Connection, metas: Sequence[Any], turns: Turns, feeds: str | None = None
) -> list[Runs]:
    """Run MetaGraphDefs by turns, each in a session of its own.

    A round has a turn of every graph, in random order, so that none always runs after the same
    one. Errors as of `opened`.
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
        traced=step.traced(),
    )
