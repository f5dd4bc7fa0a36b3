"""Arguments that the API refuses: errors say what was found, what was expected, and the remedy."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pesto_cli import api as pesto
from pesto_cli.data.problem import Problem
from pesto_cli.data.result import Result
from pesto_cli.errors import BadInputError
from pesto_cli.files import PlacementFile, Profile

Solved = tuple[Profile, Result, PlacementFile]


@pytest.fixture
def solved(diamond: Problem) -> Solved:
    profile = Profile(diamond)
    result = pesto.solve(profile, "expert")
    return profile, result, pesto.placement(profile, result)


REFUSED: list[tuple[Callable[[Profile, Result, PlacementFile], Any], str]] = [
    (
        lambda p, r, pl: pesto.solve("x.profile.json"),
        "solve(profile, strategy, context): profile is 'x.profile.json'; a profile was expected: "
        "load(path) reads one, profile(graph, machine) makes one.",
    ),
    (lambda p, r, pl: pesto.solve(None), "profile is None; a profile was expected"),
    (lambda p, r, pl: pesto.solve(p, ["single"]), "strategy is ['single']; a name or a function"),
    (lambda p, r, pl: pesto.solve(p, context=pesto.Limits()), "context is limits; a context was"),
    (lambda p, r, pl: pesto.placement(r, p), "profile is a result; a profile was expected"),
    (lambda p, r, pl: pesto.simulate(p, p), "placed is a profile; a placement or a result was"),
    (lambda p, r, pl: pesto.timeline(p, p), "a result or a schedule or a placement was expected"),
    (lambda p, r, pl: pesto.apply("x.meta", pl), "meta is 'x.meta'; a MetaGraphDef was expected"),
    (lambda p, r, pl: pesto.profile(p), "meta is a profile; a MetaGraphDef was expected"),
    (lambda p, r, pl: pesto.coarsen(p, 2.5), "num_nodes is 2.5; a whole number was expected"),
    (lambda p, r, pl: pesto.coarsen(p, "2"), "num_nodes is '2'; a whole number was expected"),
    (
        lambda p, r, pl: pesto.compare(p, "single"),
        "strategies is 'single'; a list was expected: such as ['single', 'pesto']",
    ),
    (
        lambda p, r, pl: pesto.compare(p, []),
        "there is no strategy to compare; one or more of single",
    ),
    (
        lambda p, r, pl: pesto.report(p, pl),
        "placements is a placement; a mapping from names was expected: such as {'mine': placement}",
    ),
    (lambda p, r, pl: pesto.report(p, {"a": p}), "is a profile; a placement or a result was"),
    (
        lambda p, r, pl: pesto.report(p, {}),
        "there is no placement to show; one or more were expected",
    ),
    (
        lambda p, r, pl: pesto.save(p, "a.json"),
        "path is a profile; a path or a string was expected",
    ),
    (lambda p, r, pl: pesto.save("a.html", p), "a.html: a Profile is written as JSON; a name that"),
    (lambda p, r, pl: pesto.save("a.meta", pl), "a.meta: a PlacementFile is written as JSON"),
    (lambda p, r, pl: pesto.save("a.json", "<html>"), "a.json: a page is written as HTML; a name"),
    (
        lambda p, r, pl: pesto.save("a.json", SimpleNamespace(graph_def=None)),
        "a.json: a graph is written as a MetaGraphDef; a name that ends in .meta was expected",
    ),
    (lambda p, r, pl: pesto.load(None), "name is None; a path or a string was expected"),
    (lambda p, r, pl: pesto.export(print), "source is a builtin_function_or_method; a path or a"),
    (
        lambda p, r, pl: pesto.profile(SimpleNamespace(graph_def=None), parts=2),
        "parts is 2; a list was expected: such as [2, 4, 8]",
    ),
    (
        lambda p, r, pl: pesto.profile(SimpleNamespace(graph_def=None), parts=["2"]),
        "the numbers of parts are ['2']; ascending numbers from 2 to 1024",
    ),
    (
        lambda p, r, pl: pesto.from_networkx([1]),
        "graph is a list; a networkx.DiGraph or MultiDiGraph was expected",
    ),
]


@pytest.mark.parametrize(("attempt", "message"), REFUSED, ids=[text for _, text in REFUSED])
def test_an_argument_of_a_wrong_type_is_refused_with_the_remedy(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    solved: Solved,
    attempt: Callable[..., Any],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInputError) as refused:
        attempt(*solved)
    assert message in str(refused.value)
    assert not list(tmp_path.iterdir())


def test_an_unknown_keyword_is_refused_with_the_known_ones(solved: Solved) -> None:
    profile, result, _ = solved
    for attempt, message in (
        (lambda: pesto.solve(profile, time_limit=3), "'time_limit': .* limits .*time_limit_s"),
        (lambda: pesto.compare(profile, nodes=9), "'nodes': .* strategies' parameters .*num_nodes"),
        (
            lambda: pesto.solve(profile, "heft", num_nodes=9),
            "of the chosen strategies' parameters .none",
        ),
        (lambda: pesto.timeline(profile, result, height=9), "it takes .*title, width, most_bars"),
        (lambda: pesto.solve(), "missing a required argument: 'profile'; it takes profile, strat"),
    ):
        with pytest.raises(TypeError, match=message):
            attempt()


def test_values_of_similar_types_are_accepted(solved: Solved) -> None:
    profile, result, _ = solved
    assert pesto.coarsen(profile, np.int64(2)).problem.num_ops == 2
    assert len(pesto.compare(profile, dict.fromkeys(["single", "expert"]))) == 2
    again = pesto.simulate(profile, result)
    assert (again.strategy, again.makespan_us) == ("expert", result.makespan_us)
    assert '"mine"' in pesto.report(profile, {"mine": result})


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"time_limit_s": -3}, "time_limit_s is -3; a finite number of 0 or more was expected."),
        ({"time_limit_s": float("nan")}, "time_limit_s is nan; a finite number"),
        ({"time_limit_s": float("inf")}, "time_limit_s is inf; a finite number"),
        ({"time_limit_s": "3"}, "time_limit_s is '3'; a finite number"),
        ({"workers": 0}, "workers is 0; a whole number of 1 or more was expected."),
        ({"workers": -1}, "workers is -1; a whole number of 1"),
        ({"workers": 1.5}, "workers is 1.5; a whole number of 1"),
        ({"seed": -1}, "seed is -1; a whole number of 0 or more was expected."),
    ],
)
def test_limits_out_of_range_are_refused_by_name(
    solved: Solved, limits: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadInputError) as refused:
        pesto.Limits(**limits)
    assert message in str(refused.value)
    with pytest.raises(BadInputError):
        pesto.solve(solved[0], **limits)


def test_a_time_limit_of_zero_is_valid(solved: Solved) -> None:
    limits = pesto.Limits(time_limit_s=0, seed=np.int64(1), workers=np.int64(2))
    assert pesto.solve(solved[0], context=pesto.Context(limits)).makespan_us > 0
