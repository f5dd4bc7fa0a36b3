"""Tune: rounds until the end, and the answer, also after an interruption or a failure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from pesto_cli.data.limits import Limits
from pesto_cli.errors import PestoError
from pesto_cli.files import Measurement, PlacementFile, TuningLog
from pesto_cli.tuning.budget import Budget, TimeBudget
from pesto_cli.tuning.choice import Choice, best_so_far, chosen
from pesto_cli.tuning.clock import Clock, Phase
from pesto_cli.tuning.corrected import Corrected, corrected
from pesto_cli.tuning.rounds import Measure, Tuner
from pesto_cli.tuning.slow import SlowDevice, slow_devices
from pesto_cli.tuning.watch import Watch


class Ended(StrEnum):
    """How a tuning ended; only the first has a final round."""

    DONE = "done"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


@dataclass(frozen=True, eq=False)
class Tuned:
    """The result of a tuning.

    placement: that of the answer, with its measured step time.
    choice: the decision. ended: if it is not DONE, the answer is the best of the search rounds.
    costs: the corrected costs.
    seconds: time from the start of the clock. shares: phase -> share of this time.
    error: what ended the tuning if it failed.
    """

    log: TuningLog
    placement: PlacementFile
    choice: Choice
    ended: Ended
    costs: Corrected
    seconds: float
    shares: Mapping[Phase, float]
    error: PestoError | None = None


def tuned(
    log: TuningLog,
    measure: Measure,
    clock: Clock,
    limits: Limits,
    on_round: Callable[[TuningLog], None] = lambda log: None,
    watch: Watch | None = None,
    budget: Budget | None = None,
) -> Tuned:
    """Tune from a log, which has at least a profile.

    Args:
        log: what is known before. Candidates that ran are not run again, except for comparison.
        measure: runs steps.
        clock: counts the time.
        limits: seed, workers and the request to stop.
        on_round: receives the log after each round.
        watch: is told what goes on.
        budget: what the tuning may use; by default the time of the clock.

    Raises:
        PestoError: what failed before the first round had ended: a device, the feeds, or the script
            whose steps are run; or no plan fits into memory.
        KeyboardInterrupt: the user stopped before the first round had ended.
    """
    watch, known = watch or Watch(), frozenset[str]()
    ended, error, latest = Ended.INTERRUPTED, None, log
    try:
        tuner = Tuner(measure, budget or TimeBudget(clock), clock, limits, watch)
        for latest in tuner.rounds(log):
            ended = Ended.DONE if latest.rounds[-1].is_final else Ended.INTERRUPTED
            on_round(latest)
            known = _noted(slow_devices(latest), known, watch)
    except KeyboardInterrupt:
        if not latest.rounds:
            raise
    except PestoError as failure:
        if not latest.rounds:
            raise
        ended, error = Ended.FAILED, failure
    if not latest.rounds:
        raise KeyboardInterrupt
    return _result(latest, ended, clock, error)


def _noted(slow: Sequence[SlowDevice], known: frozenset[str], watch: Watch) -> frozenset[str]:
    """Tell which devices are slow, unless they are known to be; return the names of all."""
    for each in slow:
        if each.name not in known:
            watch.note(str(each))
    return known | {each.name for each in slow}


def _result(log: TuningLog, ended: Ended, clock: Clock, error: PestoError | None) -> Tuned:
    found = decided(log)
    placed = log.candidate_of[found.choice.answer].placement
    placed = _with_measured_step(placed, found.costs, found.measured, log.settings)
    seconds, shares = clock.spent_s, clock.shares()
    return Tuned(log, placed, found.choice, ended, found.costs, seconds, shares, error)


@dataclass(frozen=True, eq=False)
class Decided:
    """What follows from the rounds of a log: the decision, and the corrected costs.

    measured: the newest steps of the answer. is_final: whether a final round has decided; if not,
        the answer is the best of the search rounds.
    """

    choice: Choice
    measured: Measurement
    is_final: bool
    costs: Corrected


def decided(log: TuningLog) -> Decided:
    """Return what follows from a log, which has at least one round."""
    simple = [each.name for each in log.candidates if each.is_simple]
    is_final = log.rounds[-1].is_final  # also if a later tuning was stopped before its first round
    if is_final:
        choice = chosen(log.rounds[-1].measured, simple)
    else:
        choice = best_so_far(log.search_rounds, simple)
    measured = [row for each in log.rounds if (row := each.of(choice.answer)) is not None]
    return Decided(choice, measured[-1], is_final, corrected(log))


def _with_measured_step(
    placed: PlacementFile,
    costs: Corrected,
    measured: Measurement,
    settings: Mapping[str, Any],
) -> PlacementFile:
    """Return a placement with the prediction by the newest costs, and its measured step time.

    The figures of its whole ops and its bound follow from other costs, and are left out.
    """
    old, step_us = placed.predicted, costs.predicted_us(placed)
    predicted = {name: old[name] for name in ("peak_bytes", "sent_bytes") if name in old}
    predicted |= {
        "makespan_us": step_us - costs.profile.problem.machine.step_overhead_us,
        "step_us": step_us,
        "measured_us": measured.times.median_us,
        "measured_quartiles_us": list(measured.times.quartiles_us),
    }
    provenance = {
        **placed.provenance,
        "parameters": {"tuned": True, "candidate": measured.candidate, **settings},
    }
    return replace(placed, predicted=predicted, provenance=provenance)
