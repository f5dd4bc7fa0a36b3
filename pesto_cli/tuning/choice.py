"""Decisions from measured steps: the fastest candidate, when to stop, and the answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pesto_cli.data.steps import SpeedUp, speed_up
from pesto_cli.files import Measurement, TuningLog, TuningRound

# The search ends after so many rounds in which no candidate was clearly faster.
MOST_IDLE_ROUNDS = 2


def relative_us(rounds: Sequence[TuningRound]) -> Mapping[str, float]:
    """Return the step time of each candidate in us, as if all had run in the first round.

    The machine may be slower in one round than in another. So the times of a later round are
    multiplied by a factor, so that candidates that ran before have the same times on average.
    """
    found: dict[str, float] = {}
    for each in rounds:
        median_us = {row.candidate: row.times.median_us for row in each.measured}
        again = found.keys() & median_us.keys()
        ratios = [found[name] / median_us[name] for name in again]
        factor = sum(ratios) / len(ratios) if ratios else 1.0
        for name, us in median_us.items():
            found.setdefault(name, us * factor)
    return found


def best_candidate(rounds: Sequence[TuningRound]) -> str | None:
    """Return the candidate with the least measured step; None if there is none."""
    relative = relative_us(rounds)
    return min(relative, key=relative.__getitem__, default=None)


def brought_nothing(rounds: Sequence[TuningRound]) -> bool:
    """Return whether no new candidate of the last round is clearly faster than the best before.

    Clearly: the 95 % interval of the speed-up is above 1.
    """
    *before, last = rounds
    reference = None if not before else last.of(best_candidate(before) or "")
    if reference is None:
        return False
    known = relative_us(before)
    return not any(
        speed_up(reference.times, row.times).low > 1
        for row in last.measured
        if row.candidate not in known
    )


def is_exhausted(rounds: Sequence[TuningRound]) -> bool:
    """Return whether the last rounds brought nothing, so that the search should end."""
    if len(rounds) <= MOST_IDLE_ROUNDS:
        return False
    return all(brought_nothing(rounds[: len(rounds) - idle]) for idle in range(MOST_IDLE_ROUNDS))


def finalists(log: TuningLog, most: int) -> list[str]:
    """Return the candidates for the final round: the fastest ones, and the fastest simple one.

    most: number of those that are not simple. A simple one that was clearly slower than another
    simple one in the same round is left out, so that fewer have to run.
    """
    relative = relative_us(log.search_rounds)
    ranked = sorted(relative, key=relative.__getitem__)
    simple = [name for name in ranked if log.candidate_of[name].is_simple]
    others = [name for name in ranked if name not in simple]
    open_ = [name for name in simple if not _is_clearly_slower(log, simple[0], name)]
    return [*others[:most], *open_]


def _is_clearly_slower(log: TuningLog, best: str, other: str) -> bool:
    """Return whether a candidate was slower in each round in which both ran, and ran in one."""
    pairs = [(each.of(best), each.of(other)) for each in log.search_rounds]
    both = [(one.times, two.times) for one, two in pairs if one is not None and two is not None]
    return bool(both) and all(speed_up(one, two).high < 1 for one, two in both)


@dataclass(frozen=True)
class Choice:
    """The answer.

    answer, simple: names of the chosen candidate, and of the fastest simple one; equal if the
        simple one is the answer; simple is "" if none ran.
    fastest: the candidate with the least median.
    faster: how many times faster the fastest candidate is than the simple one; None if it is one.
    """

    answer: str
    simple: str
    fastest: str
    faster: SpeedUp | None


def chosen(measured: Sequence[Measurement], simple: Sequence[str]) -> Choice:
    """Return the candidate with the least median step, but a simple one if that is not slower.

    A simple plan is the answer unless the 95 % interval of the speed-up over it is above 1.
    """
    ranked = sorted(measured, key=lambda row: row.times.median_us)
    fastest = ranked[0]
    by_hand = next((row for row in ranked if row.candidate in simple), None)
    if by_hand is None or by_hand is fastest:
        name = fastest.candidate
        return Choice(name, "" if by_hand is None else name, name, None)
    faster = speed_up(by_hand.times, fastest.times)
    answer = fastest if faster.low > 1 else by_hand
    return Choice(answer.candidate, by_hand.candidate, fastest.candidate, faster)


def best_so_far(rounds: Sequence[TuningRound], simple: Sequence[str]) -> Choice:
    """Return the candidate with the least measured step of some rounds, without a final round."""
    relative = relative_us(rounds)
    ranked = sorted(relative, key=relative.__getitem__)
    by_hand = next((name for name in ranked if name in simple), "")
    return Choice(ranked[0], by_hand, ranked[0], None)
