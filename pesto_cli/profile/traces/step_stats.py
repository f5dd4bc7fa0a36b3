"""TensorFlow's step stats (`RunMetadata.step_stats`), one for each recorded step."""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pesto_cli.files import MAX_TENSOR_BYTES
from pesto_cli.graphdef.bodies import NO_BODIES, Bodies
from pesto_cli.graphdef.signature import data_type
from pesto_cli.graphdef.sizes import BYTES_OF_HANDLES
from pesto_cli.profile.measured import Measured
from pesto_cli.profile.measured.copies import TimedTransfer, copied, device_type
from pesto_cli.profile.traces.received import ReceivedLabel
from pesto_cli.profile.traces.step_rows import (
    COPIES,
    KERNELS,
    RecordedStep,
    StepRow,
    measured_steps,
)

# `name = Type(inputs)`; workers write the memory in brackets before it.
_LABEL = re.compile(r"(?:^|\] )\S+ = (\w+)\(")
_RECEIVED = "RecvTensor"


def measured(
    steps: Sequence[Any],
    place_of: Callable[[str], str] = device_type,
    bodies: Bodies = NO_BODIES,
) -> Measured:
    """Return the measured times and sizes from a StepStats for each step.

    The other arguments are those of `measured_steps`.
    """
    return measured_steps([recorded_step(step) for step in steps], place_of, bodies)


def recorded_step(step: Any) -> RecordedStep:
    """Convert a StepStats to rows and transfers."""
    rows = list(_rows(step))
    sizes = {row.node: row.output_bytes for row in rows if row.output_bytes}
    return RecordedStep(rows, [*_copies(step), *_received(step, sizes)])


def _rows(step: Any) -> Iterator[StepRow]:
    for device in step.dev_stats:
        for stats in device.node_stats:
            label = _LABEL.search(stats.timeline_label)
            if device.device.endswith(KERNELS) and ":" in stats.node_name:
                node, op_type = stats.node_name.split(":")[:2]
                yield StepRow(device.device, node, op_type, _us(stats))
            elif label is not None:
                name, sizes = stats.node_name, _sizes(stats)
                yield StepRow(device.device, name, label[1], _us(stats), sizes, _start_ns(stats))


def _copies(step: Any) -> Iterator[TimedTransfer]:
    for device in step.dev_stats:
        if device.device.endswith(COPIES):
            gpu = device.device.removesuffix(COPIES)
            copies = (copied(row.timeline_label, gpu, _us(row)) for row in device.node_stats)
            yield from (copy for copy in copies if copy is not None)


def _received(step: Any, sizes: Mapping[str, Mapping[int, int]]) -> Iterator[TimedTransfer]:
    """Yield the tensors that workers received from other workers; signals are left out."""
    for device in step.dev_stats:
        for stats in device.node_stats:
            label = ReceivedLabel.parse(stats.timeline_label)
            if stats.node_name == _RECEIVED and label is not None:
                us = _us(stats)
                size = label.num_bytes(us, list(sizes.get(label.node, {}).values()))
                if size > 0:
                    yield TimedTransfer(label.src, label.dst, size, us)


def _start_ns(stats: Any) -> int:
    """Return the start of a row in ns; TensorFlow before 1.12 only records whole us."""
    nanos: int = stats.all_start_nanos + stats.op_start_rel_nanos
    micros: int = stats.all_start_micros + stats.op_start_rel_micros
    return nanos if stats.all_start_nanos else micros * 1000


def _us(stats: Any) -> float:
    """Return the time of a row; TensorFlow before 1.12, and rows of GPUs, only have whole us."""
    nanos: int = stats.op_end_rel_nanos - stats.op_start_rel_nanos
    micros: int = stats.op_end_rel_micros - stats.op_start_rel_micros
    return nanos / 1e3 if nanos > 0 else float(max(micros, 0))


def _sizes(stats: Any) -> dict[int, int]:
    """Return output number -> bytes for the outputs of a row.

    Handles and strings are left out, as their recorded sizes mean nothing; so are impossible sizes.
    """
    sizes = {}
    for output in stats.output:
        tensor = output.tensor_description
        dtype = data_type(tensor.dtype)
        if dtype is not None and dtype.base_dtype.name not in BYTES_OF_HANDLES:
            dims: list[int] = [dim.size for dim in tensor.shape.dim]
            num_bytes = dtype.base_dtype.size * math.prod(dims)
            if min(dims, default=0) >= 0 and num_bytes <= MAX_TENSOR_BYTES:
                sizes[output.slot] = num_bytes
    return sizes
