"""Upper limits on the bytes and times of a step, over all placements.

These sums are upper bounds of all numbers in any schedule, so no number overflows.
"""

from collections.abc import Iterator

import numpy as np

from pesto_cli.data.graph import FloatArray, OpGraph
from pesto_cli.data.machine import Machine
from pesto_cli.errors import BadInputError

# A double is exact up to 2^53 bytes; the sum over 512 devices fits into an int64.
MAX_TOTAL_BYTES = 2**53
MAX_BYTES_ON_ALL_DEVICES = 2**62
# 31 years. Doubles of this size are an eighth of a us apart; HiGHS allows no larger coefficient.
MAX_TOTAL_US = 1e15


def check_totals(graph: OpGraph, machine: Machine, duration_us: FloatArray) -> None:
    """Refuse a problem whose sums could overflow numbers of 64 bits.

    Args:
        graph: the op graph.
        machine: the machine.
        duration_us: `[num_ops, num_devices]`, inf where a device cannot run an op.

    Raises:
        BadInputError: a total is too large; the message names it.
    """
    totals = (*_bytes(graph, machine.num_devices), *_times(graph, machine, duration_us))
    for what, found, most, unit, remedy in totals:
        if not found <= most:
            raise BadInputError(
                f"{what} add up to {found:.4g} {unit}; at most {most:.4g} {unit} were expected: "
                f"correct {remedy}."
            )


_Total = tuple[str, float, float, str, str]


def _bytes(graph: OpGraph, num_devices: int) -> Iterator[_Total]:
    """Yield the totals of bytes that one device may hold: variables, and tensors or copies."""
    most = min(MAX_TOTAL_BYTES, MAX_BYTES_ON_ALL_DEVICES / num_devices)
    for what, column, remedy in (
        ("the variables of all ops", graph.resident_bytes, "resident_bytes"),
        ("all tensors", graph.tensor_bytes, "the bytes of tensors"),
    ):
        yield what, float(column.sum(dtype=np.float64)), most / 2, "bytes", remedy


def _times(graph: OpGraph, machine: Machine, duration_us: FloatArray) -> Iterator[_Total]:
    """Yield the total times of ops, of transfers and of signals, each at its longest duration."""
    ops_us = np.where(np.isfinite(duration_us), duration_us, 0.0).max(axis=1, initial=0.0)
    ops_us *= machine.contention_factor
    yield (
        *("all ops, each on its slowest device,", float(ops_us.sum()), MAX_TOTAL_US, "us"),
        "the op times, or speed and op_overhead_us of the devices, or the contention",
    )
    constant, per_byte = machine.transfer_overhead_us.max(axis=(2, 3)).sum(axis=0)
    linear_us = machine.latency_us.max() + machine.us_per_byte.max() * graph.tensor_bytes
    sent_us = np.maximum(machine.min_us.max(), linear_us) + 2 * machine.wait_us.max()
    overhead_us = (constant + per_byte * graph.tensor_bytes) * machine.contention_factor
    transfers_us = float((sent_us + overhead_us).sum()) * (machine.num_devices - 1)
    yield (
        *("transfers of all tensors to all devices", transfers_us, MAX_TOTAL_US, "us"),
        "the times of the links, or the bytes of tensors",
    )
    signals_us = machine.signal_us * graph.num_ops
    yield "signals to all ops", signals_us, MAX_TOTAL_US, "us", "signal_us"
