"""Hide GPUs from Keras while a step is exported, so that the graph can run on every device.

Keras builds different graphs on a machine with a GPU: LSTM and GRU call cuDNN instead of a loop,
and depthwise and separable convolutions keep `channels_first` instead of transposing. Only the
graphs for machines without a GPU can run on every device, so these are exported.
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
class DeviceChoices:
    """The choices of Keras that depended on the machine's devices while a step was built.

    recurrent: whether Keras chose how to build an LSTM or GRU that cuDNN could run.
    convolutions: whether Keras chose how to build a convolution with `channels_first`.
    compiled: the models for which `compile(jit_compile="auto")` looked for a GPU, to choose XLA.
    """

    recurrent: bool = False
    convolutions: bool = False
    compiled: list[Any] = field(default_factory=list)


@contextmanager
def keras_without_gpus() -> Iterator[DeviceChoices]:
    """Make Keras build the graphs of a machine without GPUs, within the context.

    Yields the choices of Keras that depended on devices; they are complete when the context ends.
    Other callers see all devices: the program's own code behaves as before.
    """
    tf, choices = tensorflow(), DeviceChoices()
    logical, physical = tf.config.list_logical_devices, tf.config.list_physical_devices

    def list_logical_devices(device_type: str | None = None) -> Any:
        devices, caller = logical(device_type), _module(sys._getframe(1))
        if not caller.startswith("keras."):
            return devices
        # The constructor of a layer lists devices too, whatever its `use_cudnn`. Only a query
        # within a function depends on that option.
        choices.recurrent |= caller == RECURRENT and tf.inside_function()
        choices.convolutions |= caller == CONVOLUTIONS
        return [device for device in devices if device.device_type != "GPU"]

    def list_physical_devices(device_type: str | None = None) -> Any:
        caller = sys._getframe(1)
        by = caller.f_back
        # `compile` also reads, through a property, the value that it is about to replace.
        if _module(caller) == TRAINERS and by is not None and by.f_code.co_name == "compile":
            choices.compiled.append(caller.f_locals.get("self"))
        return physical(device_type)

    _forget_devices()
    try:
        with replaced(
            tf.config,
            list_logical_devices=list_logical_devices,
            list_physical_devices=list_physical_devices,
        ):
            yield choices
    finally:
        _forget_devices()


def warn_of_device_choices(choices: DeviceChoices, what: str) -> None:
    """Log a warning for each layer type that Keras would build differently with a GPU."""
    if choices.recurrent:
        log.warning(
            "%s: LSTM and GRU layers of Keras are exported as loops, on any machine. With a GPU,"
            " Keras itself calls cuDNN, unless the layers are created with use_cudnn=False.",
            what,
        )
    if choices.convolutions:
        log.warning(
            "%s: depthwise and separable convolutions of Keras are exported with transposes to"
            " channels_last, on any machine. With a GPU, Keras itself keeps channels_first.",
            what,
        )


def _module(frame: FrameType) -> str:
    """Return the name of the module whose code a frame runs."""
    name: str = frame.f_globals.get("__name__", "")
    return name


def _forget_devices() -> None:
    """Clear the list of devices that Keras caches."""
    convolutions = sys.modules.get(CONVOLUTIONS)
    forget: Callable[[], None] | None = getattr(
        getattr(convolutions, "_cpu_only", None), "cache_clear", None
    )
    if forget is not None:
        forget()
