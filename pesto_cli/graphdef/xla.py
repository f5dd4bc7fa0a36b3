"""What a program compiles by XLA: a call that XLA compiles is one op, and nothing in it is placed.

The step itself is exported as it runs without XLA. A function that it calls is not inlined.
"""

from collections.abc import Sequence
from typing import Any

from pesto_cli.graphdef.keras_devices import Asked
from pesto_cli.printable import logger

MUST_COMPILE = "_XlaMustCompile"
"""Attribute of a function with `jit_compile=True`, and of the nodes that call it."""

log = logger(__name__)


def compiled_function(concrete: Any) -> str | None:
    """Return a remark on a concrete function that XLA would compile."""
    if not concrete.function_def.attr[MUST_COMPILE].b:
        return None
    return (
        "the tf.function has jit_compile=True; it is exported as it runs without XLA, which would"
        " make it one op. Leave jit_compile out to train as exported."
    )


def compiled_model(model: Any, asked: Asked) -> str | None:
    """Return a remark on a Keras model whose `fit` compiles the step, on a GPU if not everywhere.

    By default (`jit_compile="auto"`), it does so with a GPU, unless the model holds layers that XLA
    cannot compile, such as those that call cuDNN.
    """
    layers = model._flatten_layers()
    if any(model is one for one in asked.compiled):
        compiles = not asked.recurrent and all(layer.supports_jit for layer in layers)
        how = "jit_compile='auto', the default, with a GPU"
    else:
        compiles, how = model.jit_compile, "jit_compile=True"
    if not compiles:
        return None
    return (
        f"fit compiles the model {model.name!r} by XLA ({how}); it is exported as it runs without."
        " Compile it with jit_compile=False to train as exported."
    )


def tell_compiled_calls(step: Sequence[Any], what: str) -> None:
    """Warn of calls among the NodeDefs of a step that stay one op each, as XLA compiles them."""
    names = [node.name for node in step if MUST_COMPILE in node.attr and node.attr[MUST_COMPILE].b]
    if names:
        log.warning(
            "%s: %d calls of functions with jit_compile=True stay one op each, such as %r, as XLA"
            " compiles them whole. Leave jit_compile out to have their ops placed.",
            what,
            len(names),
            names[0],
        )
