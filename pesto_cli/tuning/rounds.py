"""Rounds of search and steps, and the final round that decides."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from pesto_cli.data.limits import Limits
from pesto_cli.errors import (
    BadInputError,
    EnvironmentFailedError,
    InfeasibleError,
    PestoError,
)
from pesto_cli.files import Candidate, Measurement, PlacementFile, TuningLog, TuningRound
from pesto_cli.runtime.comparison import RealRun
from pesto_cli.runtime.interleaved import Turns
from pesto_cli.tuning.budget import Budget
from pesto_cli.tuning.choice import (
    MOST_IDLE_ROUNDS,
    best_candidate,
    finalists,
    is_exhausted,
    relative_us,
)
from pesto_cli.tuning.clock import Clock, Phase
from pesto_cli.tuning.corrected import Corrected, corrected
from pesto_cli.tuning.search import EXPLORED, searched
from pesto_cli.tuning.watch import Watch

Measure = Callable[[Sequence[PlacementFile], Turns], Sequence[RealRun]]
"""Runs steps of a graph under several placements by turns."""

# Number of new candidates that run in a round, and of finalists that are not simple.
NEW_OF_A_ROUND, OTHERS_OF_THE_FINAL = 3, 3
# A candidate whose prediction is so many times the least one is not run.
HOPELESS = 1.3


@dataclass(frozen=True)
class Tuner:
    """What all rounds share.

    limits: those of the whole tuning. cannot_run: the names of candidates that failed alone.
    """

    measure: Measure
    budget: Budget
    clock: Clock
    limits: Limits
    watch: Watch
    cannot_run: set[str] = field(default_factory=set)

    def rounds(self, log: TuningLog) -> Iterator[TuningLog]:
        """Yield the log after each round: search rounds until they bring nothing, then the final.

        At least one search round and the final round run, whatever the budget is. After a
        request to stop, no steps begin.
        """
        num_before, round_cost = len(log.search_rounds), 0.0
        while self._goes_on(log, len(log.search_rounds) - num_before, round_cost):
            before = self.budget.spent
            costs = corrected(log)
            log = self._searched(log, costs)
            if self.limits.stop.is_set():
                return
            yield (log := self._ran(log, costs, _to_run(log, costs, self.cannot_run)))
            round_cost = self.budget.spent - before
        if self.limits.stop.is_set():
            return
        costs = corrected(log)
        chosen = [log.candidate_of[name] for name in finalists(log, OTHERS_OF_THE_FINAL)]
        yield self._ran(log, costs, chosen, is_final=True)

    def _goes_on(self, log: TuningLog, num_rounds: int, round_cost: float) -> bool:
        """Return whether to begin a search round; num_rounds: those of this call."""
        if not log.search_rounds:
            return True
        has_room = self.budget.has_room(round_cost)
        is_idle = num_rounds >= MOST_IDLE_ROUNDS and is_exhausted(log.search_rounds)
        return has_room and not is_idle and not self.limits.stop.is_set()

    def _searched(self, log: TuningLog, costs: Corrected) -> TuningLog:
        """Return the log with new candidates."""
        limits = replace(self.limits, time_limit_s=self.budget.search_s)
        with self.clock.phase(Phase.SEARCH):
            found = searched(log, costs, limits, self.watch)
        return replace(log, candidates=(*log.candidates, *found))

    def _ran(
        self,
        log: TuningLog,
        costs: Corrected,
        candidates: Sequence[Candidate],
        *,
        is_final: bool = False,
    ) -> TuningLog:
        """Run candidates by turns; return the log with one more round."""
        predicted_us = {each.name: costs.predicted_us(each.placement) for each in candidates}
        expected_us = predicted_us | {
            name: us for name, us in relative_us(log.search_rounds).items() if name in predicted_us
        }
        turns = self.budget.turns(list(expected_us.values()), is_final=is_final)
        what = f"running {turns.num_steps} steps of each of {len(candidates)} candidates"
        with self.clock.phase(Phase.STEPS), self.watch.during(Phase.STEPS, what):
            runs = self._runs(candidates, turns)
        measured = tuple(
            _measurement(each, predicted_us[each.name], run, turns) for each, run in runs
        )
        return replace(log, rounds=(*log.rounds, TuningRound(measured, is_final)))

    def _runs(
        self, candidates: Sequence[Candidate], turns: Turns
    ) -> Sequence[tuple[Candidate, RealRun]]:
        """Run candidates by turns; leave out those that cannot run.

        Those that cannot run together, because the devices have too little memory for all their
        variables, run one after the other.

        Raises:
            BadInputError, EnvironmentFailedError: no candidate can run.
        """
        try:
            runs = self._measured(candidates, turns)
        except (BadInputError, EnvironmentFailedError) as failure:
            errors = {each.name: self._error(each) for each in candidates}
            able = [each for each in candidates if errors[each.name] is None]
            if not able:
                raise
            if len(able) == len(candidates) and isinstance(failure, BadInputError):
                raise  # not for lack of memory: later feeds may differ, for example
            for name, error in errors.items():
                if error is not None:
                    self.cannot_run.add(name)
                    self.watch.note(f"{name} cannot run: {error}")
            if len(able) < len(candidates):
                return self._runs(able, turns)
            self.watch.note("the candidates cannot run together, so they run one after the other.")
            runs = [self._measured([each], turns)[0] for each in candidates]
        return list(zip(candidates, runs, strict=True))

    def _measured(self, candidates: Sequence[Candidate], turns: Turns) -> Sequence[RealRun]:
        self.budget.count(turns.num_all * len(candidates))
        return self.measure([each.placement for each in candidates], turns)

    def _error(self, candidate: Candidate) -> PestoError | None:
        """Return the error that a candidate causes if it runs alone, or None."""
        try:
            self._measured([candidate], Turns(1, 0))
        except (BadInputError, EnvironmentFailedError) as error:
            return error
        return None


def _to_run(log: TuningLog, costs: Corrected, cannot_run: Collection[str]) -> list[Candidate]:
    """Return the candidates of a round: in later rounds the best one before, and new ones.

    Of the new ones, those with the least predictions run.
    """
    ran = {each.candidate for round_ in log.search_rounds for each in round_.measured}
    best = best_candidate(log.search_rounds)
    left_out = {*ran, *cannot_run} - {best}
    known = [each for each in log.candidates if each.name not in left_out]
    if not known:
        raise InfeasibleError(
            "no form of plan fits into the memory of the devices, or under the constraints; one "
            "that fits was expected: relax the constraints, or use more or larger devices."
        )
    predicted_us = {each.name: costs.predicted_us(each.placement) for each in known}
    known.sort(key=lambda each: predicted_us[each.name])
    first = list(first_to_run(known)) if best is None else [log.candidate_of[best]]
    first += [each for each in known if each.made_by == EXPLORED and each not in first]
    hopeless_us = HOPELESS * min(predicted_us.values())
    others = [
        each
        for each in known
        if each not in first and not each.is_simple and predicted_us[each.name] <= hopeless_us
    ]
    num_new = sum(not each.is_simple and each.name != best for each in first)
    return [*first, *others[: NEW_OF_A_ROUND - num_new]]


def first_to_run(candidates: Sequence[Candidate]) -> Iterator[Candidate]:
    """Yield those that run in the first round, even if their predictions are long.

    These are the simple ones with whole ops, the first simple one with split ops, and of the
    others the first with whole ops and the first with split ops.
    """
    forms = set[tuple[bool, bool]]()
    for each in candidates:
        is_split = bool(each.placement.plan)
        if (each.is_simple and not is_split) or (each.is_simple, is_split) not in forms:
            forms.add((each.is_simple, is_split))
            yield each


def _measurement(
    candidate: Candidate, predicted_us: float, run: RealRun, turns: Turns
) -> Measurement:
    op_us = np.array([run.op_us.get(name, np.nan) for name in candidate.placement.names])
    return Measurement(candidate.name, predicted_us, run.times.us, op_us, turns.num_traced)
