"""What a device that computes loses to a transfer at its end of a link.

Between CPUs a transfer is work of their cores: to serialize, to copy, and the network stack. A step
has `count` tensors on the sender, and meanwhile one end computes: the sender from when the tensors
exist, the receiver from the start. They are read on the receiver, or stay and are read on the
sender. The computation is the last to end in both steps, so that

    lost_us = median(T_goes - T_stays) / count

over pairs of steps next to each other, in either order by turns. What disturbs the machine for
longer than a pair hits both its steps, and a single disturbance does not move the median; the best
times of each step, as in `chains`, would lack the switches of threads that are part of the loss.

A GPU copies with engines of its own: there is nothing to measure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pesto_cli.apply import session_config
from pesto_cli.apply.devices import device_type
from pesto_cli.cluster import Connection
from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.profile.comm.chains import NUM_WARM_UP, turns
from pesto_cli.profile.comm.products import product_us, products, timed_us, variable

# How many tensors of so many bytes a step sends: enough to lose more than steps differ by anyway.
COUNTS = {4: 20, 2**16: 20, 2**18: 16, 2**20: 6, 2**22: 2}
# The computation takes this multiple of the transfers alone, which it slows down, and at least so
# long; where the link is slow it has no more products than a graph builds in a second.
COVER, COVER_US, MAX_PRODUCTS = 3.0, 4000.0, 2000
# Of a link, after which there are no more turns than the fewest; an idle machine takes some 5 s.
LIMIT_S = 20.0


@dataclass(frozen=True)
class Losses:
    """What the ends of a link lose if they compute, in us a transfer, by its bytes."""

    sender_us: Mapping[int, float] = field(default_factory=dict)
    receiver_us: Mapping[int, float] = field(default_factory=dict)


def losses(
    connection: Connection, src: str, dst: str, transfer_us: Mapping[int, float], num_turns: int
) -> Losses:
    """Measure both ends of a link between two CPUs; there are none with a GPU at an end.

    transfer_us: of transfers alone, by bytes: how long the computation has to be follows from it.
    """
    if {device_type(src), device_type(dst)} != {"CPU"}:
        return Losses()
    return Losses(
        *(_lost_us(connection, src, dst, at, transfer_us, num_turns) for at in (src, dst))
    )


def median_loss_us(goes_us: Sequence[float], stays_us: Sequence[float], count: int) -> float:
    """The loss to one of `count` transfers, from steps in pairs; what is below 0 is noise."""
    return max(0.0, float(np.median(np.subtract(goes_us, stays_us))) / count)


def num_products(num_bytes: int, transfer_us: Mapping[int, float], product_us: float) -> int:
    """How many products cover the transfers of a step."""
    known = sorted(transfer_us)
    alone_us = np.interp(num_bytes, known, [transfer_us[size] for size in known])
    cover_us = max(COVER_US, COVER * COUNTS[num_bytes] * float(alone_us))
    return min(MAX_PRODUCTS, int(np.ceil(cover_us / product_us)))


def _lost_us(
    connection: Connection,
    src: str,
    dst: str,
    at: str,
    transfer_us: Mapping[int, float],
    num_turns: int,
) -> dict[int, float]:
    tf1 = tensorflow().compat.v1
    one_us = product_us(connection, at)
    with tf1.Graph().as_default() as graph:
        steps = {
            size: _pair(size, src, dst, at, num_products(size, transfer_us, one_us))
            for size in COUNTS
        }
        start = tf1.global_variables_initializer()
    us: dict[int, tuple[list[float], list[float]]] = {size: ([], []) for size in steps}
    with connection.session(graph, session_config()) as session:
        session.run(start)
        run = {size: [session.make_callable(step) for step in pair] for size, pair in steps.items()}
        for turn in turns(num_turns, LIMIT_S / 2):
            for size, pair in run.items():
                for which in (0, 1) if turn % 2 else (1, 0):
                    us[size][which].append(timed_us(pair[which]))
    return {
        size: median_loss_us(goes[NUM_WARM_UP:], stays[NUM_WARM_UP:], COUNTS[size])
        for size, (goes, stays) in us.items()
    }


def _pair(num_bytes: int, src: str, dst: str, at: str, num_products: int) -> tuple[Any, Any]:
    """The ops of a step where the tensors go, and of one where they stay."""
    tf = tensorflow()
    tf1 = tf.compat.v1
    with tf.device(src):
        shape = [num_bytes // 4]
        read = variable(f"tensor_{num_bytes}", shape)
        tensors = [tf.identity(read) for _ in range(COUNTS[num_bytes])]
    after = [tensor.op for tensor in tensors] if at == src else []
    computed = products(f"matrix_{num_bytes}", at, num_products, after)
    arrived = {}
    for device in (src, dst):
        with tf.device(device):
            arrived[device] = [tf.identity(tensor).op for tensor in tensors]
    ends = [computed]  # and something on either device, so that both take part in both steps
    for device in (src, dst):
        with tf.device(device):
            ends.append(tf1.no_op())
    return ends + arrived[dst], ends + arrived[src]
