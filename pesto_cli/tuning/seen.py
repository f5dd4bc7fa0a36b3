"""Measured times of ops in plans that ran, and the times of the same ops in a profile."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pesto_cli.data.columns import FloatArray, IntArray
from pesto_cli.data.problem import Problem
from pesto_cli.data.problem_cache import cached_per_problem
from pesto_cli.data.schedule import Placement
from pesto_cli.evaluation.sampling import relative_deviation
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.evaluation.work import work_us
from pesto_cli.files import Measurement, PlacementFile, Profile
from pesto_cli.files.plan import plan_json
from pesto_cli.files.split_placement import split_by

Ran = tuple[PlacementFile, Measurement]
"""A placement, and its measured steps in one round."""

Price = tuple[int, str] | str
"""What prices an op that a plan makes: for a part the key of `Parts.times`; for an added op its
type."""

# The deviation of an op's time in a step, as a share of the time: if the profile does not have it,
# and the least one.
USUAL_DEVIATION, LEAST_DEVIATION = 0.25, 0.03
WHOLE = -1


@dataclass(frozen=True, eq=False)
class Placed:
    """A placement with the problem whose ops it places.

    origin: `[num_ops]`, the op of the profile of which an op is a part or copy; -1 for an added op.
    price: `[num_ops]`, index into `prices`; WHOLE for an op that the profile itself has.
    """

    problem: Problem
    placement: Placement
    origin: IntArray
    price: IntArray
    prices: tuple[Price, ...]

    @cached_property
    def contention(self) -> FloatArray:
        """`[num_ops]`: how many times as long each op takes by contention, as predicted."""
        times = np.ones(self.problem.num_ops)
        if self.problem.machine.has_contention:
            schedule = Simulator(self.problem).replay(self.placement)
            took_us, alone_us = schedule.end_us - schedule.start_us, work_us(self.problem, schedule)
            np.divide(took_us, alone_us, out=times, where=alone_us > 0)
        return times

    @cached_property
    def usual_us(self) -> FloatArray:
        """`[num_ops]`: the time of each op on its device by the profile, with its contention."""
        ops = np.arange(self.problem.num_ops)
        return self.problem.duration_us[ops, self.placement.device] * self.contention


def digest(placed: PlacementFile) -> str:
    """Return a digest that is equal for placements that give the same steps."""
    value = [placed.devices, placed.names, placed.device, placed.rank, plan_json(placed.plan)]
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()


@cached_per_problem
def _known(problem: Problem) -> dict[str, Placed]:
    """Return the results of `placed_on` for a problem, by digest; splitting takes time."""
    return {}


def placed_on(problem: Problem, file: PlacementFile) -> Placed:
    """Return a placement of a problem's ops, or of their parts.

    Raises:
        BadInputError: the placement is of other ops or devices, or its parts have no prices.
    """
    known, key = _known(problem), digest(file)
    if key not in known:
        known[key] = _placed(problem, file)
    return known[key]


def _placed(problem: Problem, file: PlacementFile) -> Placed:
    if not file.plan:
        ops = np.arange(problem.num_ops)
        return Placed(problem, file.match(problem), ops, np.full(len(ops), WHOLE), ())
    split = split_by(file, problem)
    parts, prices, price = problem.parts, dict[Price, int](), np.full(len(split.origin), WHOLE)
    choices = file.plan.choices
    assert parts is not None
    for op, origin in enumerate(split.origin.tolist()):
        key: Price | None = None
        choice = choices.get(problem.graph.names[origin]) if split.part[op] >= 0 else None
        if split.is_priced[op] and choice is not None:
            sized = int(parts.spec_of[origin]), choice.alternative
            key = sized if sized in parts.times else None
        elif origin < 0 or choice is not None:
            key = split.problem.graph.types[op]
        if key is not None:
            price[op] = prices.setdefault(key, len(prices))
    placement = file.match(split.problem)
    return Placed(split.problem, placement, split.origin, price, tuple(prices))


@dataclass(frozen=True, eq=False)
class Seen:
    """Times of ops, as columns with one entry for each op of each plan that ran.

    op, kind: the op of the profile (-1 for an added op), and the index of the device kind.
    price: index into `prices`, or WHOLE.
    us, usual_us: the measured time at speed 1, without the predicted contention; and the time by
        the profile.
    variance: of the logarithm of the measured time, by chance alone.
    """

    op: IntArray
    kind: IntArray
    price: IntArray
    us: FloatArray
    usual_us: FloatArray
    variance: FloatArray
    prices: tuple[Price, ...]


def seen(profile: Profile, ran: Iterable[Ran]) -> Seen:
    """Return the times of all ops that ran and take time by the profile or in the steps."""
    deviation = _deviations(profile)
    prices: dict[Price, int] = {}
    rows = [
        _rows(placed_on(profile.problem, file), file, measured, deviation, prices)
        for file, measured in ran
    ]
    columns = [np.concatenate(column) for column in zip(*rows, strict=True)] or [np.zeros(0)] * 6
    op, kind, price = (column.astype(np.int64) for column in columns[:3])
    us, usual_us, variance = columns[3:]
    return Seen(op, kind, price, us, usual_us, variance, tuple(prices))


def _deviations(profile: Profile) -> FloatArray:
    """`[num_ops + 1, num_devices]`; the last row is for added ops."""
    known = relative_deviation(profile.problem, profile.spread)
    known = np.where(known > 0, np.maximum(known, LEAST_DEVIATION), USUAL_DEVIATION)
    return np.vstack([known, np.full((1, known.shape[1]), USUAL_DEVIATION)])


def _rows(
    placed: Placed,
    file: PlacementFile,
    measured: Measurement,
    deviation: FloatArray,
    prices: dict[Price, int],
) -> list[FloatArray]:
    """Return the columns of `Seen` for one plan; new prices are added to `prices`."""
    problem, device = placed.problem, placed.placement.device
    row_of = {name: row for row, name in enumerate(file.names)}
    us = measured.op_us[[row_of[name] for name in problem.graph.names]]
    us = us * np.array([each.speed for each in problem.machine.devices])[device]
    us = us / placed.contention
    number_of = {kind: number for number, kind in enumerate(problem.kinds)}
    kind = np.array([number_of.get(each.kind, 0) for each in problem.machine.devices])[device]
    usual_us = problem.time_us[np.arange(len(kind)), kind]
    kept = (us > 0) & ~np.isnan(usual_us) & ~problem.is_hosted
    number = [prices.setdefault(price, len(prices)) for price in placed.prices]
    price = np.array([*number, WHOLE])[placed.price]
    variance = np.log1p(deviation[placed.origin, device] ** 2) / measured.num_traced
    return [column[kept] for column in (placed.origin, kind, price, us, usual_us, variance)]
