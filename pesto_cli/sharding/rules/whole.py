"""Ops that stay whole by rule, because their outputs depend on all of their inputs.

Ops without a state among them may still be replicated.
"""

from collections.abc import Iterator

from pesto_cli.data.specs import OpSpec
from pesto_cli.sharding.alternative import Alternative, Rule

_TYPES = """
    Assert Bincount CTCGreedyDecoder CTCLoss CTCLossV2 DenseBincount
    DynamicPartition DynamicStitch FractionalAvgPool FractionalMaxPool ListDiff
    LogUniformCandidateSampler MaxPoolGradWithArgmax MaxPoolWithArgmax NonMaxSuppressionV3
    ParallelDynamicStitch Qr Roll SelfAdjointEigV2 Svd Unique UniqueV2 UniqueWithCounts Where
"""


def whole(spec: OpSpec) -> Iterator[Alternative]:
    """Factors: none."""
    return iter(())


RULES: dict[str, Rule] = dict.fromkeys(_TYPES.split(), whole)
