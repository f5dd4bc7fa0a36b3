"""The prices of ops that a rewriting adds: conversions, sums, and other ops of programs."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from pesto_cli.data.graph import FloatArray
from pesto_cli.data.parts import BytePrice
from pesto_cli.data.specs import OpSpec
from pesto_cli.profile.parts.samples import BOOLEAN, CONVERSIONS, samples
from pesto_cli.profile.parts.sites import LooseSites

Key = tuple[str, str]
"""(op type, data type)"""
TimeOf = Callable[[OpSpec], FloatArray]
"""Returns the time of a spec in us, `[num_kinds]`; NaN where it was not estimated."""
FALLBACK = ("AddV2", "float32")


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


def added_types(dtypes: Collection[str], examples: Mapping[Key, OpSpec]) -> dict[Key, Added]:
    """Return the op types that a rewriting may add and that have a kernel.

    dtypes: the data types of the tensors of the step. examples: ops of programs.
    """
    sites, found = LooseSites(), {}
    for op_type, dtype in dict.fromkeys((*_conversions(dtypes), FALLBACK, *examples)):
        example = examples.get((op_type, dtype))
        located = [sites.located(spec) for spec in samples(op_type, dtype, example)]
        if located and located[0][1]:
            found[op_type, dtype] = Added(tuple(spec for spec, _ in located), located[0][1])
    return found


def _conversions(dtypes: Collection[str]) -> Iterator[Key]:
    for op_type in CONVERSIONS:
        if op_type == "NoOp":
            yield op_type, ""
        elif op_type in BOOLEAN:
            yield op_type, "bool"
        else:
            yield from ((op_type, dtype) for dtype in sorted(dtypes))


def byte_prices(added: Mapping[Key, Added], time_of: TimeOf) -> dict[Key, BytePrice]:
    """Return the price of each op type; `time_of` gives the times of its samples."""
    fallback = _fitted(added[FALLBACK], time_of)
    return {
        key: _fitted(each, time_of)
        if len(each.samples) != 1 or not each.samples[0].outputs
        else _through(each, time_of, fallback)
        for key, each in added.items()
    }


def _fitted(added: Added, time_of: TimeOf) -> BytePrice:
    """Return the line through the large samples, with the time of the small one as the least."""
    small, *large = (time_of(spec) for spec in added.samples)
    if not large:
        return BytePrice(small, np.zeros(len(small)), np.zeros(len(small)), added.on_host)
    low, high = (spec.num_bytes for spec in added.samples[1:])
    slope = (large[1] - large[0]) / (high - low)
    return BytePrice(small, large[0] - slope * low, slope, added.on_host)


def _through(added: Added, time_of: TimeOf, fallback: BytePrice) -> BytePrice:
    """Return the fallback's line, moved so that it goes through the only sample."""
    time_us, size = time_of(added.samples[0]), added.samples[0].num_bytes
    least = np.where(np.isnan(time_us), np.nan, fallback.min_us)
    return BytePrice(
        least, time_us - fallback.us_per_byte * size, fallback.us_per_byte, added.on_host
    )
