"""Simulated annealing of placement and order together, in one numba kernel.

A state is a device for each op and an offset that is added to its upward rank under that placement.
`cost` defines the cost of a state, and `moves` the neighbourhoods. A worse candidate is accepted
with probability exp(-increase / temperature) (Kirkpatrick et al., 1983). The random number is drawn
before the simulation, so the largest cost that is accepted is known. The simulation of a candidate
stops early when its cost must exceed that limit.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from pesto_cli.data.graph import FloatArray, IntArray
from pesto_cli.errors import EnvironmentFailedError, about
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.kernels import address_of, call_at, kernel
from pesto_cli.plugins.installed import in_words
from pesto_cli.refine.cost import CostData, Evaluation, cost_us
from pesto_cli.refine.draws import Random, draw, uniform
from pesto_cli.refine.families import Families
from pesto_cli.refine.moves import Move
from pesto_cli.refine.neighbourhood import Neighbourhood
from pesto_cli.refine.sampled_cost import evaluate_state
from pesto_cli.refine.samples import Samples
from pesto_cli.refine.state import (
    EXCESS,
    MAKESPAN,
    TRANSFERS,
    Change,
    State,
    accept,
    has_changed,
    undo,
)

# Columns of the counts of moves.
TRIED, ACCEPTED = 0, 1


class Best(NamedTuple):
    """The best state so far: devices and offsets, `[num_ops]`, and the score as in `State`."""

    device: IntArray
    offset: FloatArray
    score: FloatArray


class Chain:
    """An annealing chain: its current state, and its best state so far."""

    def __init__(
        self,
        simulator: Simulator,
        families: Families,
        seed: Sequence[int],
        moves: Mapping[str, Move],
        samples: Samples | None = None,
    ) -> None:
        problem, num_ops = simulator.problem, simulator.problem.num_ops
        self._data = CostData.of(simulator, samples)
        self._neighbourhood = Neighbourhood.of(problem, families)
        self._state = State.of(num_ops)
        self._best = Best(self._state.device.copy(), np.zeros(num_ops), np.full(3, np.inf))
        self._change = Change.of(problem.graph.num_groups, num_ops)
        # A state of 0 would make xorshift return only 0.
        self._random = np.random.SeedSequence(seed).generate_state(1, np.uint64) | np.uint64(1)
        if len(families.units) == 0:
            moves = {name: move for name, move in moves.items() if move.of_order}
        self._moves = dict(sorted(moves.items(), key=lambda item: item[1].of_order))
        self._addresses = np.array([self._compiled(name) for name in self._moves])
        self._counts = np.zeros((len(self._moves), 2), dtype=np.int64)
        self.evaluations = 0

    def go_to(self, device: IntArray, offset: FloatArray) -> None:
        """Set the current state, and update the best state if the new one is better.

        device, offset: `[num_ops]`.
        """
        self._state.device[:], self._state.offset[:] = device, offset
        _visit(self._data, self._state, self._best)

    @property
    def best(self) -> tuple[IntArray, FloatArray]:
        """The devices and the rank offsets of the best state, both `[num_ops]`."""
        return self._best.device.copy(), self._best.offset.copy()

    @property
    def objective(self) -> tuple[float, float]:
        """Sort key of the best state: the memory excess as a share, then the makespan in us.

        With samples, the mean makespan is in place of the makespan.
        """
        return float(self._best.score[EXCESS]), float(self._best.score[MAKESPAN])

    @property
    def counts(self) -> dict[str, tuple[int, int]]:
        """Number of proposed and of accepted candidates, by name of the move."""
        rows = self._counts.tolist()
        return {
            name: (row[TRIED], row[ACCEPTED]) for name, row in zip(self._moves, rows, strict=True)
        }

    def anneal(self, steps: int, temperature_us: float, penalty: float, order: float) -> None:
        """Try a number of moves.

        Args:
            steps: number of moves.
            temperature_us: temperature of the acceptance probability.
            penalty: factor of the memory excess in the cost; see `cost`.
            order: share of moves that change the order; the others change devices.
        """
        if self._moves:
            chances = _chances(self._moves.values(), order)
            with _failures_reported():
                self._run(chances, steps, temperature_us, penalty)
        self.evaluations += steps

    def _run(self, chances: FloatArray, steps: int, temperature_us: float, penalty: float) -> None:
        _anneal(
            self._data,
            self._neighbourhood,
            self._addresses,
            chances,
            self._state,
            self._best,
            self._random,
            self._change,
            self._counts,
            steps,
            temperature_us,
            penalty,
        )

    def _compiled(self, name: str) -> Any:
        """Return the address of a compiled move."""
        known = (self._neighbourhood, self._state, self._random, self._change)
        with about(f"search move {name!r}"):
            return address_of(self._moves[name].propose, *known)


@contextmanager
def _failures_reported() -> Iterator[None]:
    """Turn an error into `EnvironmentFailedError`. Only moves of other packages raise errors."""
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:
        raise EnvironmentFailedError(
            f"a search move failed: {in_words(error)}; fix it, or uninstall its package."
        ) from error


def _chances(moves: Iterable[Move], order: float) -> FloatArray:
    """Return the cumulative probabilities of moves, `[num_moves]`; moves of the order come last.

    Moves of the order together have the probability `order`, or 1 if there are no moves of devices,
    or 0 if there are no moves of the order. Within both classes, probabilities follow the weights.
    """
    of_order = [move.weight for move in moves if move.of_order]
    of_devices = [move.weight for move in moves if not move.of_order]
    share = (order if of_order else 0.0) if of_devices else 1.0
    return np.concatenate(
        (_cumulative(of_devices) * (1.0 - share), 1.0 - share + _cumulative(of_order) * share)
    )


def _cumulative(weights: Sequence[float]) -> FloatArray:
    """Return the cumulative sums of weights, divided by their total."""
    sums = np.cumsum(weights)
    cumulative: FloatArray = sums / sums[-1:]
    return cumulative


@kernel
def _keep(state: State, best: Best, found: Evaluation) -> None:
    """Store the evaluation of the current state, and update the best state if it is better."""
    state.start[:] = found.start
    state.key[:] = found.key
    score = state.score
    score[MAKESPAN], score[EXCESS] = found.makespan_us, found.excess
    score[TRANSFERS] = found.transfers_us
    if score[EXCESS] < best.score[EXCESS] or (
        score[EXCESS] == best.score[EXCESS] and score[MAKESPAN] < best.score[MAKESPAN]
    ):
        best.score[:] = score
        best.device[:] = state.device
        best.offset[:] = state.offset


@kernel
def _visit(data: CostData, state: State, best: Best) -> None:
    _keep(state, best, evaluate_state(data, state.device, state.offset, np.inf))


@kernel
def _anneal(
    data: CostData,
    neighbourhood: Neighbourhood,
    moves: IntArray,
    chances: FloatArray,
    state: State,
    best: Best,
    random: Random,
    change: Change,
    counts: IntArray,
    steps: int,
    temperature_us: float,
    penalty: float,
) -> None:
    """See `Chain.anneal`."""
    score, known = state.score, (neighbourhood, state, random, change)
    for _ in range(steps):
        kind = draw(random, chances)
        call_at(moves[kind], known)
        if not has_changed(change):
            continue
        counts[kind, TRIED] += 1
        limit_us = cost_us(score[MAKESPAN], score[EXCESS], score[TRANSFERS], penalty)
        limit_us -= temperature_us * np.log(1.0 - uniform(random))
        found = evaluate_state(data, state.device, state.offset, limit_us)
        if cost_us(found.makespan_us, found.excess, found.transfers_us, penalty) <= limit_us:
            counts[kind, ACCEPTED] += 1
            _keep(state, best, found)
            accept(change)
        else:
            undo(neighbourhood, state, change)
