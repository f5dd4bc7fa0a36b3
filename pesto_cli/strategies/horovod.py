"""`horovod`: a copy of the step on each device, and ring all-reduces of fused gradients.

Sergeev and Del Balso, "Horovod: fast and easy distributed deep learning in TensorFlow" (2018).
Every process computes the gradients of its part of the batch. Gradients that are ready on all
devices are copied into a buffer of at most 64 MB, which one ring of all devices adds. There is one
ring at a time. Batch normalisation uses the mean and variance of the part, and losses are not
averaged. Gradients of embeddings are gathered, not added.

Left out: NCCL's division of a share into chunks that are passed on at once, its use of several
rings and of trees, the messages by which processes agree on what is ready, and the time that a
gradient waits for the next cycle; the cycle decides only on what is fused. Ops of rings take their
turn among the ops of a GPU, where a stream of its own would let them run at the same time.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar

import numpy as np

from pesto_cli.data.columns import FloatArray
from pesto_cli.data.plan import ALL_LOCAL
from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import objective
from pesto_cli.data.solution import Solution
from pesto_cli.errors import UnfitError
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.strategies.context import Context
from pesto_cli.strategies.data_parallel import VariableLayout, batch_plan
from pesto_cli.strategies.devices import hosts_of_devices
from pesto_cli.strategies.meshes import devices_of_equal_parts
from pesto_cli.strategies.order import in_order_of_depth, ordered
from pesto_cli.strategies.replicas import Replicas
from pesto_cli.strategies.rings import Ring, add_rings, fused, ring_order


@dataclass(frozen=True)
class Horovod:
    """Data parallelism with ring all-reduces.

    fusion_mb: the largest buffer of several gradients, in units of 2**20 bytes.
    cycle_ms: gradients that become ready in one cycle are fused.
    """

    name: ClassVar[str] = "horovod"
    rewrites: ClassVar[bool] = True
    needs_parts: ClassVar[bool] = True
    fusion_mb: float = 64.0
    cycle_ms: float = 5.0

    def __call__(self, problem: Problem, context: Context) -> Solution:
        """Copy the step, fuse gradients in the order in which they are ready, and add rings.

        Raises:
            UnfitError: the batch cannot be split, or the step computes no gradients.
        """
        devices = devices_of_equal_parts(problem)
        plan = batch_plan(
            replace(problem, local=ALL_LOCAL), devices, variables=VariableLayout.MIRRORED
        )
        replicas = Replicas.of(problem, plan, devices)
        if not replicas.gradients:
            raise UnfitError(
                "the step has no gradients on devices to add; a training step was expected, whose "
                "ops have the phases backward and update: use another strategy."
            )
        order = ring_order(problem.machine, devices, hosts_of_devices(problem))
        rings = fused(
            replicas.gradients,
            _ready_us(replicas),
            _ring_us(problem, [devices[place] for place in order]),
            len(devices),
            self.fusion_mb * 2**20,
            self.cycle_ms * 1e3,
        )
        times_us = add_rings(replicas, rings, order)
        new = _with_times(replicas.expanded(), times_us)
        simulator, device = Simulator(new), replicas.devices(new)
        schedules = ordered(simulator, device), in_order_of_depth(simulator, device)
        schedule = min(schedules, key=lambda each: objective(new, each))
        return Solution(problem, new, np.array(replicas.ops.origin), schedule)


def _with_times(problem: Problem, times_us: Mapping[int, FloatArray]) -> Problem:
    """Return the problem with other times of some ops, `[num_kinds]` each."""
    all_us = problem.time_us.copy()
    all_us[[*times_us]] = np.array([*times_us.values()])
    return replace(problem, time_us=all_us)


def _ready_us(replicas: Replicas) -> list[float]:
    """Return when each gradient is ready on all devices if none is added, in us."""
    problem = replicas.expanded()
    end_us = in_order_of_depth(Simulator(problem), replicas.devices(problem)).end_us
    copies = range(len(replicas.device_of_copy))
    return [
        max(float(end_us[replicas.copied(each.tensor, copy)[0]]) for copy in copies)
        for each in replicas.gradients
    ]


def _ring_us(problem: Problem, ring: list[int]) -> Callable[[Ring], float]:
    """Return a function: the time of the messages over the slowest link of a ring of devices."""
    links = [*pairwise((*ring, ring[0]))]

    def ring_us(each: Ring) -> float:
        num_bytes = each.message.num_bytes
        slowest_us = max(float(problem.machine.transfer_us(num_bytes, *link)) for link in links)
        return each.num_messages * slowest_us

    return ring_us
