"""Several hosts: their links, which devices share a host, and cluster files in another order."""

import signal
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from test_apply_in_tensorflow import round_robin_placement
from test_live import EXAMPLE

from benchmarks.hosts import Hosts, kill_during
from pesto_cli.cluster.cluster_file import ClusterFile, read_cluster_file
from pesto_cli.cluster.links import Location, nominal_links
from pesto_cli.data.graph import OpGraph
from pesto_cli.data.machine import CommModel, Device, Machine
from pesto_cli.data.presets import PRESETS
from pesto_cli.data.problem import Problem
from pesto_cli.files import CommFit, link_kinds, with_comm
from pesto_cli.graphdef.programs.capture import capture
from pesto_cli.graphdef.read import read_step
from pesto_cli.runtime.comparison import planned_run
from pesto_cli.strategies.devices import hosts_of_devices


def test_a_task_is_killed_only_if_the_command_runs_so_long() -> None:
    with (
        subprocess.Popen(["sleep", "60"]) as task,
        subprocess.Popen(["true"]) as ended,
        subprocess.Popen(["sleep", "60"]) as command,
    ):
        kill_during(ended, task, 60)
        assert task.poll() is None
        kill_during(command, task, 0.01)
        assert task.wait() == -signal.SIGKILL
        command.kill()


def machine_of(host_of: Mapping[str, str]) -> Machine:
    """Return a machine with one CPU device for each task. host_of: task -> host."""
    where = {f"{task}/CPU:0": Location(host, task) for task, host in host_of.items()}
    devices = [Device(name, "CPU", 2**40) for name in where]
    return Machine(tuple(devices), nominal_links(devices, where))


def machine(hosts: str) -> Machine:
    """Return a machine with one task for each letter, on the host of this name."""
    return machine_of({f"worker:{task}": host for task, host in enumerate(hosts)})


def hosts_on(machine: Machine) -> list[str]:
    graph = OpGraph.build(["op"])
    times = {device.kind: [1.0] for device in machine.devices}
    return hosts_of_devices(Problem.build(graph, times, machine))


@pytest.mark.parametrize(
    ("hosts", "channels"),
    [
        ("ab", {""}),
        ("aabb", {"", "out of a", "out of b"}),
        (
            "abc",
            {f"out of {one}, out of {other}" for one in "abc" for other in "abc" if one != other},
        ),
    ],
)
def test_links_are_timed_for_each_pair_of_hosts(hosts: str, channels: set[str]) -> None:
    assert {channel for _, _, channel in link_kinds(machine(hosts))} == channels


def test_a_slow_network_card_has_its_own_times_and_stays_one_queue() -> None:
    three = machine("abc")
    fits = [
        CommFit(src, dst, CommModel(100.0, 0.08 if "c" in channel else 0.01), channel=channel)
        for src, dst, channel in link_kinds(three)
    ]
    measured = with_comm(three, fits)
    found = {(link.src[7], link.dst[7]): link for link in measured.links}
    assert found["0", "1"].comm.us_per_byte == found["1", "0"].comm.us_per_byte == 0.01
    assert {found[pair].comm.us_per_byte for pair in (("0", "2"), ("2", "1"))} == {0.08}
    assert found["0", "1"].channel == found["0", "2"].channel == "out of a"


def test_a_fit_for_a_whole_card_is_used_for_all_its_links() -> None:
    fits = [CommFit("CPU", "CPU", CommModel(5.0, 1.0), channel="out of a")]
    found = {(link.src, link.dst): link.comm for link in with_comm(machine("abc"), fits).links}
    from_a = {comm.latency_us for (src, _), comm in found.items() if src == "worker:0/CPU:0"}
    assert from_a == {5.0}


@pytest.mark.parametrize(
    ("hosts", "expected"), [("ab", [0, 1]), ("aabb", [0, 0, 2, 2]), ("abcab", [0, 1, 2, 0, 1])]
)
def test_tasks_behind_one_network_card_are_on_one_host(hosts: str, expected: list[int]) -> None:
    assert hosts_on(machine(hosts)) == [f"worker:{task}" for task in expected]


def test_devices_of_one_task_are_on_one_host() -> None:
    names = [device.name.rpartition("/")[0] for device in PRESETS["2x8-v100"].devices]
    assert hosts_on(PRESETS["2x8-v100"]) == names


@pytest.mark.parametrize("num_hosts", [2, 3])
def test_a_placement_remains_valid_if_the_cluster_file_lists_the_hosts_in_another_order(
    tmp_path: Path, num_hosts: int
) -> None:
    meta = capture(EXAMPLE).meta
    placed = round_robin_placement(read_step(meta))
    devices = {}
    for is_reversed in (False, True):
        file = written(Hosts(num_hosts * [100.0], reversed_=is_reversed), tmp_path / "cluster.toml")
        names = [device.name for device in machine_of(file.host_of).devices]
        placed = replace(placed, devices=names)
        full = {name: f"/job:worker/replica:0/task:{name[7]}/device:CPU:0" for name in names}
        devices[is_reversed] = planned_run(meta, placed, full).changes.device
        first = f"10.77.0.{num_hosts}" if is_reversed else "10.77.0.1"
        assert file.host_of["worker:0"] == first
    assert devices[False] == devices[True]


def written(hosts: Hosts, path: Path) -> ClusterFile:
    path.write_text(hosts.cluster_file)
    return read_cluster_file(path)
