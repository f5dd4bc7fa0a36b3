"""Moves of the annealing: they keep a state valid, can be undone, and are tried by weight."""

from typing import Any

import numpy as np
import pytest
from numba import njit
from random_problems import random_placement, random_problem

from pesto_cli.data.limits import Limits
from pesto_cli.data.problem import Problem
from pesto_cli.errors import EnvironmentFailedError
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.refine import refine
from pesto_cli.refine.anneal import Chain
from pesto_cli.refine.cost import CostData, evaluate
from pesto_cli.refine.draws import below
from pesto_cli.refine.families import families_of_nodes
from pesto_cli.refine.moves import MOVES, Move
from pesto_cli.refine.neighbourhood import Neighbourhood
from pesto_cli.refine.state import OPS, UNITS, Change, State, accept, put, shift, undo


@njit
def to_device_2(neighbourhood: Any, state: Any, random: Any, change: Any) -> None:
    """Move a random unit."""
    row = below(random, len(neighbourhood.units))
    put(neighbourhood, state, change, neighbourhood.units[row : row + 1], 2)


@njit
def anywhere_and_nowhere(neighbourhood: Any, state: Any, random: Any, change: Any) -> None:
    """Move all groups several times, also to invalid devices, and shift all ops several times."""
    groups = np.arange(len(neighbourhood.group_offsets) - 1)
    for device in (below(random, neighbourhood.allowed.shape[1]), -1, 0, 99):
        put(neighbourhood, state, change, groups, device)
    for op in range(len(state.device)):
        for by_us in (1.0 / 3.0, np.inf, np.nan, -7e300, -1.7e308, -1.7e308):
            shift(state, change, op, by_us)


HOME = Move(to_device_2, weight=1.0)
TRIED = {**MOVES.builtin, "home": HOME, "all": Move(anywhere_and_nowhere, weight=1.0)}


def scheduled(problem: Problem, device: Any) -> State:
    state = State.of(problem.num_ops)
    state.device[:] = device
    found = evaluate(CostData.of(Simulator(problem)), state.device, state.offset, np.inf)
    state.start[:], state.key[:] = found.start, found.key
    state.score[:] = found.makespan_us, found.excess, found.transfers_us
    return state


def is_valid(problem: Problem, state: State) -> bool:
    device, group = state.device, problem.graph.colocation_group
    of_group = np.zeros(problem.graph.num_groups, dtype=np.int64)
    of_group[group] = device
    together = (of_group[group] == device).all()
    return bool(
        together
        and problem.allowed[np.arange(problem.num_ops), device].all()
        and np.isfinite(state.offset).all()
    )


def columns(state: State) -> list[bytes]:
    return [column.tobytes() for column in state]


def is_empty(change: Change) -> bool:
    """Return whether the log has no entries."""
    left = change.changed.any() or (change.was_on >= 0).any() or change.seen.any()
    return not left and bool(np.isnan(change.was_offset).all())


@pytest.mark.parametrize("name", TRIED)
def test_a_move_keeps_the_state_valid_and_is_undone_exactly(name: str) -> None:
    num_changed = 0
    for seed in range(12):
        problem = random_problem(seed, 14)
        families = families_of_nodes(problem)
        if len(families.units) == 0:
            continue
        neighbourhood = Neighbourhood.of(problem, families)
        state = scheduled(problem, random_placement(problem, seed))
        change = Change.of(problem.graph.num_groups, problem.num_ops)
        random = np.array([seed + 1], dtype=np.uint64)
        for turn in range(40):
            before, was = columns(state), State(*map(np.copy, state))
            TRIED[name].propose(neighbourhood, state, random, change)
            assert is_valid(problem, state)
            moved = np.unique(problem.graph.colocation_group[state.device != was.device])
            assert set(moved) <= set(change.units[: change.changed[UNITS]])
            shifted = np.flatnonzero(state.offset != was.offset)
            assert set(shifted) <= set(change.ops[: change.changed[OPS]])
            num_changed += len(moved) + len(shifted)
            if turn % 3 == 0:
                accept(change)
            else:
                undo(neighbourhood, state, change)
                assert columns(state) == before
            assert is_empty(change)
    assert num_changed > 0


def chain(problem: Problem, moves: dict[str, Move]) -> Chain:
    started = Chain(Simulator(problem), families_of_nodes(problem), (0,), moves)
    started.go_to(random_placement(problem, 0), np.zeros(problem.num_ops))
    return started


def tried(problem: Problem, moves: dict[str, Move], order: float) -> dict[str, float]:
    """Return the share of 2,000 steps in which each move has proposed a candidate."""
    ran = chain(problem, moves)
    ran.anneal(2000, 1e6, 1.0, order)
    return {name: candidates / 2000 for name, (candidates, _) in ran.counts.items()}


