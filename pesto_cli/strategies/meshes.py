"""Meshes: the devices on which the parts of a split step run, by stage and by part.

A stage has contiguous layers of the model, and devices of its own. With one stage, part i of each
op is on device i: data parallelism. With several stages, each part of the batch runs through all of
them. If there are more parts than devices in a stage, the parts on one device are micro-batches,
and the stages are a pipeline (Huang et al., GPipe, 2019, Section 2).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pesto_cli.bounds.canonical import rounded
from pesto_cli.coarsen.layers import layers_of_groups
from pesto_cli.data.columns import FloatArray, IntArray
from pesto_cli.data.problem import Problem
from pesto_cli.data.problem_cache import cached_per_problem
from pesto_cli.sharding.decisions import MAX_PARTS
from pesto_cli.sharding.problems import prices_of
from pesto_cli.strategies.balanced_cuts import balanced_cuts
from pesto_cli.strategies.devices import accelerators, speeds

# A device of a pipeline has at most this many micro-batches.
MAX_MICRO_BATCHES = 4
# The least size of a part in proportion to the speed of its device, as a share of the smallest part
# that the profile prices. A part of at most half the smallest priced part has no price.
LEAST_SHARE = 2 / 3


@dataclass(frozen=True)
class Mesh:
    """The devices of parts.

    stages: the devices of each stage, equally many. A device that occurs twice has two parts.
    num_micro_batches: number of parts of each entry of a stage.
    """

    stages: tuple[tuple[int, ...], ...]
    num_micro_batches: int = 1

    @property
    def width(self) -> int:
        """Number of parts that run at once: the devices of a stage."""
        return len(self.stages[0])

    @property
    def num_parts(self) -> int:
        """Number of parts of each op."""
        return self.width * self.num_micro_batches

    def devices(self, stages: IntArray | int, parts: IntArray) -> IntArray:
        """Return the device of each of several parts of ops of stages, `[num_parts]`.

        If there are more parts than devices, part i is on device i modulo the number of devices.
        """
        found: IntArray = np.array(self.stages)[stages, parts % self.width]
        return found

    def __str__(self) -> str:
        """Return a short description, such as `8 parts on 2 x 4` for two stages of four devices."""
        grid = f"{len(self.stages)} x {self.width}" if len(self.stages) > 1 else f"{self.width}"
        return f"{self.num_parts} parts on {grid}"


def stages_of_width(devices: Sequence[int], width: int) -> tuple[tuple[int, ...], ...]:
    """Divide devices into stages of `width` devices each."""
    return tuple(tuple(devices[first : first + width]) for first in range(0, len(devices), width))


def most_parts(problem: Problem) -> int:
    """Return the largest number of equal parts that is priced, and that a plan may have."""
    return min(max(prices_of(problem).numbers), MAX_PARTS)


def devices_of_equal_parts(problem: Problem, num_parts: int | None = None) -> list[int]:
    """Return the device of each of some equal parts: part i is on entry i, `[num_parts]`.

    These are the accelerators in the order of the machine. If there are fewer parts, these are on
    the fastest accelerators; if there are more, all accelerators have several, by turns.

    num_parts: if None, one for each accelerator, but at most as many as are priced.

    Raises:
        UnfitError: the problem has no prices of parts.
    """
    devices, most = accelerators(problem), most_parts(problem)
    num_parts = min(len(devices), most) if num_parts is None else num_parts
    fastest = np.argsort(-rounded(np.array(speeds(problem, devices))), kind="stable")[:num_parts]
    used = [devices[index] for index in sorted(fastest.tolist())]
    return [used[part % len(used)] for part in range(num_parts)]


def weights_of_parts(
    problem: Problem, devices: Sequence[int], *, proportional: bool = True
) -> list[float]:
    """Return the relative sizes of parts: equal, or in proportion to the speeds of their devices.

    In proportion, no part is much smaller than the smallest part that is priced, see `LEAST_SHARE`.

    Raises:
        UnfitError: the problem has no prices of parts.
    """
    if not proportional:
        return [1.0] * len(devices)
    weights = np.array(speeds(problem, devices))
    least = LEAST_SHARE / max(most_parts(problem), len(devices))
    is_least = np.zeros(len(devices), dtype=np.bool_)
    while ((too_small := weights < least * weights.sum()) & ~is_least).any():
        is_least |= too_small
        others = weights[~is_least].sum()
        weights[is_least] = others * least / (1 - least * is_least.sum())
    found: list[float] = weights.tolist()
    return found


def meshes(problem: Problem, max_parts: int) -> Iterator[Mesh]:
    """Yield meshes of all accelerators, and of subsets of them, with 2 to `max_parts` parts.

    Devices are divided in the order of the machine, so a stage has devices of one host if it can.
    The devices of a subset are the first ones; hosts are assumed to be alike.
    """
    devices = accelerators(problem)
    count = len(devices)
    while count > 1:
        for width in range(count, 0, -1):
            if count % width:
                continue
            stages = stages_of_width(devices[:count], width)
            for times in range(1, (MAX_MICRO_BATCHES if len(stages) > 1 else 1) + 1):
                if times & (times - 1) == 0 and 2 <= width * times <= max_parts:
                    yield Mesh(stages, times)
        count //= 2


@cached_per_problem
def layer_of_ops(problem: Problem) -> IntArray:
    """Return the index of the layer of each op in forward order, `[num_ops]`."""
    layers = layers_of_groups(problem.graph, problem.min_duration_us)
    return layers.of_group[problem.graph.colocation_group]


def stages_of_layers(work_us: FloatArray) -> IntArray:
    """Return the stage of each layer, `[num_layers]`: contiguous layers with balanced work.

    work_us: the work of each layer on the devices of each stage, `[num_layers, num_stages]`.
    """
    cuts: Sequence[int] = balanced_cuts(rounded(work_us))
    return np.searchsorted(cuts, np.arange(len(work_us)), side="right")
