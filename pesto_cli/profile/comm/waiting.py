"""Measure how much a sender that computes delays a transfer.

A device without copy engines sends and receives on the cores that also compute. On a busy core, the
operating system may start this work only after milliseconds. In a step, a tensor goes to and fro
between two devices, and each of them computes before it sends the tensor. In one of two steps it
goes on with other work as soon as it has produced the tensor:

    src:  compute ─> send ─> other work           compute ─> send ─> other work
                        └──> dst:  compute ─> send ─> other work  ...

The other work ends before the tensor comes back. So the steps differ only by the delays of the
transfers:

    wait_us = mean(T_other_work - T_no_other_work) / number of transfers

The mean is over pairs of consecutive steps, without the smallest and largest tenth of the
differences. The delays vary from nothing to a tick of the operating system; their sum is predicted
by the mean. They are longer in a step with several transfers than for a single one: a thread that
has just used the core gets it back later. As in a placement that `pesto apply` writes, the other
work waits for a NoOp that waits for the tensor. A receiver that computes is assumed to delay a
tensor as long as a sender.
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

# The other work is longer than a delay, and shorter than the computation of the other device.
COMPUTE_US, OTHER_WORK_US = 6_000.0, 4_500.0
NUM_TRANSFERS = 8
# Delays grow with the size of a tensor, slowly. This is the size of an activation.
NUM_BYTES = 2**20
# Pairs of steps for each turn of other measurements; many, because delays vary so much.
PAIRS_A_TURN = 2
# Time limit for a link, see `turns`.
LIMIT_S = 15.0
# Share of the differences that is left out at each end.
TRIMMED = 0.1


def wait_us(connection: Connection, src: str, dst: str, effort: Effort) -> float:
    """Measure the delay in us between two CPUs, in both directions; 0 if an endpoint is a GPU."""
    from scipy.stats import trim_mean

    if {device_type(src), device_type(dst)} != {"CPU"}:
        return 0.0
    tf1, began_s = tensorflow().compat.v1, time.monotonic()
    one_us = max(product_us(connection, device) for device in (src, dst))
    with tf1.Graph().as_default() as graph:
        steps = [_step(src, dst, of_us, one_us) for of_us in (0.0, OTHER_WORK_US)]
        start = tf1.global_variables_initializer()
    later_us = []
    with connection.session(graph, session_config()) as session:
        session.run(start)
        run = [session.make_callable(step) for step in steps]
        for _ in turns(effort, LIMIT_S, began_s, PAIRS_A_TURN):
            without_us, with_us = (timed_us(step) for step in run)
            later_us.append(with_us - without_us)
    return max(0.0, float(trim_mean(later_us[NUM_WARM_UP:], TRIMMED))) / NUM_TRANSFERS


def _step(src: str, dst: str, other_work_us: float, one_us: float) -> list[Any]:
    """Build a step; return the ops that end it. one_us: the time of a product."""
    tf = tensorflow()
    name = f"beside_{other_work_us:.0f}"
    ends, arrived = list[Any](), list[Any]()
    for number in range(NUM_TRANSFERS):
        here, there = (src, dst) if number % 2 == 0 else (dst, src)
        computed = products(f"{name}_{number}", here, math.ceil(COMPUTE_US / one_us), arrived)
        with tf.device(here):
            with tf.control_dependencies([computed]):
                tensor = tf.negative(variable(f"{name}_{number}_tensor", [NUM_BYTES // 4]))
            with tf.control_dependencies([tensor.op]):
                sent = tf.no_op()
        count = math.ceil(other_work_us / one_us)
        ends.append(products(f"{name}_{number}_other", here, count, [sent]))
        with tf.device(there):
            arrived = [tf.identity(tensor).op]
    return [*ends, *arrived]
