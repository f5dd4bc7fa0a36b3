"""The prices of ops that a rewriting adds: conversions, sums, and other ops of programs."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pesto_cli.data.graph import BoolArray, FloatArray
from pesto_cli.data.parts import BytePrice
from pesto_cli.data.specs import OpSpec
from pesto_cli.graphdef.kernels import DEVICE_TYPES
from pesto_cli.profile.parts.samples import (
    BOOLEAN,
    CONVERSIONS,
    ELEMENTS,
    ORDERED,
    SIZELESS,
    Elements,
    fallback_samples,
    samples,
)
from pesto_cli.profile.parts.sites import LooseSites

Key = tuple[str, str]
"""(op type, data type)"""
TimesOf = Callable[[Sequence[OpSpec]], FloatArray]
"""Returns the times of specs in us, `[num_specs, num_kinds]`; NaN where they are unknown."""
FALLBACK: Key = ("", "")
"""Stands for all op types without a price of their own."""


@dataclass(frozen=True)
class Added:
    """An op type that a rewriting adds.

    samples: ops of this type by ascending size. device_types: those that can run it.
    """

    samples: tuple[OpSpec, ...]
    device_types: frozenset[str]

    @property
    def on_host(self) -> bool:
        """Whether the outputs are in host memory even on a GPU."""
        outputs = self.samples[0].outputs
        return bool(outputs) and all(operand.on_host for operand in outputs)


def added_types(
    dtypes: Collection[str], examples: Mapping[Key, OpSpec], elements: Elements = ELEMENTS
) -> dict[Key, Added]:
    """Return the op types that a rewriting may add and that have a kernel, and FALLBACK.

    dtypes: the data types of the tensors of the step. examples: ops of programs. elements: of the
        tensors of samples.
    """
    sites, found = LooseSites(), {}
    for op_type, dtype in dict.fromkeys((*_conversions(dtypes), *examples)):
        example = examples.get((op_type, dtype))
        located = [sites.located(spec) for spec in samples(op_type, dtype, example, elements)]
        if located and located[0][1]:
            found[op_type, dtype] = Added(tuple(spec for spec, _ in located), located[0][1])
    return {**found, FALLBACK: Added(fallback_samples(elements), frozenset(DEVICE_TYPES))}


def _conversions(dtypes: Collection[str]) -> Iterator[Key]:
    for op_type in CONVERSIONS:
        if op_type == "NoOp":
            yield op_type, ""
        elif op_type in BOOLEAN:
            yield op_type, "bool"
        else:
            without = {"bool"} if op_type in ORDERED else set()
            yield from ((op_type, dtype) for dtype in sorted(set(dtypes) - without))


def byte_prices(
    added: Mapping[Key, Added], times_of: TimesOf, runs_on: Mapping[Key, BoolArray]
) -> dict[Key, BytePrice]:
    """Return the price of each op type.

    times_of: gives the times of samples. runs_on: `[num_kinds]`, where each type gets a time.
    """
    fallback = _fitted(added[FALLBACK], times_of)
    prices = {
        key: _fitted(each, times_of)
        if len(each.samples) == len(ELEMENTS) or key[0] in SIZELESS
        else _proportional(each, times_of, fallback)
        for key, each in added.items()
    }
    return {
        key: replace(price, min_us=np.where(runs_on[key], price.min_us, np.nan))
        for key, price in prices.items()
    }


def _fitted(added: Added, times_of: TimesOf) -> BytePrice:
    """Return the line through the large samples, with the time of the small one as the least."""
    small, *large = times_of(added.samples)
    sizes = [spec.num_bytes for spec in added.samples[1:]]
    if len(set(sizes)) < 2:  # an op whose size is always the same, such as one on scalars
        return BytePrice(small, np.zeros(len(small)), np.zeros(len(small)), added.on_host)
    low, high = sizes
    # Measured times vary: neither the time by bytes nor that of 0 bytes is below 0.
    slope = np.clip((large[1] - large[0]) / (high - low), 0, large[1] / high)
    return BytePrice(small, np.maximum(0, large[1] - slope * high), slope, added.on_host)


def _proportional(added: Added, times_of: TimesOf, fallback: BytePrice) -> BytePrice:
    """Return a price from one sample.

    If the sample takes longer than a kernel launch, an op takes a time in proportion to its bytes,
    and at least that of a launch. If the sample takes as long as a launch, the fallback's time by
    bytes counts; if it takes less, it launches no kernel, and so do ops of other sizes.
    """
    (time_us,), size = times_of(added.samples), max(added.samples[0].num_bytes, 1)
    by_bytes = np.where(time_us > fallback.min_us, time_us / size, fallback.us_per_byte)
    by_bytes = np.where(time_us < fallback.min_us, 0.0, by_bytes)
    least_us = np.minimum(time_us, fallback.min_us)
    return BytePrice(least_us, np.zeros(len(least_us)), by_bytes, added.on_host)
