"""Builders of the papers' models as v1 training graphs.

A builder adds a complete training step (forward pass, loss, gradients, optimiser) to the default
graph and returns `{"train_op": operation, "loss": scalar tensor}`. It runs nothing, so a model of
any size can be built on any machine. To add a model family, write a builder and add an entry to
FAMILIES.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pesto_cli.errors import BadInputError
from pesto_cli.zoo.nasnet import nasnet
from pesto_cli.zoo.nmt import nmt
from pesto_cli.zoo.rnnlm import rnnlm
from pesto_cli.zoo.transformer import transformer


@dataclass(frozen=True)
class Family:
    """The models of one builder, named after their sizes: `Transformer-6-16-2048`.

    sizes: the builder's parameters in the order in which they occur in the name, which is that of
        Pesto, section 5.2.
    tiny: the builder's arguments for the tiny model, which is for tests.
    """

    builder: Callable[..., dict[str, Any]]
    sizes: tuple[str, ...]
    tiny: Mapping[str, int]

    def pattern(self, name: str) -> str:
        """Return the pattern of the names of models: `RNNLM-LAYERS-HIDDEN`."""
        return "-".join([name, *map(str.upper, self.sizes)])


FAMILIES: Mapping[str, Family] = {
    "RNNLM": Family(
        rnnlm,
        ("layers", "hidden"),
        {"layers": 2, "hidden": 8, "batch": 4, "steps": 3, "vocabulary": 20},
    ),
    "NMT": Family(
        nmt,
        ("layers", "hidden"),
        {
            "layers": 3,
            "hidden": 8,
            "batch": 4,
            "source_length": 3,
            "target_length": 3,
            "vocabulary": 20,
        },
    ),
    "Transformer": Family(
        transformer,
        ("layers", "heads", "hidden"),
        {
            "layers": 1,
            "heads": 2,
            "hidden": 8,
            "inner": 16,
            "batch": 2,
            "length": 4,
            "vocabulary": 20,
        },
    ),
    "NASNet": Family(
        nasnet,
        ("cells", "filters"),
        {
            "cells": 1,
            "filters": 8,
            "stacks": 1,
            "batch": 4,
            "size": 32,
            "stem_filters": 4,
            "classes": 20,
        },
    ),
}

PAPER_MODELS = (
    "RNNLM-2-2048",
    "RNNLM-4-2048",
    "RNNLM-16-1024",
    "NMT-2-1024",
    "NMT-4-1024",
    "Transformer-10-8-1024",
    "Transformer-12-8-1024",
    "Transformer-6-16-2048",
    "NASNet-4-212",
    "NASNet-6-148",
    "NASNet-6-168",
)
"""The models of Pesto, section 5.2."""

MODELS = (*PAPER_MODELS, *(f"{name}-tiny" for name in FAMILIES))


def build(name: str) -> dict[str, Any]:
    """Add the model `name` (upper or lower case) to the default graph; return train op and loss.

    `name` is one of `MODELS`, or a family with other sizes: `Transformer-153-8-512`. Raises
    BadInputError when the zoo has no model of this name.
    """
    builder, arguments = _known(name)
    return builder(**arguments)


def check_name(name: str) -> None:
    """Raise BadInputError when the zoo has no model `name`."""
    _known(name)


def _known(name: str) -> tuple[Callable[..., dict[str, Any]], Mapping[str, int]]:
    """Return the builder of a model, and its arguments; raise BadInputError if there is none."""
    families = {known.lower(): family for known, family in FAMILIES.items()}
    kind, _, rest = name.lower().partition("-")
    family = families.get(kind)
    if family is not None:
        if rest == "tiny":
            return family.builder, family.tiny
        numbers = rest.split("-")
        is_size = re.compile(r"[1-9][0-9]*").fullmatch
        if len(numbers) == len(family.sizes) and all(map(is_size, numbers)):
            return family.builder, dict(zip(family.sizes, map(int, numbers), strict=True))
    patterns = (family.pattern(known) for known, family in FAMILIES.items())
    raise BadInputError(
        f"zoo model {name!r}: not in the zoo. Choose one of: {', '.join(MODELS)}; or a name with "
        f"other sizes, whole numbers above 0: {', '.join(patterns)}."
    )
