"""Sums, means and extrema over segments, which are rows with equal ids.

Factors: the axes of the features, which rows and segments share; and the rows themselves if ids
need not be sorted: each part has all segments, and results are partial. Ops that count the segments
themselves, such as SegmentSum, have outputs of unknown size, and stay whole.
"""

from collections.abc import Iterator

from pesto_cli.data.specs import OpSpec
from pesto_cli.sharding.alternative import Alternative, Rule
from pesto_cli.sharding.layouts import WHOLE, Layout, Partial, Reduction, Split

_BY_IDS = """
    SparseSegmentMeanGrad SparseSegmentMeanWithNumSegments SparseSegmentSqrtNGrad
    SparseSegmentSqrtNWithNumSegments SparseSegmentSumGrad SparseSegmentSumWithNumSegments
"""
_UNSORTED = {
    "UnsortedSegmentMax": Reduction.MAX,
    "UnsortedSegmentMin": Reduction.MIN,
    "UnsortedSegmentProd": None,
    "UnsortedSegmentSum": Reduction.SUM,
}


def by_ids(spec: OpSpec) -> Iterator[Alternative]:
    """Inputs: data, ids. Factors: the axes of the features."""
    yield from _features(spec, rank_of_ids=1)


def unsorted(spec: OpSpec) -> Iterator[Alternative]:
    """Inputs: data, ids, number of segments. Factors: the axes of the features and of the ids."""
    _, ids, _ = spec.inputs
    yield from _features(spec, rank_of_ids=len(ids.sizes))
    reduction = _UNSORTED[spec.type]
    if reduction is not None:
        for axis, size in enumerate(ids.sizes):
            rows = Split(axis)
            yield Alternative(f"rows {axis}", size, (rows, rows, WHOLE), (Partial(reduction),))


def _features(spec: OpSpec, rank_of_ids: int) -> Iterator[Alternative]:
    data, *others = spec.inputs
    for axis in range(rank_of_ids, len(data.sizes)):
        inputs: tuple[Layout, ...] = (Split(axis), *(WHOLE for _ in others))
        output = Split(axis - rank_of_ids + 1)
        yield Alternative(f"feature {output.axis}", data.sizes[axis], inputs, (output,))


RULES: dict[str, Rule] = {
    **dict.fromkeys(_BY_IDS.split(), by_ids),
    **dict.fromkeys(_UNSORTED, unsorted),
}
