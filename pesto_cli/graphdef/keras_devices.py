"""Keras sees a machine without GPUs while a step is exported, whatever machine exports it.

Keras builds other graphs where there is a GPU: LSTM and GRU call cuDNN in place of a loop, and
depthwise and separable convolutions keep `channels_first` in place of transposing. The graphs for
machines without a GPU are the ones that every device can run, so these are exported.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from pesto_cli.graphdef.programs.replaced import replaced
from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.printable import logger

CONVOLUTIONS = "keras.src.backend.tensorflow.nn"
RECURRENT = "keras.src.backend.tensorflow.rnn"
TRAINERS = "keras.src.trainers.trainer"

log = logger(__name__)


@dataclass
class Asked:
    """For what Keras has asked which devices there are, while a step was built and traced.

    recurrent: how to build an LSTM or GRU that cuDNN could run.
    convolutions: how to build a convolution with `channels_first`.
    compiled: for which models `compile(jit_compile="auto")` means XLA, as it does with a GPU.
    """

    recurrent: bool = False
    convolutions: bool = False
    compiled: list[Any] = field(default_factory=list)


@contextmanager
def keras_without_gpus() -> Iterator[Asked]:
    """Have Keras build the graphs of a machine without GPUs; what it asked for is told at the end.

    Other callers get the true answer: the program's own code decides as it did before.
    """
    tf, asked = tensorflow(), Asked()
    logical, physical = tf.config.list_logical_devices, tf.config.list_physical_devices

    def list_logical_devices(device_type: str | None = None) -> Any:
        devices, caller = logical(device_type), _module(sys._getframe(1))
        if not caller.startswith("keras."):
            return devices
        # A layer that is made asks too, whatever its `use_cudnn`, but in no function.
        asked.recurrent |= caller == RECURRENT and tf.inside_function()
        asked.convolutions |= caller == CONVOLUTIONS
        return [device for device in devices if device.device_type != "GPU"]

    def list_physical_devices(device_type: str | None = None) -> Any:
        caller = sys._getframe(1)
        by = caller.f_back
        # `compile` also asks, through a property, for the value that it is about to replace.
        if _module(caller) == TRAINERS and by is not None and by.f_code.co_name == "compile":
            asked.compiled.append(caller.f_locals.get("self"))
        return physical(device_type)

    _forget_devices()
    try:
        with replaced(
            tf.config,
            list_logical_devices=list_logical_devices,
            list_physical_devices=list_physical_devices,
        ):
            yield asked
    finally:
        _forget_devices()


def tell_choices(asked: Asked, what: str) -> None:
    """Warn of what Keras would build otherwise on a machine with a GPU."""
    if asked.recurrent:
        log.warning(
            "%s: LSTM and GRU layers of Keras are exported as loops, on any machine; with a GPU,"
            " Keras itself calls cuDNN, unless they are made with use_cudnn=False.",
            what,
        )
    if asked.convolutions:
        log.warning(
            "%s: depthwise and separable convolutions of Keras are exported with transposes to"
            " channels_last, on any machine; with a GPU, Keras itself keeps channels_first.",
            what,
        )


def _module(frame: FrameType) -> str:
    """Return the name of the module whose code a frame runs."""
    name: str = frame.f_globals.get("__name__", "")
    return name


def _forget_devices() -> None:
    """Have Keras ask again which devices there are, where it has kept the answer."""
    convolutions = sys.modules.get(CONVOLUTIONS)
    forget: Callable[[], None] | None = getattr(
        getattr(convolutions, "_cpu_only", None), "cache_clear", None
    )
    if forget is not None:
        forget()
