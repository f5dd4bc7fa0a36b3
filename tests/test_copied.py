"""A way to split: one part of the batch is placed on several devices, and the others are copies."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from split_models import weights
from test_beside_whole import TOWERS, priced
from test_meshes import of_length
from test_split_search import on_machine, two_hosts, with_a_faster_gpu
from training_graphs import exported

from pesto_cli import api
from pesto_cli.data.limits import Limits
from pesto_cli.data.presets import PRESETS
from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import Schedule
from pesto_cli.data.solution import Solution
from pesto_cli.errors import UnfitError
from pesto_cli.sharding.problems import prices_of, rewritten
from pesto_cli.strategies.context import Context
from pesto_cli.strategies.data_parallel import VariableLayout, batch_plan
from pesto_cli.strategies.devices import accelerators
from pesto_cli.strategies.pesto import Pesto
from pesto_cli.strategies.run import judged
from pesto_cli.strategies.split_search.copied import (
    CopiedPlacement,
    copied_placements,
    first_part,
)
from pesto_cli.strategies.split_search.forms import BUCKETS_BYTES, every_way
from pesto_cli.strategies.split_search.race import LONGER_SHARE, Entry
from pesto_cli.strategies.time_shares import shares

CONTEXT = Context(Limits(1.0, deterministic=True, workers=1))
PAIRS = ((1, 2), (3, 4))


@pytest.fixture(scope="module")
def problem() -> Problem:
    """Four towers of layers, on four GPUs."""
    return priced(then_alone=False)


@pytest.fixture(scope="module")
def short(problem: Problem) -> Problem:
    """The same with short ops."""
    return with_short_ops(problem)


def with_short_ops(problem: Problem) -> Problem:
    """Return a problem in which half of an op takes half its time, and a quarter as long."""
    parts = prices_of(problem)
    halves = {
        key: replace(each, ratio=np.full_like(each.ratio, 0.5)) for key, each in parts.times.items()
    }
    return replace(problem, parts=replace(parts, times=halves))


def branches(tf: Any) -> list[Any]:
    """Two blocks, each of two branches with four layers."""
    tf1 = tf.compat.v1
    rows = tf1.placeholder(tf.float32, [2**14, 512], name="rows")
    for block in range(2):
        ends = []
        for branch in range(2):
            end = rows
            for layer in range(4):
                name = f"block_{block}/{branch}_{layer}"
                end = tf.tanh(tf.matmul(end, weights(tf, f"{name}/weights", [512, 512])))
            ends.append(end)
        rows = tf.add_n(ends)
    loss = tf.reduce_mean(tf.square(rows), name="loss")
    return [tf1.train.GradientDescentOptimizer(0.1).minimize(loss, name="train"), loss]


def widths(problem: Problem) -> list[int]:
    return [len(way.groups[0]) for way in copied_placements(problem, Pesto(), 0)]


def test_all_parts_are_placed_as_the_first_one(problem: Problem) -> None:
    assert accelerators(problem) == [1, 2, 3, 4]
    _, solution = CopiedPlacement(Pesto(), PAIRS)(problem, CONTEXT)
    judged("pesto", solution, 0.0)  # no rule is violated
    device = dict(zip(solution.problem.graph.names, solution.schedule.device.tolist(), strict=True))
    places = []
    for tower in range(TOWERS):
        product = f"tower_{tower}/0/product"
        first, second = (device[f"{product}.part_{part}"] for part in (0, 1))
        assert PAIRS[0].index(first) == PAIRS[1].index(second)
        places.append(first)
    assert sorted(places) == [1, 1, 2, 2]


def test_the_first_part_has_its_own_times_and_bytes_and_its_own_devices(problem: Problem) -> None:
    plan = batch_plan(problem, [1, 3], variables=VariableLayout.MIRRORED)
    split = rewritten(problem, plan)
    part, found = first_part(problem, split, PAIRS[0]), split.problem
    for name in ("tower_0/0/product", "tower_3/2/result"):
        op, of_part = problem.graph.index_of[name], found.graph.index_of[f"{name}.part_0"]
        np.testing.assert_array_equal(part.time_us[op], found.time_us[of_part])
        (tensor,) = problem.graph.tensors_of(op)
        assert 2 * part.graph.tensor_bytes[tensor] == problem.graph.tensor_bytes[tensor] > 0
        assert np.flatnonzero(part.allowed[op]).tolist() == [
            each for each in np.flatnonzero(problem.allowed[op]).tolist() if each not in PAIRS[1]
        ]
    assert part.parts is None


def test_copies_are_tried_if_parts_on_all_devices_are_too_short(
    problem: Problem, short: Problem
) -> None:
    assert widths(short) == [2]
    on_two_hosts = on_machine(short, two_hosts())
    for placed, bucket_bytes in ((short, 0), (on_two_hosts, BUCKETS_BYTES[0])):
        found = [each for each in every_way(placed, Pesto()) if isinstance(each, CopiedPlacement)]
        assert [each.bucket_bytes for each in found] == [bucket_bytes]
    # Long ops lose nothing if they are split. Two devices have no groups. In a group, all devices
    # are equally fast.
    assert widths(problem) == []
    two = on_machine(short, PRESETS["v100x2-nvlink"])
    assert widths(two) == widths(with_a_faster_gpu(two)) == []
    *others, last = short.machine.devices
    faster = replace(short.machine, devices=(*others, replace(last, speed=2 * last.speed)))
    assert widths(on_machine(short, faster)) == []


def test_the_search_finds_copies_that_are_faster_than_other_ways() -> None:
    """With two parts, each of four devices runs one branch. A quarter takes as long as a half."""
    profile = api.profile(exported(branches), "v100x4-nvlink", parts=(2, 4))
    problem = with_short_ops(profile.problem)
    steps_us = dict[bool, float]()
    for way in every_way(problem, Pesto()):
        with suppress(UnfitError):  # the program may split no op
            _, solution = way(problem, CONTEXT)
            is_copied = isinstance(way, CopiedPlacement)
            steps_us[is_copied] = min(solution.makespan_us, steps_us.get(is_copied, np.inf))
    assert steps_us[True] < 0.9 * steps_us[False]
    assert Pesto()(problem, CONTEXT).makespan_us <= steps_us[True]


def test_the_first_part_is_placed_for_longer(problem: Problem) -> None:
    way, share = CopiedPlacement(Pesto(), PAIRS), shares(CONTEXT.limits)
    entry = Entry.of(way, problem, CONTEXT)
    step_us = entry.best.makespan_us
    short, long = (replace(entry, best=of_length(entry.best, each)) for each in (0.0, 9 * step_us))
    again, spent = long.placed_longer(CONTEXT, share, 0.0)
    assert again.best.makespan_us < long.best.makespan_us
    judged("pesto", again.best, 0.0)  # no rule is violated
    assert spent == LONGER_SHARE
    assert short.placed_longer(CONTEXT, share, 0.1) == (short, 0.1 + LONGER_SHARE)
    assert long.placed_longer(CONTEXT, share, 1 - LONGER_SHARE) == (long, 1 - LONGER_SHARE)
    whole = replace(long, way=None)
    assert whole.placed_longer(CONTEXT, share, 0.0) == (whole, 0.0)


def test_a_longer_search_begins_with_the_placement_before(problem: Problem) -> None:
    """A placer that only returns its start ends where the search before ended."""
    way = CopiedPlacement(Pesto(), PAIRS)
    _, first = way(problem, CONTEXT)
    again = replace(way, placer=_Keeper()).search(problem, CONTEXT, CONTEXT.limits, first)
    assert again.schedule.device.tolist() == first.schedule.device.tolist()


@dataclass(frozen=True)
class _Keeper:
    """A placer that returns the schedule from which it is to start."""

    robust: bool = False

    def place(
        self, problem: Problem, context: Context, found: Mapping[str, Schedule] | None = None
    ) -> Solution:
        (start,) = (found or {}).values()
        return Solution.of(problem, start)


def test_ratios_are_the_smallest_of_all_ways_to_split(problem: Problem, short: Problem) -> None:
    parts = prices_of(problem)
    op = problem.graph.index_of["tower_0/0/product"]
    names = [name for spec, name in parts.times if spec == parts.spec_of[op]]
    assert len(names) > 1
    gpu = problem.kinds.index(problem.machine.devices[-1].kind)
    for share in (0.25, 0.3, 0.5):
        least = np.min([parts.part_ratio(op, name, share) for name in names], axis=0)
        assert parts.least_ratios(share)[op, gpu] == least[gpu] < 1
    assert prices_of(short).least_ratios(0.25)[op, gpu] == 0.5
    assert parts.without([op]).least_ratios(0.5)[op, gpu] == 1.0
