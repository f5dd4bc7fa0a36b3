"""What can be split in known models: `python -m benchmarks.coverage [MODEL]...`.

The models are those of the zoo, Keras applications, unrolled LSTM and GRU, and Transformers in the
style of BERT and GPT-2 with dropout. Each row of the table of docs/splitting.md has shares of the
work of a training step: what has no rule, what stays whole for other reasons, with the op types
that have the most of it, and what a data-parallel plan splits.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from benchmarks import keras_models
from pesto_cli import api as pesto
from pesto_cli.data.coverage import Coverage, Reason
from pesto_cli.data.plan import Plan
from pesto_cli.files import Profile

MACHINE, NUM_PARTS = "v100x2-nvlink", 2
ZOO = ("RNNLM-2-2048", "NMT-2-1024", "Transformer-10-8-1024", "NASNet-4-212")
APPLICATIONS = (*keras_models.MODELS, "ConvNeXtTiny")
MOST_TYPES, LEAST_SHARE = 3, 5e-4
Exported = tuple[Any, Any]


def recurrent(layer: str, *, length: int = 20, width: int = 512, batch: int = 32) -> Exported:
    """Return two unrolled layers of keras that predict the next word, and the specs of `fit`."""
    import keras
    from keras import layers

    model = keras.Sequential(
        [
            keras.Input((length,), dtype="int32"),
            layers.Embedding(10_000, width),
            layers.Dropout(0.2),
            getattr(layers, layer)(width, unroll=True, return_sequences=True),
            getattr(layers, layer)(width, unroll=True, return_sequences=True),
            layers.Dense(10_000),
        ]
    )
    return _language_model(model, batch, length)


def transformer(
    *, causal: bool, num_layers: int = 12, width: int = 768, length: int = 128, batch: int = 32
) -> Exported:
    """Return a Transformer with the sizes of BERT-Base and GPT-2, and the specs of `fit`.

    causal: whether words see only those before them, and layers are normalised first, as in GPT-2.
    """
    import keras
    from keras import layers

    words = keras.Input((length,), dtype="int32")
    places = keras.ops.arange(length)
    x = layers.Embedding(30_522, width)(words) + layers.Embedding(length, width)(places)
    x = layers.Dropout(0.1)(x if causal else layers.LayerNormalization()(x))
    for _ in range(num_layers):
        attention = layers.MultiHeadAttention(12, width // 12, dropout=0.1)
        before, between = layers.LayerNormalization(), layers.LayerNormalization()
        inner, outer = layers.Dense(4 * width, "gelu"), layers.Dense(width)
        dropouts = layers.Dropout(0.1), layers.Dropout(0.1)
        if causal:
            y = before(x)
            x = x + dropouts[0](attention(y, y, use_causal_mask=True))
            x = x + dropouts[1](outer(inner(between(x))))
        else:
            x = before(x + dropouts[0](attention(x, x)))
            x = between(x + dropouts[1](outer(inner(x))))
    x = layers.LayerNormalization()(x) if causal else x
    return _language_model(keras.Model(words, layers.Dense(30_522)(x)), batch, length)


def _language_model(model: Any, batch: int, length: int) -> Exported:
    import keras
    import tensorflow as tf

    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, jit_compile=False)
    words = tf.TensorSpec((batch, length), tf.int32)
    return model, (words, words)


BUILDERS: Mapping[str, Callable[[], Exported]] = {
    **{name: partial(keras_models.build, name) for name in APPLICATIONS},
    "LSTM": partial(recurrent, "LSTM"),
    "GRU": partial(recurrent, "GRU"),
    "BERT": partial(transformer, causal=False),
    "GPT": partial(transformer, causal=True),
}


def __getattr__(name: str) -> Callable[[], Exported]:
    """Return the builder of a model by its name, for `pesto export FILE:NAME`."""
    if name in BUILDERS:
        return BUILDERS[name]
    raise AttributeError(name)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=[*ZOO, *BUILDERS], metavar="MODEL")
    print("| model | ops | no rule | whole for other reasons | split by `data-parallel` |")
    print("|---|--:|--:|---|--:|")
    for model in parser.parse_args(arguments).models:
        source = f"{__file__}:{model}" if model in BUILDERS else f"zoo:{model}"
        profile = pesto.profile(pesto.export(source), MACHINE, parts=[NUM_PARTS])
        plan = pesto.plan(pesto.solve(profile, "data-parallel"))
        print(row(model, pesto.coverage(profile), split_share(profile, plan)), flush=True)


def split_share(profile: Profile, plan: Plan) -> float:
    """Return the share of the work of the ops that a plan splits."""
    is_split = np.isin(profile.problem.graph.names, [*plan.choices])
    work_us = profile.problem.min_duration_us
    return float(work_us[is_split].sum() / work_us.sum())


def row(model: str, coverage: Coverage, split: float) -> str:
    """Return a row of the table, with shares of the work."""
    without = [each for each in coverage.rows if each.reason is Reason.NO_RULE]
    others = [each for each in coverage.rows if each.reason is not Reason.NO_RULE]
    most = [each for each in others if each.share >= LEAST_SHARE][:MOST_TYPES]
    named = ", ".join(f"`{each.type}` {each.share:.1%}" for each in most)
    no_rule, whole = (f"{sum(each.share for each in some):.1%}" for some in (without, others))
    whole += f" ({named})" if named else ""
    return f"| {model} | {coverage.num_ops:,} | {no_rule} | {whole} | {split:.1%} |"


if __name__ == "__main__":
    main()
