"""The models of the papers, as builders of v1 training graphs.

A builder adds a complete training step (forward pass, loss, gradients, optimiser) to the default
graph and returns `{"train_op": operation, "loss": scalar tensor}`. Nothing is run, so that a model
of any size can be built on any machine. To add a model: one builder and one line here.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from pesto_cli.errors import BadInputError
from pesto_cli.zoo.nasnet import nasnet
from pesto_cli.zoo.nmt import nmt
from pesto_cli.zoo.rnnlm import rnnlm
from pesto_cli.zoo.transformer import transformer

ModelBuilder = Callable[[], dict[str, Any]]

MODELS: dict[str, ModelBuilder] = {
    # Pesto, section 5.2: layers-hidden.
    "RNNLM-2-2048": partial(rnnlm, layers=2, hidden=2048),
    "RNNLM-4-2048": partial(rnnlm, layers=4, hidden=2048),
    "RNNLM-16-1024": partial(rnnlm, layers=16, hidden=1024),
    "RNNLM-tiny": partial(rnnlm, layers=2, hidden=8, batch=4, steps=3, vocabulary=20),
    # Pesto, section 5.2: layers-hidden.
    "NMT-2-1024": partial(nmt, layers=2, hidden=1024),
    "NMT-4-1024": partial(nmt, layers=4, hidden=1024),
    "NMT-tiny": partial(
        nmt,
        layers=3,
        hidden=8,
        batch=4,
        source_length=3,
        target_length=3,
        vocabulary=20,
    ),
    # Pesto, section 5.2: layers-heads-hidden.
    "Transformer-10-8-1024": partial(transformer, layers=10, heads=8, hidden=1024),
    "Transformer-12-8-1024": partial(transformer, layers=12, heads=8, hidden=1024),
    "Transformer-6-16-2048": partial(transformer, layers=6, heads=16, hidden=2048),
    "Transformer-tiny": partial(
        transformer, layers=1, heads=2, hidden=8, inner=16, batch=2, length=4, vocabulary=20
    ),
    # Pesto, section 5.2: cells-filters.
    "NASNet-4-212": partial(nasnet, cells=4, filters=212),
    "NASNet-6-148": partial(nasnet, cells=6, filters=148),
    "NASNet-6-168": partial(nasnet, cells=6, filters=168),
    "NASNet-tiny": partial(
        nasnet, cells=1, filters=8, stacks=1, batch=4, size=32, stem_filters=4, classes=20
    ),
}


def build(name: str) -> dict[str, Any]:
    """Add model `name` (any case) to the default graph; return its train op and loss.

    Raises BadInputError when the zoo has no such model.
    """
    builders = {known.lower(): builder for known, builder in MODELS.items()}
    builder = builders.get(name.lower())
    if builder is None:
        raise BadInputError(
            f"zoo model {name!r}: not in the zoo. Choose one of: {', '.join(MODELS)}."
        )
    return builder()
