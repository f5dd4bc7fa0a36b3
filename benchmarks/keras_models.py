"""Gaps on models that are not the zoo's: `python -m benchmarks.keras_models [MODEL]...`.

The models are Keras applications with images of 224 x 224, batches of 32 and Adam, on
`v100x2-nvlink`. Each is placed by all strategies, for a table of docs/results.md. Profiles are
cached in the folder of `--profiles`.
"""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.quality import profile_of
from pesto_cli import api as pesto
from pesto_cli.data.result import Comparison, Result

MODELS = ("ResNet50", "InceptionV3", "MobileNetV3Large", "EfficientNetB0", "DenseNet121", "VGG19")
SIZE, BATCH = 224, 32


def build(name: str) -> tuple[Any, Any]:
    """Return a compiled model, and the specifications of the inputs of `fit`."""
    import keras
    import tensorflow as tf

    model = getattr(keras.applications, name)(weights=None, input_shape=(SIZE, SIZE, 3))
    model.compile("adam", "sparse_categorical_crossentropy", jit_compile=False)
    images = tf.TensorSpec((BATCH, SIZE, SIZE, 3), tf.float32)
    return model, (images, tf.TensorSpec((BATCH,), tf.int32))


def __getattr__(name: str) -> Any:
    """Return the builder of a model by its name, for `pesto export FILE:NAME`."""
    if name in MODELS:
        return lambda: build(name)
    raise AttributeError(name)


def main(arguments: Sequence[str] | None = None) -> None:
    """Place the models, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=MODELS, metavar="MODEL")
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("--profiles", type=Path, default=Path("build/profiles"))
    options = parser.parse_args(arguments)
    limits = pesto.Limits(time_limit_s=options.time_limit, workers=os.cpu_count() or 1)
    print("| model | ops | bound | single | expert | best other | pesto | gap |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|")
    for model in options.models:
        profile = profile_of(options.profiles, model, f"{__file__}:{model}")
        results = pesto.compare(profile, context=pesto.Context(limits))
        print(row(model, profile.problem.num_ops, results), flush=True)


def row(model: str, num_ops: int, results: Comparison) -> str:
    """Return a row of the table, with times in ms."""
    of: dict[str, Result] = {result.strategy: result for result in results}
    ours = of.pop("pesto")
    best = min(of.values(), key=lambda result: result.makespan_us)
    cells = (
        f"{ours.lower_bound_us / 1e3:.1f}",
        *(f"{of[name].makespan_us / 1e3:.1f}" for name in ("single", "expert")),
        f"{best.makespan_us / 1e3:.1f} ({best.strategy})",
        f"{ours.makespan_us / 1e3:.1f}",
        f"{ours.gap:.1%}",
    )
    return f"| {model} | {num_ops:,} | {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