@njit
def shift_any(neighbourhood: Any, state: Any, random: Any, change: Any) -> None:
    shift(state, change, below(random, len(state.device)), 1.0)


def test_moves_are_tried_by_weight_and_moves_of_the_order_by_their_share() -> None:
    moves = {
        "rarely": Move(shift_any, weight=0.5, of_order=True),
        "one": Move(shift_any, weight=2.0),
        "often": Move(shift_any, weight=1.5, of_order=True),
        "three": Move(shift_any, weight=6.0),
    }
    problem = random_problem(1, 14)
    expected = {"one": 0.15, "three": 0.45, "rarely": 0.1, "often": 0.3}
    assert tried(problem, moves, order=0.4) == pytest.approx(expected, abs=0.04)
    only = {name: move for name, move in moves.items() if move.of_order}
    expected = {"rarely": 0.25, "often": 0.75}
    assert tried(problem, only, order=0.0) == pytest.approx(expected, abs=0.04)
    only = {name: move for name, move in moves.items() if not move.of_order}
    expected = {"one": 0.25, "three": 0.75}
    assert tried(problem, only, order=1.0) == pytest.approx(expected, abs=0.04)


def test_if_all_ops_are_pinned_only_moves_of_the_order_are_tried() -> None:
    problem = random_problem(1, 14)
    permitted = np.zeros_like(problem.allowed)
    permitted[np.arange(problem.num_ops), random_placement(problem, 0)] = True
    pinned = problem.constrained(permitted=permitted)
    assert tried(pinned, {**MOVES.builtin}, order=0.0).keys() == {"insertion"}
    assert tried(pinned, {"home": HOME}, order=0.0) == {}


@pytest.mark.parametrize(
    ("num_devices", "makespan_us", "counts"),
    [
        (2, 87.0, [(1527, 98), (580, 30), (340, 50), (258, 20), (173, 150)]),
        (3, 68.0, [(1421, 149), (641, 77), (371, 82), (281, 24), (139, 120)]),
    ],
)
def test_the_same_seed_gives_the_recorded_candidates(
    num_devices: int, makespan_us: float, counts: list[tuple[int, int]]
) -> None:
    """A change of the code that should not alter the moves must keep the counts."""
    ran = chain(random_problem(7, 40, memory=False, num_devices=num_devices), {**MOVES.builtin})
    ran.anneal(3000, 2.0, 3.0, 0.1)
    assert ran.objective == (0.0, makespan_us)
    assert [*ran.counts.values()] == counts


def test_a_search_uses_the_moves_passed_to_it() -> None:
    problem = random_problem(3, 10, memory=False, num_devices=3)
    simulator = Simulator(problem)
    starts = [simulator.list_schedule(random_placement(problem, 3), np.zeros(problem.num_ops))]
    limits = Limits(time_limit_s=0.01, workers=1, deterministic=True)
    found = refine(simulator, starts, limits, moves={"home": HOME})
    moved = found.device != starts[0].device
    assert found.makespan_us < starts[0].makespan_us
    assert set(found.device[moved]) == {2}
    ran = chain(problem, {**MOVES.builtin, "home": HOME})
    ran.anneal(300, 1e6, 1.0, 0.1)
    assert ran.counts["home"][0] > 50


@njit
def unknown_column(neighbourhood: Any, state: Any, random: Any, change: Any) -> None:
    state.device[0] = neighbourhood.nothing


@njit
def returning(neighbourhood: Any, state: Any, random: Any, change: Any) -> int:
    return 1


def interpreted(neighbourhood: Any, state: Any, random: Any, change: Any) -> None:
    pass


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (unknown_column, "Unknown attribute 'nothing'"),
        (returning, "No conversion from .* to none"),
        (interpreted, r"it is not a function of numba\.njit"),
    ],
)
def test_the_error_for_a_move_that_cannot_be_compiled_names_the_move(
    function: Any, words: str
) -> None:
    place = f"search move 'mine': .*test_moves.{function.__name__} cannot be compiled; fix it or"
    with pytest.raises(EnvironmentFailedError, match=f"{place} uninstall its package: .*{words}"):
        chain(random_problem(1, 6), {"mine": Move(function, weight=1.0)})


@njit
def raising(neighbourhood: Any, state: Any, random: Any, change: Any) -> None:
    raise ValueError("no such unit")


def test_an_error_within_a_move_ends_the_search() -> None:
    words = r"a search move failed: ValueError: no such unit \(test_moves.py, line \d+\)"
    with pytest.raises(EnvironmentFailedError, match=words):
        tried(random_problem(1, 6), {"mine": Move(raising, weight=1.0)}, order=0.0)


@pytest.mark.parametrize("weight", [0.0, -1.0, np.nan, np.inf])
def test_weights_are_numbers_above_zero(weight: float) -> None:
    with pytest.raises(ValueError, match="a number above 0 was expected"):
        Move(to_device_2, weight=weight)
