"""Random ops.

An op with a state draws other numbers at each step, so it stays whole and its output is split.
With a fixed seed, equal ops draw equal numbers at equal steps, so it may be replicated: each copy
draws the whole tensor. This holds on devices of one kind, and as long as all copies run at the
same steps. An op without a state draws what its seed says, and is replicated like any other.
"""

from collections.abc import Iterator

from pesto_cli.data.specs import OpSpec
from pesto_cli.sharding.alternative import Alternative, Rule
from pesto_cli.sharding.layouts import REPLICATED, WHOLE
from pesto_cli.sharding.rules.constants import stays_whole

_STATEFUL = "RandomUniform RandomUniformInt RandomStandardNormal TruncatedNormal"
_STATELESS = """
    StatelessMultinomial StatelessRandomGetAlg StatelessRandomGetKeyCounter
    StatelessRandomNormal StatelessRandomNormalV2 StatelessRandomUniform StatelessRandomUniformV2
    StatelessRandomUniformFullInt StatelessRandomUniformFullIntV2 StatelessRandomUniformInt
    StatelessRandomUniformIntV2 StatelessTruncatedNormal StatelessTruncatedNormalV2
"""


def drawn(spec: OpSpec) -> Iterator[Alternative]:
    """Factors: none. Replicated if one of the seeds is not 0."""
    if spec.attribute.get("seed") or spec.attribute.get("seed2"):
        whole = (WHOLE,) * len(spec.inputs)
        yield Alternative("replicated", None, whole, (REPLICATED,))


RULES: dict[str, Rule] = {
    **dict.fromkeys(_STATEFUL.split(), drawn),
    **dict.fromkeys(_STATELESS.split(), stays_whole),
}
