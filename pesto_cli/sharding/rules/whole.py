"""Ops that stay whole: each element of their outputs depends on all elements of their inputs.

Those without a state may still be replicated.
"""

from pesto_cli.sharding.alternative import Rule
from pesto_cli.sharding.rules.constants import stays_whole

_TYPES = """
    Assert Bincount CTCGreedyDecoder CTCLoss CTCLossV2 DenseBincount
    DynamicPartition DynamicStitch FractionalAvgPool FractionalMaxPool ListDiff
    LogUniformCandidateSampler MaxPoolGradWithArgmax MaxPoolWithArgmax NoOp NonMaxSuppressionV3
    ParallelDynamicStitch Unique UniqueV2 UniqueWithCounts Where
"""


RULES: dict[str, Rule] = dict.fromkeys(_TYPES.split(), stays_whole)
