"""Makespans of a placement whose op times and delays are random."""

import numpy as np

from pesto_cli.data.graph import FloatArray
from pesto_cli.data.schedule import Placement
from pesto_cli.evaluation.simulator import Simulator


def sampled_makespans_us(
    simulator: Simulator, placement: Placement, deviation: FloatArray, count: int, seed: int = 0
) -> FloatArray:
    """Return makespans in us of replays with random op times and delays, `[count]`.

    The time of an op has a lognormal distribution whose median is the time of the problem. The
    longest delay of a tensor or signal at an endpoint is uniform from 0 to twice `wait_us`, which
    is its mean. All of these are independent.

    Args:
        simulator: of the problem that the placement is for.
        placement: the devices and ranks.
        deviation: `[num_ops]`, the standard deviation of the time of each op, divided by its mean.
        count: the number of samples.
        seed: the random seed.
    """
    random, graph = np.random.default_rng(seed), simulator.kernel_graph
    num_ops, sigma = len(deviation), np.sqrt(np.log1p(deviation**2))
    makespans_us = np.zeros(count)
    for sample in range(count):
        factor = np.exp(sigma * random.standard_normal(num_ops))
        delay_factor = random.uniform(0.0, 2.0, (2, len(graph.tensor_bytes) + num_ops))
        varied = graph._replace(
            duration_us=graph.duration_us * factor[:, None], delay_factor=delay_factor
        )
        makespans_us[sample] = simulator.replay_us(placement, varied)
    return makespans_us
