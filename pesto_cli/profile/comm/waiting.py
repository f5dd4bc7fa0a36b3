"""How long an end that computes keeps a tensor waiting.

Without copy engines a device sends and receives on the cores that compute, when the operating
system gives them to it: on a core that is busy that is milliseconds. In a step the sender has a
tensor, and the receiver computes from when it is there; in half of the steps the sender computes
too, from when it has made the tensor. The receiver is the last to end, so that

    wait_us = mean(T_sender_computes - T_sender_is_idle)

over pairs of steps next to each other, without the tenth of them at either end. Waits are anything
between nothing and several ticks of the operating system, and a step has the sum of some: so it is
the mean that counts. A receiver is taken to be like the sender.
"""

import math
from typing import Any

from pesto_cli.apply import session_config
from pesto_cli.apply.devices import device_type
from pesto_cli.cluster import Connection
from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.profile.comm.chains import NUM_WARM_UP, turns
from pesto_cli.profile.comm.products import product_us, products, timed_us, variable

# Longer than a wait by far, and in a ratio to each other that keeps the receiver the last.
SENDER_US, RECEIVER_US = 20_000.0, 50_000.0
NUM_BYTES = 2**10
# Pairs of steps for each turn of other chains, as waits differ so much.
PAIRS_A_TURN = 3
# After so long there are no more pairs than the fewest.
LIMIT_S = 15.0
# Of the pairs, at either end.
TRIMMED = 0.1


def wait_us(connection: Connection, src: str, dst: str, num_turns: int) -> float:
    """Measure it for a link between two CPUs; with a GPU at an end it is 0."""
    from scipy.stats import trim_mean

    if {device_type(src), device_type(dst)} != {"CPU"}:
        return 0.0
    tf1 = tensorflow().compat.v1
    one_us = max(product_us(connection, device) for device in (src, dst))
    with tf1.Graph().as_default() as graph:
        idle, computes = (_step(src, dst, of_us, one_us) for of_us in (0.0, SENDER_US))
        start = tf1.global_variables_initializer()
    later_us = []
    with connection.session(graph, session_config()) as session:
        session.run(start)
        run = [session.make_callable(step) for step in (idle, computes)]
        for _ in turns(PAIRS_A_TURN * num_turns, LIMIT_S):
            idle_us, computes_us = (timed_us(step) for step in run)
            later_us.append(computes_us - idle_us)
    return max(0.0, float(trim_mean(later_us[NUM_WARM_UP:], TRIMMED)))


def _step(src: str, dst: str, sender_us: float, one_us: float) -> list[Any]:
    tf = tensorflow()
    name = f"sender_{sender_us:.0f}"
    with tf.device(src):
        tensor = tf.identity(variable(f"{name}_tensor", [NUM_BYTES // 4]))
    with tf.device(dst):
        arrived = tf.identity(tensor).op
    num_products = math.ceil(sender_us / one_us)
    return [
        products(f"{name}_at_sender", src, num_products, [tensor.op]),
        products(f"{name}_at_receiver", dst, math.ceil(RECEIVER_US / one_us), [arrived]),
    ]
