"""Large problems in the shape of training graphs, made without TensorFlow."""

from dataclasses import replace
from itertools import permutations

import numpy as np

from pesto_cli.data.graph import OpGraph, Tensor
from pesto_cli.data.machine import Link, Machine
from pesto_cli.data.presets import PRESETS
from pesto_cli.data.problem import Problem

WIDTH = 8


def many_gpus(num_devices: int) -> Machine:
    """Return a machine of a CPU and V100s, `num_devices` in all, with a link for each pair."""
    one_gpu = PRESETS["v100x2-nvlink"]
    cpu, gpu, _ = one_gpu.devices
    devices = (cpu, *(replace(gpu, name=f"GPU:{number}") for number in range(num_devices - 1)))
    comm = {link.src == "CPU:0" or link.dst == "CPU:0": link.comm for link in one_gpu.links}
    links = tuple(
        Link(src.name, dst.name, comm[cpu in (src, dst)]) for src, dst in permutations(devices, 2)
    )
    return Machine(devices, links, kinds=one_gpu.kinds)


def layered(num_ops: int, seed: int = 0, machine: Machine = PRESETS["v100x2-nvlink"]) -> Problem:
    """Return layers of eight parallel branches that are joined by a sum, forward and backward.

    A backward layer consumes the outputs of its forward layer, as gradients do.
    """
    random = np.random.default_rng(seed)
    num_layers = num_ops // WIDTH
    tensors = []
    for op in range(num_ops):
        layer, branch = divmod(op, WIDTH)
        meets = (layer + 1) * WIDTH
        consumers = [meets] if branch else [meets - WIDTH + other for other in range(1, WIDTH)]
        mirror = (num_layers - 1 - layer) * WIDTH + branch
        if mirror > op and branch:
            consumers.append(mirror)
        tensors.append(
            Tensor(op, int(random.integers(1, 2**22)), [c for c in consumers if op < c < num_ops])
        )
    time_us = np.round(random.lognormal(2.5, 1.2, num_ops), 3)
    names = [f"layer_{op // WIDTH}/branch_{op % WIDTH}" for op in range(num_ops)]
    return Problem.build(OpGraph.build(names, tensors), {"GPU": time_us}, machine)
