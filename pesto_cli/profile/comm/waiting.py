"""Measure how much an endpoint that computes delays a transfer.

A device without copy engines sends and receives on the cores that also compute. On a busy core, the
operating system may start this work only after milliseconds. In each step the sender computes for
a while and sends a tensor, and the receiver computes once the tensor has arrived. In half of the
steps the sender computes after it has produced the tensor, too. The receiver ends last, so that

    wait_us = mean(T_sender_computes - T_sender_is_idle)

The mean is over pairs of consecutive steps, without the smallest and largest tenth of the
differences. Waits vary from nothing to several ticks of the operating system, and a step contains
several waits: their sum is predicted by the mean. The receiver is assumed to wait as long as the
sender.

The receiver asks for the tensor when the step begins. Without the first computation, this request
itself waits for a sender that computes, up to a tick of the operating system. In a placement only
the tensors of the first milliseconds of a step wait so long.
"""

import math
import time
from typing import Any

from pesto_cli.apply import session_config
from pesto_cli.apply.devices import device_type
from pesto_cli.cluster import Connection
from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.profile.comm.chains import NUM_WARM_UP, Effort, turns
from pesto_cli.profile.comm.products import product_us, products, timed_us, variable

# All are longer than a wait. SENDER_US and RECEIVER_US are much longer, and their ratio makes the
# receiver end last.
EARLIER_US, SENDER_US, RECEIVER_US = 8_000.0, 20_000.0, 50_000.0
# Waits grow with the size of a tensor, slowly. This is the size of an activation.
NUM_BYTES = 2**20
# Pairs of steps for each turn of other measurements; many, because waits vary so much.
PAIRS_A_TURN = 3
# Time limit for a link, see `turns`.
LIMIT_S = 15.0
# Share of the differences that is left out at each end.
TRIMMED = 0.1


def wait_us(connection: Connection, src: str, dst: str, effort: Effort) -> float:
    """Measure the wait in us on a link between two CPUs; 0 if an endpoint is a GPU."""
    from scipy.stats import trim_mean

    if {device_type(src), device_type(dst)} != {"CPU"}:
        return 0.0
    tf1, began_s = tensorflow().compat.v1, time.monotonic()
    one_us = max(product_us(connection, device) for device in (src, dst))
    with tf1.Graph().as_default() as graph:
        idle, computes = (_step(src, dst, of_us, one_us) for of_us in (0.0, SENDER_US))
        start = tf1.global_variables_initializer()
    later_us = []
    with connection.session(graph, session_config()) as session:
        session.run(start)
        run = [session.make_callable(step) for step in (idle, computes)]
        for _ in turns(effort, LIMIT_S, began_s, PAIRS_A_TURN):
            idle_us, computes_us = (timed_us(step) for step in run)
            later_us.append(computes_us - idle_us)
    return max(0.0, float(trim_mean(later_us[NUM_WARM_UP:], TRIMMED)))


def _step(src: str, dst: str, sender_us: float, one_us: float) -> list[Any]:
    tf = tensorflow()
    name = f"sender_{sender_us:.0f}"
    earlier = products(f"{name}_before", src, math.ceil(EARLIER_US / one_us))
    with tf.device(src), tf.control_dependencies([earlier]):
        tensor = tf.negative(variable(f"{name}_tensor", [NUM_BYTES // 4]))
    with tf.device(dst):
        arrived = tf.identity(tensor).op
    num_products = math.ceil(sender_us / one_us)
    return [
        products(f"{name}_at_sender", src, num_products, [tensor.op]),
        products(f"{name}_at_receiver", dst, math.ceil(RECEIVER_US / one_us), [arrived]),
    ]
