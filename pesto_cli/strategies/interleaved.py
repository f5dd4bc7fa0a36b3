"""Layers dealt to the accelerators by turns, as a start of the search.

The layers are cut into more pieces than there are devices, and piece i is on device i modulo their
number. In a pipeline, a device then waits for a piece of each other device before its first op, and
not for all layers of these (interleaved stages: Narayanan et al., "Efficient large-scale language
model training on GPU clusters using Megatron-LM", SC '21, Section 2.2). Here the micro-batches are
the time steps of an unrolled recurrent model, and the order is by upward rank.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pesto_cli.bounds.canonical import rounded
from pesto_cli.data.columns import FloatArray, IntArray
from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import Schedule, objective
from pesto_cli.data.solution import Solution
from pesto_cli.strategies.context import Context
from pesto_cli.strategies.data_parallel import hosts_of
from pesto_cli.strategies.devices import accelerators, speeds
from pesto_cli.strategies.layer_placer import LayerPlacer

ROUNDS = (2, 3, 4, 6, 8)
"""Numbers of pieces for each device that are tried; also a piece for each layer."""


@dataclass(frozen=True)
class Interleaved:
    """Deal layers by turns in several ways; the fastest schedule counts."""

    name: ClassVar[str] = "interleaved layers"

    def __call__(self, problem: Problem, context: Context) -> Solution:
        """Try all ways, as far as there is time; at least one."""
        placer, is_over = LayerPlacer.of(problem), context.limits.begin()
        found = list[Schedule]()
        for part_of_layer in _deals(problem, placer.work_us):
            if found and is_over():
                break
            found.append(placer.schedule(part_of_layer[placer.layers.of_group]))
        return Solution.of(problem, min(found, key=lambda each: objective(problem, each)))


def _deals(problem: Problem, work_us: FloatArray) -> Iterator[IntArray]:
    """Yield the accelerator of each layer, `[num_layers]`.

    work_us: `[num_layers, num_accelerators]`.
    """
    devices = accelerators(problem)
    speed = np.array(speeds(problem, devices))
    for groups in _groups(problem, devices):
        for rounds in ROUNDS:
            turns = np.concatenate([np.tile(group, rounds) for group in groups])
            yield turns[_pieces(work_us.mean(axis=1), speed[turns])]
    yield np.arange(len(work_us)) % len(devices)


def _groups(problem: Problem, devices: Sequence[int]) -> Iterator[list[IntArray]]:
    """Yield groups of accelerators, each for contiguous layers: one of all, and one a host."""
    yield [np.arange(len(devices))]
    host = np.array(hosts_of(problem, devices))
    if host.any():
        yield [np.flatnonzero(host == each) for each in range(int(host.max()) + 1)]


def _pieces(work_us: FloatArray, weights: FloatArray) -> IntArray:
    """Return the piece of each layer, `[num_layers]`; pieces are contiguous.

    The work of a piece is in proportion to its weight. A layer is in the piece in which the middle
    of its work is.
    """
    middle = np.cumsum(work_us) - work_us / 2
    ends = np.cumsum(weights)[:-1] / weights.sum() * work_us.sum()
    return np.searchsorted(rounded(ends), rounded(middle), side="right")
