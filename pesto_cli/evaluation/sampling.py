"""Random op times and delays, and makespans of a placement with them.

The time of an op has a lognormal distribution whose median is the time of the problem. The longest
delay of a tensor or signal at an endpoint is uniform from 0 to twice `wait_us`, which is its mean.
All of these are independent.
"""

from collections.abc import Iterator

import numpy as np

from pesto_cli.data.graph import FloatArray, IntArray
from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import Placement
from pesto_cli.errors import BadInputError
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.evaluation.simulator.columns import KernelGraph
from pesto_cli.files.profile import Spread


def relative_deviation(problem: Problem, spread: Spread | None) -> FloatArray:
    """Return the standard deviation of each op's time divided by its mean.

    Returns:
        `[num_ops, num_devices]`; 0 where the time was not measured.
    """
    deviation = np.zeros((problem.num_ops, problem.num_devices))
    for index, device in enumerate(problem.machine.devices):
        if spread is not None and device.kind in spread.mean_us:
            mean_us, std_us = spread.mean_us[device.kind], spread.std_us[device.kind]
            measured = mean_us > 0  # not NaN
            deviation[measured, index] = std_us[measured] / mean_us[measured]
    return deviation


def deviation_of_parts(deviation: FloatArray, origin: IntArray) -> FloatArray:
    """Return the deviations in a rewritten graph: those of each op's origin; 0 for added ops.

    origin: as in `Solution`.
    """
    found = deviation[origin]
    found[origin < 0] = 0.0
    return found


def check_varies(problem: Problem, deviation: FloatArray) -> None:
    """Check that samples of op times and delays differ.

    Raises:
        BadInputError: no op time has a deviation, and no link has delays.
    """
    if not deviation.any() and not problem.machine.wait_us.any():
        raise BadInputError(
            "all samples would be equal: the profile has no deviations of op times, and the "
            "machine has no wait_us; a profile of real steps was expected (`pesto profile -m "
            "MACHINE --source run`)."
        )


def sampled_graphs(
    graph: KernelGraph, deviation: FloatArray, count: int, seed: int = 0
) -> Iterator[KernelGraph]:
    """Yield copies of a graph with random op times and delays.

    Args:
        graph: the graph with the times of the problem.
        deviation: `[num_ops, num_devices]`, the standard deviation of the time of each op, divided
            by its mean. An op is faster or slower than usual on all devices alike.
        count: the number of samples.
        seed: the random seed.
    """
    random, num_ops = np.random.default_rng(seed), len(deviation)
    sigma = np.sqrt(np.log1p(deviation**2))
    for _ in range(count):
        factor = np.exp(sigma * random.standard_normal(num_ops)[:, None])
        delay_factor = random.uniform(0.0, 2.0, (2, len(graph.tensor_bytes) + num_ops))
        yield graph._replace(duration_us=graph.duration_us * factor, delay_factor=delay_factor)


def sampled_makespans_us(
    simulator: Simulator, placement: Placement, deviation: FloatArray, count: int, seed: int = 0
) -> FloatArray:
    """Return makespans in us of replays with random op times and delays, `[count]`.

    Args:
        simulator: of the problem that the placement is for.
        placement: the devices and ranks.
        deviation: see `sampled_graphs`.
        count: the number of samples.
        seed: the random seed.
    """
    graphs = sampled_graphs(simulator.kernel_graph, deviation, count, seed)
    return np.array([simulator.replay_us(placement, graph) for graph in graphs])
