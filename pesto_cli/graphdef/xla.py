"""Find what a program compiles by XLA, and warn of it.

If XLA would compile the whole step, the step is exported as it runs without XLA. A call of a
function that XLA compiles stays one op: it is not inlined, and the ops inside it are not placed.
"""

from collections.abc import Sequence
from typing import Any

from pesto_cli.graphdef.keras_devices import DeviceChoices
from pesto_cli.printable import logger

MUST_COMPILE = "_XlaMustCompile"
"""Attribute of a function with `jit_compile=True`, and of the nodes that call it."""

log = logger(__name__)


def compiled_function(concrete: Any) -> str | None:
    """Return a remark on a concrete function if XLA would compile it, else None."""
    if not concrete.function_def.attr[MUST_COMPILE].b:
        return None
    return (
        "the tf.function has jit_compile=True. It is exported as it runs without XLA, because XLA"
        " would turn it into one op. Leave jit_compile out to train as exported."
    )


def compiled_model(model: Any, choices: DeviceChoices) -> str | None:
    """Return a remark on a Keras model if `fit` would compile its step by XLA, else None.

    With `jit_compile="auto"`, the default, Keras compiles the step on a machine with a GPU, unless
    the model has layers that XLA cannot compile, such as those that call cuDNN.
    """
    layers = model._flatten_layers()
    if any(model is one for one in choices.compiled):
        compiles = not choices.recurrent and all(layer.supports_jit for layer in layers)
        how = "jit_compile='auto', the default, with a GPU"
    else:
        compiles, how = model.jit_compile, "jit_compile=True"
    if not compiles:
        return None
    return (
        f"fit compiles the model {model.name!r} by XLA ({how}). It is exported as it runs without"
        " XLA. Compile it with jit_compile=False to train as exported."
    )


def warn_of_compiled_calls(step: Sequence[Any], what: str) -> None:
    """Log a warning for calls in a step that stay one op each because XLA compiles them.

    step: the NodeDefs of the step.
    """
    names = [node.name for node in step if MUST_COMPILE in node.attr and node.attr[MUST_COMPILE].b]
    if names:
        log.warning(
            "%s: %d calls of functions with jit_compile=True stay one op each, such as %r, because"
            " XLA compiles each as a whole. Leave jit_compile out to have their ops placed.",
            what,
            len(names),
            names[0],
        )
