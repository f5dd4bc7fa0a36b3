"""Sizes of parts that follow from the times at which devices end."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_meshes import problem, slow_network
from test_split_search import on_machine

from pesto_cli.data.limits import Limits
from pesto_cli.data.plan import Choice, Plan
from pesto_cli.data.problem import Problem
from pesto_cli.data.result import Progress
from pesto_cli.errors import BadInputError
from pesto_cli.sharding.alternative import shares_of
from pesto_cli.sharding.problems import rewritten
from pesto_cli.strategies.context import Context
from pesto_cli.strategies.data_parallel import DataParallel, batch_plan, dealt
from pesto_cli.strategies.meshes import Mesh
from pesto_cli.strategies.pesto import Pesto
from pesto_cli.strategies.run import judged
from pesto_cli.strategies.split_search import ways_in_time
from pesto_cli.strategies.split_search.equal_ends import (
    _ends_us,
    _units,
    resized,
    with_equal_ends,
    with_units_moved,
)
from pesto_cli.strategies.split_search.ways import AsStrategy

__all__ = ["problem"]


@pytest.fixture
def across(problem: Problem) -> Problem:
    """A step whose inputs reach the GPUs of the second host late, one after the other."""
    machine = slow_network(100.0)
    host = {device.name: device.name.partition("/")[0] for device in machine.devices}
    links = [
        link
        if host[link.src] == host[link.dst]
        else replace(
            link, comm=replace(link.comm, us_per_byte=1.5e-4), channel=f"card of {link.src}"
        )
        for link in machine.links
    ]
    return on_machine(problem, replace(machine, links=tuple(links)))


def test_devices_end_together_and_the_step_is_shorter(across: Problem) -> None:
    equal = DataParallel(by_host=True)(across, Context())
    corrected = with_equal_ends(across, equal, num_rounds=4)
    judged("equal ends", corrected, 0.0)  # no rule is violated
    before_us, after_us = (_ends_us(across, each).max(axis=1) for each in (equal, corrected))
    assert before_us.max() > 1.2 * before_us.min()
    assert np.ptp(after_us) < 0.3 * np.ptp(before_us)
    assert corrected.makespan_us < 0.95 * equal.makespan_us
    assert corrected.plan is not None
    sizes = corrected.plan.choices["layer_0/product"].sizes
    assert sum(sizes) == 2**14
    assert min(sizes[:2]) > max(sizes[2:])


def test_a_correction_to_parts_without_prices_is_left_out(across: Problem) -> None:
    assert across.parts is not None
    priced = replace(across, parts=across.parts.limited(4))
    links = [
        replace(link, comm=replace(link.comm, us_per_byte=link.comm.us_per_byte * 30))
        if link.channel
        else link
        for link in priced.machine.links
    ]
    slower = on_machine(priced, replace(priced.machine, links=tuple(links)))
    equal = DataParallel(by_host=True)(slower, Context())
    assert with_equal_ends(slower, equal, num_rounds=4).objective <= equal.objective
    assert equal.plan is not None
    without_prices = resized(slower, equal.plan, [1.0, 1.0, 0.1, 0.1])
    with pytest.raises(BadInputError, match="the smallest share that the profile prices"):
        rewritten(slower, without_prices)


def test_parts_that_the_user_chose_keep_their_sizes(across: Problem) -> None:
    chosen = Plan({"layer_1/product": Choice("rows", (2**12,) * 4)})
    asked = replace(across, chosen=chosen)
    plan = resized(asked, batch_plan(asked, range(4)), [2.0, 1.0, 1.0, 1.0])
    assert plan.choices["layer_1/product"] == chosen.choices["layer_1/product"]
    assert plan.choices["layer_0/product"].sizes == (6554, 3277, 3277, 3276)


@pytest.mark.parametrize("mesh", [Mesh(((1, 2), (3, 4)), 1), Mesh(((1, 2),), 2)])
def test_stages_and_micro_batches_keep_their_sizes(across: Problem, mesh: Mesh) -> None:
    split = rewritten(across, batch_plan(across, range(mesh.num_parts)))
    solution = dealt(across, split, mesh)
    assert with_equal_ends(across, solution, num_rounds=2) is solution


def test_the_search_corrects_sizes(across: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    only = AsStrategy(DataParallel(by_host=True))
    monkeypatch.setattr(ways_in_time, "every_way", lambda *_: [only])
    sources = list[str]()

    def on_progress(progress: Progress) -> None:
        sources.append(progress.source)

    context = Context(Limits(1.0, workers=1, deterministic=True), on_progress=on_progress)
    solution = Pesto()(across, context)
    assert any(source.endswith(", equal ends") for source in sources)
    equal = DataParallel(by_host=True)(across, Context())
    assert solution.makespan_us < 0.95 * equal.makespan_us


@given(st.integers(1, 24), st.lists(st.floats(0.1, 10), min_size=2, max_size=4))
def test_the_longest_share_is_as_short_as_possible(extent: int, weights: list[float]) -> None:
    def longest(sizes: tuple[int, ...]) -> float:
        return max(size / weight for size, weight in zip(sizes, weights, strict=True))

    found = shares_of(extent, weights)
    every = product(range(extent + 1), repeat=len(weights) - 1)
    possible = [(*sizes, extent - sum(sizes)) for sizes in every if sum(sizes) <= extent]
    assert sum(found) == extent
    assert longest(found) == pytest.approx(min(map(longest, possible)))


@given(st.lists(st.tuples(st.integers(1, 5), st.floats(0.1, 10)), min_size=2, max_size=3))
def test_the_latest_end_is_as_early_as_possible(parts: list[tuple[int, float]]) -> None:
    units, end_us = np.array([units for units, _ in parts]), np.array([end for _, end in parts])
    unit_us = end_us / units

    def latest(moved: tuple[int, ...]) -> float:
        return float((end_us + (np.array(moved) - units) * unit_us).max())

    found = with_units_moved(units, end_us)
    every = product(range(1, units.sum() + 1), repeat=len(parts))
    assert min(found) >= 1
    assert sum(found) == sum(units)
    possible = [latest(each) for each in every if sum(each) == sum(units)]
    assert latest(tuple(found)) == pytest.approx(min(possible))


def test_the_units_of_parts_are_those_of_most_ops(across: Problem) -> None:
    rows, doubled = (4097, 4095, 4096, 4096), (8194, 8190, 8192, 8192)
    choices = [Choice("rows", rows), Choice("rows", doubled), Choice("columns", (128,) * 4)]
    copies = [Choice("copies", (1,) * 4)] * 4
    plan = Plan({f"op_{index}": each for index, each in enumerate([*choices, *copies])})
    assert _units(across, plan).tolist() == list(rows)
