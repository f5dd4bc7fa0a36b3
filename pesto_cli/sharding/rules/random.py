"""Random ops.

An op with a state draws other numbers at each step, so it stays whole and its output is split.
With a fixed seed, equal ops draw equal numbers at equal steps, so it may be replicated: each copy
draws the whole tensor. This holds on devices of one kind, and as long as all copies run at the
same steps. An op without a state draws what its seed says, and is replicated like any other. If the
user allows other numbers (`--random local`), its parts draw with seeds of their own.
"""

from collections.abc import Iterator

from pesto_cli.data.plan import LOCAL, REPLICATED_NAME, Local
from pesto_cli.data.specs import OpSpec
from pesto_cli.sharding.alternative import Alternative, Program, Rule, part_spec
from pesto_cli.sharding.layouts import REPLICATED, WHOLE, Split
from pesto_cli.sharding.program_builder import ProgramBuilder, constant, taken
from pesto_cli.sharding.rules.constants import stays_whole

_STATEFUL = "RandomUniform RandomUniformInt RandomStandardNormal TruncatedNormal"
_SHAPED = """
    StatelessRandomNormal StatelessRandomNormalV2 StatelessRandomUniform StatelessRandomUniformV2
    StatelessRandomUniformFullInt StatelessRandomUniformFullIntV2 StatelessRandomUniformInt
    StatelessRandomUniformIntV2 StatelessTruncatedNormal StatelessTruncatedNormalV2
"""
_STATELESS = "StatelessMultinomial StatelessRandomGetAlg StatelessRandomGetKeyCounter"


def drawn_without_state(spec: OpSpec) -> Iterator[Alternative]:
    """Factors: the axes of the output, if parts may draw other numbers; else replicated."""
    seed = 1
    if len(spec.inputs) < 2 or spec.inputs[0].value is None or spec.inputs[seed].dtype is None:
        return
    for axis, size in enumerate(spec.outputs[0].sizes):
        yield Alternative(
            f"axis {axis}{LOCAL}",
            size,
            (WHOLE,) * len(spec.inputs),
            (Split(axis),),
            resized=((0, axis),),
            program=_with_own_seeds,
            local=Local.RANDOM,
        )


def _with_own_seeds(spec: OpSpec, alternative: Alternative, sizes: tuple[int, ...]) -> Program:
    """Return a program in which part i draws with the seed or the key of the op plus i."""
    build, found = ProgramBuilder(), []
    for part, size in enumerate(sizes):
        own = part_spec(spec, alternative, size)
        shape, seed, *others = (taken(own, slot) for slot in range(len(own.inputs)))
        if part:
            step = constant(part, seed.operand.dtype)
            seed = build.elementwise("own_seed", "AddV2", seed, step, part=part)
        found.append(build.add("", own, (shape, seed, *others), part)[0])
    return build.program([found])


def drawn(spec: OpSpec) -> Iterator[Alternative]:
    """Factors: none. Replicated if one of the seeds is not 0."""
    if spec.attribute.get("seed") or spec.attribute.get("seed2"):
        whole = (WHOLE,) * len(spec.inputs)
        yield Alternative(REPLICATED_NAME, None, whole, (REPLICATED,))


RULES: dict[str, Rule] = {
    **dict.fromkeys(_STATEFUL.split(), drawn),
    **dict.fromkeys(_SHAPED.split(), drawn_without_state),
    **dict.fromkeys(_STATELESS.split(), stays_whole),
}
