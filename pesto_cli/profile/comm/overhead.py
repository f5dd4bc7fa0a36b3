"""Measure the transfer overhead: how much a transfer delays an endpoint that computes.

A transfer between CPUs is work for their cores: serialization, copies and the network stack. In a
step the sender computes, and produces `count` tensors at equal intervals, so that each transfer is
alone on its link, as most are in a placement. (Transfers that start together share the work: ten
tensors of 4 bytes at once take a third of the time of ten single ones.) One endpoint computes
longer than the other: the sender after the last tensor, or the receiver from the start of the step.
In one step the tensors go to the receiver and are read there; in the other they stay and are read
on the sender. The longer computation ends last in both steps, so that

    overhead_us = median(T_goes - T_stays) / count

The median is over pairs of consecutive steps, whose order alternates. A disturbance longer than a
pair affects both of its steps, and a single short one does not change the median. The minimum of
each step would leave out thread switches, which are part of the overhead.

A GPU copies with engines of its own, so its overhead is 0 and is not measured.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pesto_cli.apply import session_config
from pesto_cli.apply.devices import device_type
from pesto_cli.cluster import Connection
from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.profile.comm.chains import MIN_TURNS, NUM_WARM_UP, Effort, turns
from pesto_cli.profile.comm.products import product_us, products, timed_us, variable

# Bytes of a tensor -> number of such tensors in a step. With so many, the overhead is larger than
# the variation of step times.
COUNTS = {4: 8, 2**16: 8, 2**18: 8, 2**20: 6, 2**22: 4}
# The same for a shorter limit: the first of these for which it is long enough, or else the last.
FEWER_COUNTS = ({4: 4, 2**18: 4, 2**20: 3, 2**22: 2}, {4: 4, 2**18: 4, 2**20: 2}, {4: 3, 2**18: 3})
# About how long it takes to build and start a product; and how many times as long as its products a
# step takes on hosts that are busy or share their cores.
BUILD_US, BUSY = 900.0, 2.0
# The sender computes COVER times as long as a transfer alone before each tensor, because
# computation slows transfers down, and at least COVER_US. For slow links it is limited to the
# products that are built in about a second.
COVER, COVER_US, MAX_PRODUCTS = 2.5, 4000.0, 200
# How much longer the receiver computes than the sender.
LONGER = 1.25
# Time limit for a link, see `turns`; on an idle machine the measurement takes about 15 s.
LIMIT_S = 20.0


@dataclass(frozen=True)
class TransferOverheads:
    """Transfer overhead at both endpoints of a link: bytes of a transfer -> us per transfer."""

    sender_us: Mapping[int, float] = field(default_factory=dict)
    receiver_us: Mapping[int, float] = field(default_factory=dict)


def transfer_overheads(
    connection: Connection, src: str, dst: str, transfer_us: Mapping[int, float], effort: Effort
) -> TransferOverheads:
    """Measure the overhead at both endpoints of a link between CPUs; empty if one is a GPU.

    transfer_us: bytes -> time of a transfer alone, from which the length of the computation
        follows.
    """
    if {device_type(src), device_type(dst)} != {"CPU"}:
        return TransferOverheads()
    return TransferOverheads(
        *(_overhead_us(connection, src, dst, at, transfer_us, effort) for at in (src, dst))
    )


def median_overhead_us(goes_us: Sequence[float], stays_us: Sequence[float], count: int) -> float:
    """Return the overhead of one of `count` transfers from pairs of step times.

    A negative median is noise and counts as 0.
    """
    return max(0.0, float(np.median(np.subtract(goes_us, stays_us))) / count)


def num_products(num_bytes: int, transfer_us: Mapping[int, float], product_us: float) -> int:
    """Return the number of products before a tensor that take longer than its transfer."""
    known = sorted(transfer_us)
    alone_us = np.interp(num_bytes, known, [transfer_us[size] for size in known])
    return min(MAX_PRODUCTS, int(np.ceil(max(COVER_US, COVER * float(alone_us)) / product_us)))


def _overhead_us(
    connection: Connection,
    src: str,
    dst: str,
    at: str,
    transfer_us: Mapping[int, float],
    effort: Effort,
) -> dict[int, float]:
    tf1, began_s = tensorflow().compat.v1, time.monotonic()
    one_us = product_us(connection, at)
    counts = affordable_counts(transfer_us, one_us, at == dst, effort.share * LIMIT_S / 2)
    with tf1.Graph().as_default() as graph:
        steps = {
            size: _pair(size, count, src, dst, at, num_products(size, transfer_us, one_us))
            for size, count in counts.items()
        }
        start = tf1.global_variables_initializer()
    us: dict[int, tuple[list[float], list[float]]] = {size: ([], []) for size in steps}
    with connection.session(graph, session_config()) as session:
        session.run(start)
        run = {size: [session.make_callable(step) for step in pair] for size, pair in steps.items()}
        for turn in turns(effort, LIMIT_S / 2, began_s):
            for size, pair in run.items():
                for which in (0, 1) if turn % 2 else (1, 0):
                    us[size][which].append(timed_us(pair[which]))
    return {
        size: median_overhead_us(goes[NUM_WARM_UP:], stays[NUM_WARM_UP:], counts[size])
        for size, (goes, stays) in us.items()
    }


def affordable_counts(
    transfer_us: Mapping[int, float], product_us: float, at_receiver: bool, limit_s: float
) -> Mapping[int, int]:
    """Return the counts whose steps are built and run the fewest turns within a limit."""

    def takes_s(counts: Mapping[int, int]) -> float:
        longer = LONGER if at_receiver else 1
        count = longer * sum(
            2 * (count + 1) * num_products(size, transfer_us, product_us)
            for size, count in counts.items()
        )
        return count * (BUILD_US + BUSY * (NUM_WARM_UP + MIN_TURNS) * product_us) / 1e6

    options = (COUNTS, *FEWER_COUNTS)
    return next((counts for counts in options if takes_s(counts) <= limit_s), options[-1])


def _pair(
    num_bytes: int, count: int, src: str, dst: str, at: str, num_products: int
) -> tuple[Any, Any]:
    """Return the ops of two steps: one where the tensors are sent, one where they stay."""
    return (
        _step(f"{num_bytes}_goes", num_bytes, count, src, dst, at, num_products, reader=dst),
        _step(f"{num_bytes}_stays", num_bytes, count, src, dst, at, num_products, reader=src),
    )


def _step(
    name: str,
    num_bytes: int,
    count: int,
    src: str,
    dst: str,
    at: str,
    num_products: int,
    reader: str,
) -> list[Any]:
    tf = tensorflow()
    tf1 = tf.compat.v1
    ends, after = [], list[Any]()
    for number in range(count):
        before = products(f"{name}_{number}", src, num_products, after)
        with tf.device(src), tf1.control_dependencies([before]):
            tensor = tf.negative(variable(f"{name}_{number}_tensor", [num_bytes // 4]))
        with tf.device(reader):
            ends.append(tf.identity(tensor).op)
        after = [tensor.op]
    ends.append(products(f"{name}_{count}", src, num_products if at == src else 1, after))
    if at == dst:
        longer = math.ceil(LONGER * num_products * (count + 1))
        ends.append(products(f"{name}_receiver", dst, longer))
    for device in (src, dst):  # Both devices take part in both steps.
        with tf.device(device):
            ends.append(tf1.no_op())
    return ends
