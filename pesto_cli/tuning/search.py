"""The search of a round: candidates of several forms, from corrected costs."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from pesto_cli.data.limits import Limits
from pesto_cli.files import Candidate, PlacementFile, Profile, TuningLog, placement
from pesto_cli.strategies.context import Context, is_search
from pesto_cli.tuning.choice import relative_us
from pesto_cli.tuning.clock import Phase
from pesto_cli.tuning.corrected import Corrected
from pesto_cli.tuning.forms import Form, searched_forms, simple_forms, solved
from pesto_cli.tuning.seen import digest
from pesto_cli.tuning.watch import Watch

# Number of forms that are searched for in one round. The first ones are searched for in each round.
FORMS_OF_A_ROUND, FORMS_OF_EACH_ROUND = 4, 2
EXPLORED = "untried ops"


def searched(
    log: TuningLog, costs: Corrected, limits: Limits, watch: Watch
) -> tuple[Candidate, ...]:
    """Return the new candidates of a round; the searches share the time limit.

    The first round also has the simple forms.
    """
    number, problem = len(log.search_rounds), costs.profile.problem
    forms = _forms_of_round(searched_forms(problem), number)
    tasks = [(form, costs.profile) for form in forms]
    if costs.exploring is not None and all(each.made_by != EXPLORED for each in log.candidates):
        tasks.append((replace(forms[0], name=EXPLORED), costs.exploring))
    limits = replace(
        limits, time_limit_s=limits.time_limit_s / len(tasks), seed=limits.seed + number
    )
    if number == 0:
        tasks = [*((form, costs.profile) for form in simple_forms(problem)), *tasks]
    starts = list(_starts(log))
    found: list[Candidate] = []
    for form, profile in tasks:
        if not limits.stop.is_set():
            placed = _placed(form, profile, limits, starts, watch)
            if placed is not None:
                known = [*log.candidates, *found]
                found += _unless_known(known, form, number, placed)
    return tuple(found)


def _forms_of_round(forms: Sequence[Form], number: int) -> list[Form]:
    """Return the forms of a round: the first ones, and the others by turns."""
    first, others = forms[:FORMS_OF_EACH_ROUND], forms[FORMS_OF_EACH_ROUND:]
    count = min(FORMS_OF_A_ROUND - len(first), len(others))
    turn = [others[(number * count + index) % len(others)] for index in range(count)]
    return [*first, *turn]


def _starts(log: TuningLog) -> Iterator[PlacementFile]:
    """Yield the fastest placements that ran: with whole ops, and with split ones."""
    relative = relative_us(log.search_rounds)
    ranked = [
        log.candidate_of[name].placement for name in sorted(relative, key=relative.__getitem__)
    ]
    for is_split in (False, True):
        yield from [placed for placed in ranked if bool(placed.plan) is is_split][:1]


def _placed(
    form: Form, profile: Profile, limits: Limits, starts: Sequence[PlacementFile], watch: Watch
) -> PlacementFile | None:
    with watch.during(Phase.SEARCH, f"searching: {form.name}"):
        used = starts if is_search(form.strategy) else ()
        result, reason = solved(form, profile, Context(limits=limits), used)
    if result is None:
        watch.note(reason)
        return None
    return placement(profile, result)


def _unless_known(
    known: Iterable[Candidate], form: Form, number: int, placed: PlacementFile
) -> Iterator[Candidate]:
    """Yield a candidate, unless there is one with the same placement and plan."""
    by_digest = {digest(each.placement): each for each in known}
    if digest(placed) not in by_digest:
        taken = {each.name for each in by_digest.values()}
        name = form.name if form.name not in taken else f"{form.name} ({number})"
        yield Candidate(name, form.name, form.is_simple, placed)
