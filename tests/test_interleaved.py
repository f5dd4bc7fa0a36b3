"""Layers dealt to the devices by turns: on a grid of layers and time steps."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from conftest import on_gpus
from test_split_search import two_hosts

from pesto_cli.data.graph import OpGraph, Tensor
from pesto_cli.data.machine import CommModel, Device, Link, Machine
from pesto_cli.data.problem import Problem
from pesto_cli.evaluation.violations import violations
from pesto_cli.files.tensorflow_names import labelled
from pesto_cli.strategies import Context
from pesto_cli.strategies.expert import Expert
from pesto_cli.strategies.interleaved import Interleaved


def server(num_gpus: int, speeds: tuple[float, ...] = (1.0,)) -> Machine:
    """GPUs with transfers of 0.01 us."""
    names, comm = [f"GPU:{index}" for index in range(num_gpus)], CommModel(0.01, 0)
    devices = (
        Device(name, "GPU", 10**9, speeds[index % len(speeds)]) for index, name in enumerate(names)
    )
    links = (Link(src, dst, comm) for src in names for dst in names if src != dst)
    return Machine(tuple(devices), tuple(links))


def grid(num_layers: int, num_steps: int, machine: Machine) -> Problem:
    """A cell of 1 us waits for the cell below it and for the one of the step before."""
    names = [
        f"layer_{layer}/step_{step}/cell"
        for layer in range(num_layers)
        for step in range(num_steps)
    ]
    tensors = [
        Tensor(
            layer * num_steps + step,
            8,
            [
                other * num_steps + later
                for other, later in ((layer + 1, step), (layer, step + 1))
                if other < num_layers and later < num_steps
            ],
        )
        for layer in range(num_layers)
        for step in range(num_steps)
    ]
    return on_gpus(labelled(OpGraph.build(names, tensors)), [1.0] * len(names), machine)


def test_a_device_waits_for_one_layer_of_each_other_device() -> None:
    problem = grid(8, 12, server(4))
    contiguous = Expert()(problem, Context()).schedule
    by_turns = Interleaved()(problem, Context()).schedule
    assert violations(problem, by_turns) == []
    # Each device has two layers of 12 steps. Before the last device begins, a step passes three
    # layers, and not six.
    assert by_turns.makespan_us == pytest.approx(24 + 3, abs=0.5)
    assert contiguous.makespan_us >= 24 + 6
    assert (by_turns.device.reshape(8, 12) == np.arange(8)[:, None] % 4).all()


def test_fast_devices_get_more_layers() -> None:
    problem = grid(12, 24, server(2, speeds=(2.0, 1.0)))
    schedule = Interleaved()(problem, Context()).schedule
    assert np.bincount(schedule.device).tolist() == [8 * 24, 4 * 24]


def test_hosts_have_contiguous_layers_if_the_network_is_slow() -> None:
    machine = two_hosts()
    hosts = {device.name: device.name.partition("/")[0] for device in machine.devices}
    links = tuple(
        replace(link, comm=CommModel(0.01 if hosts[link.src] == hosts[link.dst] else 1.5, 0))
        for link in machine.links
    )
    problem = grid(8, 12, replace(machine, links=links))
    schedule = Interleaved()(problem, Context()).schedule
    host_of_layer = [
        {hosts[machine.devices[device].name] for device in row}
        for row in schedule.device.reshape(8, 12)
    ]
    assert all(len(found) == 1 for found in host_of_layer)
    assert sum(one != other for one, other in pairwise(host_of_layer)) == 1


def test_a_stopped_search_gets_one_schedule() -> None:
    context = Context()
    context.limits.stop.set()
    problem = grid(4, 3, server(2))
    assert violations(problem, Interleaved()(problem, context).schedule) == []
