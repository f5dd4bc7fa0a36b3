"""Parts: what a profile knows about the ops that result from splitting.

A plan may split an op in many ways. So the price of a part is stored as a ratio to the time of the
whole op, at a few numbers of parts, and ratios between them are interpolated. Ops that only move or
combine data, such as Split and ConcatV2, are priced by their bytes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np

from pesto_cli.data.graph import FloatArray, IntArray
from pesto_cli.data.specs import OpSpec
from pesto_cli.errors import BadInputError, UnfitError

# A share is a quotient of whole numbers: less than this is rounding.
ROUNDING = 1e-9
MAX_PARTS = 1024
SHARING = ("Reshape", "Identity", "Split")
"""Types of added ops whose outputs may be in the memory of their input."""


def check_numbers(numbers: Sequence[int]) -> None:
    """Raise BadInputError unless numbers of parts are ascending, and from 2 to MAX_PARTS."""
    found = list(numbers)
    are_whole = all(isinstance(each, int | np.integer) for each in found)
    is_ascending = bool(found) and are_whole and found == sorted(set(found))
    if not is_ascending or not 2 <= found[0] <= found[-1] <= MAX_PARTS:
        raise BadInputError(
            f"the numbers of parts are {found}; ascending numbers from 2 to {MAX_PARTS}, such as "
            "2, 4 and 8, were expected."
        )


@dataclass(frozen=True, eq=False)
class PartTimes:
    """The times of the parts of an op, split in one way.

    size: the extent of the factor that is split.
    ratio: `[num_kinds, len(numbers)]`, the time of a part with `units(n)` units of the factor,
        divided by the time of the whole op; NaN where the kind cannot run it.
    """

    size: int
    ratio: FloatArray

    def units(self, number: int) -> int:
        """Return the units of the factor in the smallest of `number` equal parts; at least one."""
        return max(1, self.size // number)

    def curve(self, numbers: Sequence[int], kind: int) -> tuple[Sequence[float], Sequence[float]]:
        """Return ascending shares up to 1, and their ratios; between them the ratio is linear.

        The time of a part is about max(a, b + c * share), where a is the time of a kernel launch.
        So between two priced shares, the ratio is the larger of the ratio of the smaller share and
        the line through the two next larger ones, but at most the chord between the neighbours.

        numbers: the numbers of parts of the columns of `ratio`. kind: index of a device kind.
        """
        columns = zip(map(self.units, numbers), self.ratio[kind].tolist(), strict=True)
        priced = sorted({units / self.size: ratio for units, ratio in columns}.items())
        points = [*priced, (1.0, 1.0)]
        kinks = [_kink(*points[place - 1 : place + 2]) for place in range(1, len(points) - 1)]
        shares, ratios = zip(*sorted([*points, *filter(None, kinks)]), strict=True)
        return shares, ratios


@dataclass(frozen=True, eq=False)
class BytePrice:
    """The time of an op that moves data: `max(min_us, us + us_per_byte * bytes)`.

    min_us, us, us_per_byte: `[num_kinds]`; `min_us` is NaN where the kind cannot run the op. Bytes
        are those that the op reads and writes, see `OpSpec.num_bytes`.
    on_host: whether its outputs are in host memory even on a GPU, as those of ops on shapes.
    """

    min_us: FloatArray
    us: FloatArray
    us_per_byte: FloatArray
    on_host: bool = False

    def time_us(self, num_bytes: int) -> FloatArray:
        """Return the time in us, `[num_kinds]`."""
        return np.maximum(self.min_us, self.us + self.us_per_byte * num_bytes)


@dataclass(frozen=True, eq=False)
class Parts:
    """The prices of the parts of a problem's ops; kinds are those of the problem.

    names: `[num_ops]`, the names of the ops, for messages.
    specs: the distinct specs of ops.
    spec_of: `[num_ops]`, index of each op's spec; -1 for an op without one, such as a while loop.
    numbers: the numbers of parts that are priced, ascending.
    times: (index of a spec, name of an alternative) -> times of its parts. Alternatives without a
        size are left out: their parts repeat the whole op.
    added: (op type, data type) -> price of an op that a rewriting adds; see `added_dtype`.
    fallback: price of ops that are not in `added`; they are assumed to move data.
    kept_whole: the ops that constraints keep whole; they have no spec in `spec_of`.
    targets: the ops that are fetched as ops, such as the train op: a split graph has them, too.
    """

    names: Sequence[str]
    specs: tuple[OpSpec, ...]
    spec_of: IntArray
    numbers: tuple[int, ...]
    times: Mapping[tuple[int, str], PartTimes]
    added: Mapping[tuple[str, str], BytePrice]
    fallback: BytePrice
    kept_whole: frozenset[int] = frozenset()
    targets: frozenset[int] = frozenset()

    def spec(self, op: int) -> OpSpec | None:
        """Return the spec of an op, or None if it has none."""
        index = int(self.spec_of[op])
        return None if index < 0 else self.specs[index]

    @cached_property
    def op_specs(self) -> Sequence[OpSpec | None]:
        """The spec of each op, `[num_ops]`; None for an op without one."""
        return [self.spec(op) for op in range(len(self.spec_of))]

    def can_split(self, op: int) -> bool:
        """Return whether the parts of an op have prices, in at least one way to split it."""
        return int(self.spec_of[op]) in self._priced

    def limited(self, max_parts: int) -> Self | None:
        """Return the prices of at most `max_parts` parts; None if no number of parts is left."""
        numbers = tuple(number for number in self.numbers if number <= max_parts)
        columns = slice(0, len(numbers))
        times = {
            key: replace(each, ratio=each.ratio[:, columns]) for key, each in self.times.items()
        }
        return replace(self, numbers=numbers, times=times) if numbers else None

    def without(self, ops: Sequence[int]) -> Self:
        """Return the prices without those of some ops, which constraints keep whole."""
        spec_of = self.spec_of.copy()
        spec_of[list(ops)] = -1
        return replace(self, spec_of=spec_of, kept_whole=self.kept_whole | {*ops})

    def part_ratio(self, op: int, alternative: str, share: float) -> FloatArray:
        """Return the time of a part divided by that of the whole op, `[num_kinds]`.

        share: the units of the factor in the part, divided by its size. A share of 1 has ratio 1 in
            every alternative, also in one without a size. A share that is smaller than all that are
            priced takes as long as the smallest of these: parts of 7 samples have 3 and 4 of them.

        Raises:
            BadInputError: the alternative is not priced.
            UnfitError: the share is at most half of the smallest share that is priced.
        """
        if share >= 1:
            return np.ones(self.fallback.us.shape)
        key = (int(self.spec_of[op]), alternative)
        if key not in self.times:
            raise BadInputError(
                f"{self._shown(op)} is to be split by {alternative!r}, which the profile "
                "does not price; a profile of the same graph with this way to split was expected: "
                f"profile it again with --parts {self._numbers}."
            )
        if (*key, share) not in self._known:
            self._known[*key, share] = self._interpolated(op, alternative, share)
        return self._known[*key, share]

    def least(self, of_curve: Callable[[FloatArray, FloatArray], float]) -> FloatArray:
        """Return the least value of each op over the ways to split it, `[num_ops, num_kinds]`.

        It is 1 for an op that cannot be split.

        of_curve: returns the value of one way on one kind, given the shares and ratios of
            `PartTimes.curve`; NaN does not count.
        """
        of_specs = np.ones((len(self.specs) + 1, len(self.fallback.us)))  # the last is for no spec
        for (spec, _), times in self.times.items():
            for kind in range(len(times.ratio)):
                shares, ratios = map(np.array, times.curve(self.numbers, kind))
                of_specs[spec, kind] = np.fmin(of_specs[spec, kind], of_curve(shares, ratios))
        least: FloatArray = of_specs[self.spec_of]
        return least

    def least_ratios(self, share: float) -> FloatArray:
        """Return the time of a part with a share of each op, divided by that of the whole op.

        The ratio is that of the fastest way to split the op; see `least`. Profiles have prices for
        some shares only. Below the smallest of these shares, its own ratio is returned.
        """
        return self.least(lambda shares, ratios: float(np.interp(share, shares, ratios)))

    def added_us(self, spec: OpSpec) -> FloatArray:
        """Return the time of an op that a rewriting adds, `[num_kinds]`; NaN where it cannot run.

        An op that copies nothing (`OpSpec.shares_memory`) takes the least time of its type, and a
        Reshape the least time of all types of `SHARING`: it runs on each kind that runs one.

        Raises:
            ValueError: the spec has an unknown data type.
        """
        dtype = added_dtype(spec)
        if spec.type == "Reshape":
            known = [self.added[name, dtype] for name in SHARING if (name, dtype) in self.added]
            times_us = [each.time_us(0) for each in known or [self.fallback]]
            least_us: FloatArray = np.fmin.reduce(times_us)
            return least_us
        price = self.added.get((spec.type, dtype), self.fallback)
        return price.time_us(0 if spec.shares_memory else spec.num_bytes)

    def added_on_host(self, op_type: str, dtype: str) -> bool:
        """Return whether the outputs of an added op are in host memory even on a GPU."""
        return self.added.get((op_type, dtype), self.fallback).on_host

    def _interpolated(self, op: int, alternative: str, share: float) -> FloatArray:
        times = self.times[int(self.spec_of[op]), alternative]
        curves = [times.curve(self.numbers, kind) for kind in range(len(times.ratio))]
        least = curves[0][0][0]
        if share < least / 2 + ROUNDING:
            raise UnfitError(
                f"{self._shown(op)} is to have a part with a share of {share:.4g} by "
                f"{alternative!r}; more than half of {least:.4g}, the smallest share that "
                "the profile prices, was expected: use fewer parts, or profile the graph again "
                f"with more than --parts {self._numbers}."
            )
        return np.array([np.interp(share, shares, ratios) for shares, ratios in curves])

    def _shown(self, op: int) -> str:
        spec = self.spec(op)
        return f"op {self.names[op]!r} ({'no spec' if spec is None else spec.type})"

    @property
    def _numbers(self) -> str:
        return ",".join(map(str, self.numbers))

    @cached_property
    def _priced(self) -> frozenset[int]:
        """The indices of the specs whose parts have prices."""
        return frozenset(index for index, _ in self.times)

    @cached_property
    def _known(self) -> dict[tuple[int, str, float], FloatArray]:
        """The ratios that were asked for: a plan asks for the same ones many times."""
        return {}


Point = tuple[float, float]
"""A share and its ratio."""


def _kink(left: Point, right: Point, beyond: Point) -> Point | None:
    """Return where the line through the two right points falls to the ratio of the left one.

    None if that is not between the left and the middle point.
    """
    slope = (beyond[1] - right[1]) / (beyond[0] - right[0])
    at_left = right[1] - slope * (right[0] - left[0])
    if at_left < left[1] < right[1]:
        return right[0] - (right[1] - left[1]) / slope, left[1]
    return None


def added_dtype(spec: OpSpec) -> str:
    """Return the data type by which `Parts.added` prices an op; of a comparison, its inputs'."""
    is_comparison = bool(spec.inputs) and spec.outputs and spec.outputs[0].dtype == "bool"
    operands = spec.inputs if is_comparison else (*spec.outputs, *spec.inputs)
    return (operands[0].dtype or "") if operands else ""
