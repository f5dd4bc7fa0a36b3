"""Builders of the papers' models as v1 training graphs.

A builder adds a complete training step (forward pass, loss, gradients, optimiser) to the default
graph and returns `{"train_op": operation, "loss": scalar tensor}`. It runs nothing, so a model of
any size can be built on any machine. To add a model family, write a builder and add an entry to
FAMILIES; the builder's int and float parameters are the arguments that a name may contain.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from pesto_cli.errors import BadInputError, with_words
from pesto_cli.printable import printable
from pesto_cli.zoo.alexnet import alexnet
from pesto_cli.zoo.bert import bert
from pesto_cli.zoo.cifar import cifar
from pesto_cli.zoo.gpt import gpt
from pesto_cli.zoo.inception import inception
from pesto_cli.zoo.lenet import lenet
from pesto_cli.zoo.mobilenet import mobilenet
from pesto_cli.zoo.names import Family
from pesto_cli.zoo.nasnet import nasnet
from pesto_cli.zoo.nmt import nmt
from pesto_cli.zoo.resnet import resnet
from pesto_cli.zoo.rnnlm import rnnlm
from pesto_cli.zoo.transformer import transformer
from pesto_cli.zoo.vgg import vgg
from pesto_cli.zoo.xlnet import xlnet

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
    "VGG-19": Family(
        vgg,
        (),
        {
            "convolutions": (1, 2),
            "filters": 4,
            "units": 16,
            "batch": 4,
            "size": 8,
            "classes": 20,
            "learning_rate": 1e-4,
        },
        {"convolutions": (2, 2, 4, 4, 4)},
    ),
    "ResNet-200": Family(
        resnet,
        (),
        {"units": (2, 2), "filters": 4, "batch": 4, "size": 32, "classes": 20},
        {"units": (3, 24, 36, 3)},
    ),
    "Inception-v3": Family(inception, (), {"filters": 2, "batch": 4, "size": 75, "classes": 20}),
    "MobileNet-v2": Family(mobilenet, (), {"filters": 4, "batch": 4, "size": 32, "classes": 20}),
    "LeNet": Family(lenet, (), {"batch": 4, "size": 16, "classes": 20}),
    "AlexNet": Family(
        alexnet,
        (),
        {
            "filters": 8,
            "units": 16,
            "batch": 4,
            "size": 63,
            "classes": 20,
            "learning_rate": 1e-4,
        },
    ),
    "GNMT": Family(
        nmt,
        ("layers",),
        {
            "layers": 2,
            "hidden": 8,
            "batch": 4,
            "source_length": 3,
            "target_length": 3,
            "vocabulary": 20,
        },
        fixed={"hidden": 1024},
    ),
    "CIFAR-10": Family(
        cifar,
        (),
        {
            "filters": 4,
            "units": 8,
            "batch": 4,
            "size": 8,
            "classes": 20,
            "learning_rate": 1e-3,
        },
    ),
    "BERT-large": Family(
        bert,
        (),
        {
            "layers": 1,
            "heads": 2,
            "hidden": 8,
            "inner": 16,
            "batch": 2,
            "length": 20,
            "predictions": 3,
            "positions": 24,
            "vocabulary": 20,
        },
        fixed={"layers": 24, "heads": 16, "hidden": 1024},
    ),
    "XLNet-large": Family(
        xlnet,
        (),
        {
            "layers": 2,
            "heads": 2,
            "hidden": 8,
            "inner": 16,
            "batch": 2,
            "length": 6,
            "predictions": 3,
            "vocabulary": 20,
        },
        fixed={"layers": 24, "heads": 16, "hidden": 1024},
    ),
    "GPT-1.3B": Family(
        gpt,
        (),
        {
            "layers": 1,
            "heads": 2,
            "hidden": 8,
            "inner": 16,
            "batch": 2,
            "length": 4,
            "positions": 6,
            "vocabulary": 20,
        },
        fixed={"layers": 24, "heads": 16, "hidden": 2048},
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

OTHER_MODELS = (
    "VGG-19",
    "ResNet-200",
    "Inception-v3",
    "MobileNet-v2",
    "LeNet",
    "AlexNet",
    "GNMT-4",
    "BERT-large",
    "XLNet-large",
    "GPT-1.3B",
    "CIFAR-10",
)
"""The models of FastT, section 6.2, HeteroG, section 6.1, and Spotlight, section 5.1, that are not
in Pesto; and a GPT."""

MODELS = (*PAPER_MODELS, *OTHER_MODELS, *(f"{name}-tiny" for name in FAMILIES))


def build(name: str) -> dict[str, Any]:
    """Add the model `name` (upper or lower case) to the default graph; return train op and loss.

    `name` is one of `MODELS`, or a family with other sizes: `Transformer-153-8-512`. It may be
    followed by arguments of the builder: `Transformer-6-8-1024@batch=720,length=64`. Raises
    BadInputError when the zoo has no model of this name, the builder no such argument, or
    TensorFlow no tensors of such sizes.
    """
    builder, arguments = _known(name)
    try:
        return builder(**arguments)
    except ValueError as error:
        text = f"zoo model {name!r}: TensorFlow cannot build it; choose other sizes. {error}"
        raise with_words(BadInputError, printable(text)) from error


def check_name(name: str) -> None:
    """Raise BadInputError when the zoo has no model `name`."""
    _known(name)


def argument_keys(name: str) -> Iterator[str]:
    """Yield the keys of further arguments that may follow a name; none if it is not a model's."""
    model, at, _ = name.partition("@")
    for known, family in FAMILIES.items():
        if family.arguments(known, model) is not None:
            for key in family.kinds():
                with suppress(BadInputError):
                    check_name(f"{name}{',' if at else '@'}{key}=1")
                    yield key


def _known(name: str) -> tuple[Callable[..., dict[str, Any]], Mapping[str, Any]]:
    """Return the builder of a model, and its arguments; raise BadInputError if there is none."""
    for known, family in FAMILIES.items():
        arguments = family.arguments(known, name)
        if arguments is not None:
            return family.builder, arguments
    patterns = (family.pattern(known) for known, family in FAMILIES.items() if family.sizes)
    raise BadInputError(
        f"zoo model {name!r}: not in the zoo. Choose one of: {', '.join(MODELS)}; or a name with "
        f"other sizes, whole numbers above 0: {', '.join(patterns)}. Arguments may follow, as in "
        f"{PAPER_MODELS[0]}@batch=64."
    )
