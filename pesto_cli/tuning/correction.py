"""Correct the times of ops and the prices of parts by what plans were measured to take.

The logarithm of an op's true time in plans is that of the profile, plus a deviation `d`: the
profile runs ops one at a time on one device, while in a plan other devices work beside it. What the
machine's contention explains of this is taken off the measured times first (`seen`). With a
normal prior N(0, PRIOR^2) of `d`, and measured deviations r_i of variance v_i, the mean of `d` is

    d = sum(r_i / v_i) / (1 / PRIOR^2 + sum(1 / v_i))

so a time that was measured often and varies little replaces that of the profile, and one that
varies much hardly changes it. FastT replaces all of them (Section 4).
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from pesto_cli.data.columns import BoolArray, FloatArray, IntArray
from pesto_cli.data.parts import BytePrice, Parts
from pesto_cli.files import Profile
from pesto_cli.tuning.seen import WHOLE, Price, Seen

# Standard deviations of the logarithms: of an op's time in a plan, relative to the profile, and of
# the price of a part, which was measured alone.
OP_PRIOR, PRICE_PRIOR = 0.1, 0.3


def with_seen_times(profile: Profile, seen: Seen) -> Profile:
    """Return a profile with corrected op times, and corrected prices of parts if it has any."""
    problem = profile.problem
    time_us = _op_times(problem.time_us, seen)
    parts = problem.parts
    if parts is not None:
        parts = _prices(parts, time_us / np.where(problem.time_us > 0, problem.time_us, 1.0), seen)
    return replace(profile, problem=replace(problem, time_us=time_us, parts=parts))


def untried(profile: Profile, seen: Seen) -> Profile | None:
    """Return a profile in which times that were never measured are 0; None if there are none.

    FastT does so for an op that it has not yet seen on a device: a plan that uses it is then more
    likely, and its steps give the time. A profile without any measured time is not changed.
    """
    problem, spread = profile.problem, profile.spread
    if spread is None:
        return None
    unknown = problem.time_us > 0
    for column, kind in enumerate(problem.kinds):
        if kind in spread.mean_us:
            unknown[:, column] &= np.isnan(spread.mean_us[kind])
    is_whole = seen.price == WHOLE
    unknown[seen.op[is_whole], seen.kind[is_whole]] = False
    if not unknown.any():
        return None
    return replace(
        profile, problem=replace(problem, time_us=np.where(unknown, 0.0, problem.time_us))
    )


def deviations(
    group: IntArray, ratio: FloatArray, variance: FloatArray, num_groups: int, prior: float
) -> FloatArray:
    """`[num_groups]`: `d` of each group of measured log ratios; 0 for a group without any."""
    weight = np.bincount(group, 1 / variance, minlength=num_groups)
    total = np.bincount(group, ratio / variance, minlength=num_groups)
    mean: FloatArray = total / (weight + prior**-2)
    return mean


def _op_times(time_us: FloatArray, seen: Seen) -> FloatArray:
    is_whole = (seen.price == WHOLE) & (seen.op >= 0)
    group = (seen.op * time_us.shape[1] + seen.kind)[is_whole]
    us, usual_us = seen.us[is_whole], seen.usual_us[is_whole]
    known = usual_us > 0
    log_ratio = np.log(us[known] / usual_us[known])
    d = deviations(group[known], log_ratio, seen.variance[is_whole][known], time_us.size, OP_PRIOR)
    corrected = time_us * np.exp(d).reshape(time_us.shape)
    # An op with time 0 in the profile never ran there; its measured times are all that is known.
    count = np.bincount(group[~known], minlength=time_us.size)
    mean_us = np.bincount(group[~known], us[~known], time_us.size) / np.maximum(count, 1)
    return np.where((count > 0).reshape(time_us.shape), mean_us.reshape(time_us.shape), corrected)


def _prices(parts: Parts, op_factor: FloatArray, seen: Seen) -> Parts:
    """Correct prices; op_factor: `[num_ops, num_kinds]`, corrected op times by those before."""
    is_part = np.array([not isinstance(price, str) for price in seen.prices] + [False])
    of_parts, usual_of_parts = _price_factors(op_factor, seen, is_part[seen.price])
    is_added = (seen.price != WHOLE) & ~is_part[seen.price]
    of_added, usual_of_added = _price_factors(np.ones_like(op_factor), seen, is_added)
    return replace(
        parts,
        times={
            key: replace(each, ratio=each.ratio * of_parts.get(key, usual_of_parts)[:, None])
            for key, each in parts.times.items()
        },
        added={
            (op_type, dtype): scaled_price(each, of_added.get(op_type, usual_of_added))
            for (op_type, dtype), each in parts.added.items()
        },
        fallback=scaled_price(parts.fallback, usual_of_added),
    )


def _price_factors(
    op_factor: FloatArray, seen: Seen, chosen: BoolArray
) -> tuple[Mapping[Price, FloatArray], FloatArray]:
    """Return the factors on some prices, `[num_kinds]` each, and on those that were not seen.

    The latter is common to all of these prices, because all were measured alone.
    """
    num_kinds = op_factor.shape[1]
    rows = chosen & (seen.usual_us > 0)
    kind, price, op, variance = (
        seen.kind[rows],
        seen.price[rows],
        seen.op[rows],
        seen.variance[rows],
    )
    of_op = np.where(op >= 0, op_factor[op, kind], 1.0)
    ratio = np.log(seen.us[rows] / (seen.usual_us[rows] * of_op))
    common = deviations(kind, ratio, variance + PRICE_PRIOR**2, num_kinds, PRICE_PRIOR)
    group, size = price * num_kinds + kind, len(seen.prices) * num_kinds
    own = deviations(group, ratio - common[kind], variance, size, PRICE_PRIOR)
    factor = np.exp(own.reshape(-1, num_kinds) + common)
    return {seen.prices[index]: factor[index] for index in set(price.tolist())}, np.exp(common)


def scaled_price(price: BytePrice, factor: FloatArray | float) -> BytePrice:
    """Return a price of bytes with all times multiplied; factor: a number, or `[num_kinds]`."""
    return replace(
        price,
        min_us=price.min_us * factor,
        us=price.us * factor,
        us_per_byte=price.us_per_byte * factor,
    )
