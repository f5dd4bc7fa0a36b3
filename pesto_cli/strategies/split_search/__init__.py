"""The part of `pesto` that decides whether to split ops.

It places the whole ops for a short time. Then one worker constructs schedules with split ops
(`ways`, `copied`), and the other workers continue the search of whole ops (`whole`). Then some of
the ops of the best placement are split (`beside_whole`). In the best schedules with split ops, the
sizes of parts are corrected (`equal_ends`). They, the schedule of a warm start, and that of a
search on fewer hosts run a race: all are refined for a short time, and the best of them once more.
The best of all gets the rest of the time. It shares it with the whole ops if these are nearly as
good, or if it came from them: then some of the better whole ops are split again. If it has copies
of a placement, this placement is searched for longer first.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pesto_cli.bounds.plans import all_plans_bound_us
from pesto_cli.data.limits import Limits
from pesto_cli.data.problem import Problem
from pesto_cli.data.solution import PlanSet, Solution
from pesto_cli.errors import BadInputError, InfeasibleError
from pesto_cli.evaluation.sampling import deviation_of_parts
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.strategies.context import Context
from pesto_cli.strategies.devices import accelerators
from pesto_cli.strategies.fewer_hosts import FEWER_HOSTS
from pesto_cli.strategies.incumbent import BestProgress
from pesto_cli.strategies.robust import ROBUST_SHARE, refined_robustly
from pesto_cli.strategies.split_search.beside_whole import BesideWhole
from pesto_cli.strategies.split_search.equal_ends import with_equal_ends
from pesto_cli.strategies.split_search.race import RACE, Entry, best_of, run_race
from pesto_cli.strategies.split_search.ways import AsBefore, parts_us, share_of
from pesto_cli.strategies.split_search.ways_in_time import WaysInTime
from pesto_cli.strategies.split_search.whole import Placer, WholeOps
from pesto_cli.strategies.time_shares import Share, shares

# The share of the time limit in which whole ops are placed, and the share in which schedules with
# split ops are constructed.
WHOLE_SHARE, WAYS_SHARE = 0.1, 0.25
# With more devices there are more ways, which differ more than a refinement can gain.
MANY_DEVICES, WAYS_SHARE_OF_MANY = 4, 0.5
# Largest share of the time limit in which sizes of parts are corrected, and how often those of one
# schedule are: later corrections gain little.
EQUAL_ENDS_SHARE, MOST_CORRECTIONS = 0.15, 3
# Constructed schedules that are so many times as long as the one with whole ops do not take part.
HOPELESS = 1.5
# Pairs (ratio, share). If the step with whole ops is at most `ratio` times as long as the best one,
# the search of whole ops gets this share of the remaining time: it has more starts, and gains more
# later. The share is larger if the best step splits some of the whole ops, because some of the
# better whole ops are then split again.
CLOSE = ((1.08, 0.5),)
CLOSE_IF_SOME_ARE_SPLIT = ((1.08, 0.75), (1.3, 0.3))


def split_or_whole(
    placer: Placer, problem: Problem, context: Context, start: Solution | None = None
) -> Solution:
    """Return the best solution, with whole ops or with split ones.

    start: a solution on fewer hosts, from which the search also starts.

    Raises:
        BadInputError: the search is robust, and no op time and no delay varies.
    """
    share, bound_us = shares(context.limits), all_plans_bound_us(problem)
    progress = BestProgress(context.on_progress)
    context = replace(
        context, on_progress=lambda each: progress(replace(each, lower_bound_us=bound_us))
    )
    whole_ops = WholeOps(placer, problem, context, start)
    built = _built(whole_ops, problem, context, share, on_fewer_hosts=start is not None)
    if start is not None and start.is_rewritten:
        before = Entry(FEWER_HOSTS, start, start, was_searched=True)
        built = replace(built, entries=[before, *built.entries])
    found = _refined(placer, whole_ops, built, context, shares(share(built.left, 1.0)))
    # After a stop, split ops may not have been refined robustly.
    was_refined = placer.robust and not context.limits.stop.is_set()
    solution = _best(found, robust=was_refined)
    unsplit = [each for each in found if not each.is_rewritten]
    return replace(
        solution,
        lower_bound_us=bound_us,
        bound_holds_for=PlanSet.ALL_PLANS,
        whole=_best(unsplit).schedule if unsplit else None,
        notes=(*solution.notes, *built.notes),
    )


@dataclass(frozen=True, eq=False)
class _Built:
    """What a search has before it refines split ops.

    whole: the best solution with whole ops. entries: schedules with split ops, the best first.
    notes: on the ways to split. left: the share of the time limit that is left.
    """

    whole: Solution
    entries: Sequence[Entry]
    notes: tuple[str, ...]
    left: float


def _built(
    whole_ops: WholeOps, problem: Problem, context: Context, share: Share, *, on_fewer_hosts: bool
) -> _Built:
    """Place the whole ops, then construct schedules with split ops.

    on_fewer_hosts: see `WaysInTime`.
    """
    has_many = len(accelerators(problem)) > MANY_DEVICES
    ways_share = WAYS_SHARE_OF_MANY if has_many else WAYS_SHARE
    whole = whole_ops.search(share(WHOLE_SHARE))
    ways = WaysInTime(
        problem,
        context,
        ways_share,
        whole,
        placer=whole_ops.placer,
        on_fewer_hosts=on_fewer_hosts,
    )
    until, most_share = WHOLE_SHARE + ways_share, ways.most_share
    in_time = share(most_share, WHOLE_SHARE + most_share)
    with whole_ops.search_beside(whole, in_time) as better:
        entries, notes = _constructed(
            problem,
            context,
            ways,
            better,
            is_over=lambda reserved: share(ways_share, until - reserved).time_limit_s <= 0,
        )
        whole = better()
    entries, corrections_share = _with_equal_ends(problem, entries, context.limits)
    left = 1 - WHOLE_SHARE - ways.share_used - corrections_share
    return _Built(whole, entries, notes, left)


def _constructed(
    problem: Problem,
    context: Context,
    ways: WaysInTime,
    better: Callable[[], Solution],
    is_over: Callable[[float], bool],
) -> tuple[Sequence[Entry], tuple[str, ...]]:
    """Return the schedules with split ops to refine, and notes.

    better: returns the best solution with whole ops, when its search ends.
    is_over: whether the time for them is over, apart from a reserved share of the time limit, as on
        a machine that is slower than the estimates; then only the first way and a warm start are
        used.
    """
    started, others = list[Entry](), list[Entry]()
    notes: tuple[str, ...] = ()
    for way in ways.each(better):
        # The result of an earlier search is not lost if this one is stopped early.
        reserved = 0.0 if isinstance(way, BesideWhole) else ways.reserved_share
        is_late = context.limits.stop.is_set() or (bool(others) and is_over(reserved))
        if is_late and not isinstance(way, AsBefore):
            continue
        try:
            entry = Entry.of(way, problem, context)
        except (BadInputError, InfeasibleError) as error:
            notes = (*notes, f"{way.name}: {error}".replace(": use another strategy.", "."))
            continue
        ways.note(way, entry.start)
        (started if isinstance(way, AsBefore) else others).append(entry)
        others = best_of(others, RACE[0].most)
    short, makespan_us = better().objective
    hopeless = (short, HOPELESS * makespan_us)
    refined = [*started, *(each for each in others if each.start.objective < hopeless)]
    return refined, (*dict.fromkeys(notes), *ways.notes)


def _with_equal_ends(
    problem: Problem, entries: Sequence[Entry], limits: Limits
) -> tuple[Sequence[Entry], float]:
    """Return entries with corrected sizes of parts, and the share of the time limit this takes.

    entries: the best first.
    """
    found, spent = list[Entry](), 0.0
    for entry in entries:
        plan = entry.start.plan
        share = share_of(parts_us(1 if plan is None else plan.num_parts), problem, limits)
        most = 0 if limits.stop.is_set() else MOST_CORRECTIONS
        num_rounds = min(most, int((EQUAL_ENDS_SHARE - spent) / share))
        corrected = with_equal_ends(problem, entry.start, num_rounds)
        if corrected is not entry.start:
            spent += num_rounds * share
            name = f"{entry.name}, equal ends"
            entry = replace(entry, name=name, start=corrected, best=corrected)
        found.append(entry)
    return found, spent


@dataclass(frozen=True, eq=False)
class _Trial:
    """A solution after a short search.

    continued: the search that may continue it, given the best solution with whole ops so far.
    takes_whole: whether it began with a solution with whole ops, and gains if these become better.
    """

    solution: Solution
    continued: Callable[[Limits, Solution], Solution]
    takes_whole: bool = False


def _refined(
    placer: Placer, whole_ops: WholeOps, built: _Built, context: Context, share: Share
) -> Sequence[Solution]:
    """Run the race, and continue the best searches; return all solutions.

    share: of the time that is left.
    """
    entries, race_share = run_race(built.entries, context, share, 1 / built.left)
    whole = built.whole
    trials = [_Trial(whole, lambda rest, _: whole_ops.search(rest))]
    trials += [_trial(placer, entry, context, whole) for entry in entries]
    found, ended = [trial.solution for trial in trials], race_share
    for trial, part in _continued(trials):
        if not context.limits.stop.is_set():
            part *= 1 - race_share
            ended += part
            found.append(trial.continued(share(part, ended), whole))
            if trial is trials[0]:
                whole = _best([whole, found[-1]], robust=placer.robust)
    return found


def _continued(trials: Sequence[_Trial]) -> Sequence[tuple[_Trial, float]]:
    """Return the trials to continue, each with its share of the remaining time.

    trials: the first is that of whole ops.
    """
    whole, best = trials[0], min(trials, key=lambda trial: trial.solution.objective)
    if best is whole:
        return [(whole, 1.0)]
    short, makespan_us = best.solution.objective
    for ratio, share in CLOSE_IF_SOME_ARE_SPLIT if best.takes_whole else CLOSE:
        if whole.solution.objective <= (short, ratio * makespan_us):
            return [(whole, share), (best, 1 - share)]
    return [(best, 1.0)]


def _trial(placer: Placer, entry: Entry, context: Context, before: Solution) -> _Trial:
    """Return the best solution of an entry after the race, and the search that continues it.

    before: the best solution with whole ops so far.
    """

    def continued(rest: Limits, whole: Solution) -> Solution:
        share = shares(rest)
        left, spent = entry.beside(whole, before, context, rest)
        left, spent = left.placed_longer(context, share, spent)
        if not placer.robust:
            return left.refined_with_restarts(context, share(1 - spent, 1.0)).best
        end = 1 - ROBUST_SHARE
        plain = left.refined_with_restarts(context, share(end - spent, end)).best
        deviation = deviation_of_parts(context.deviation_of(plain.asked), plain.origin)
        last = share(ROBUST_SHARE, 1.0)
        simulator = Simulator(plain.problem)
        schedule, sampled = refined_robustly(simulator, plain.schedule, deviation, last)
        return replace(plain, schedule=schedule, sampled=sampled)

    return _Trial(entry.best, continued, takes_whole=isinstance(entry.way, BesideWhole))


def _best(solutions: Sequence[Solution], *, robust: bool = False) -> Solution:
    """Return the best solution; if robust, of those that were refined robustly, if any were."""
    sampled = [(each, each.sampled) for each in solutions if each.sampled is not None]
    if robust and sampled:
        return min(sampled, key=lambda each: (each[0].objective[0], each[1].mean_us))[0]
    return min(solutions, key=lambda solution: solution.objective)
