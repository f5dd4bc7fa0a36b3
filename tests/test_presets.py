"""The machine presets: their links, their queues, and placements on them."""

import numpy as np
import pytest
from training_graphs import exported

from benchmarks.scaling import on_machine
from pesto_cli import api
from pesto_cli.apply.devices import tensorflow_devices
from pesto_cli.data.machine import DeviceKind, Machine
from pesto_cli.data.presets import DGX1_NVLINKS, ONE_NVLINK, PRESETS, TWO_NVLINKS
from pesto_cli.files import Profile

MB = 10**6
SWITCHED = ("a100x8-nvswitch", "h100x8-nvswitch")


def gpus(machine: Machine) -> list[int]:
    return [index for index, device in enumerate(machine.devices) if device.kind == "GPU"]


def test_presets_have_the_published_fits() -> None:
    nvlink = PRESETS["v100x2-nvlink"]
    assert nvlink.transfer_us(10**6, 1, 2) == pytest.approx(40.77 + 20.757)
    assert nvlink.transfer_us(10**6, 0, 1) == pytest.approx(7 + 77.778)
    pcie = PRESETS["v100x2-pcie"]
    assert pcie.transfer_us(1, 1, 2) == 15
    assert pcie.transfer_us(10**6, 1, 2) == pytest.approx(5.581 + 100.24)
    assert [device.memory_bytes for device in nvlink.devices[1:]] == [16 * 2**30] * 2


def test_each_gpu_of_a_dgx1_has_six_nvlinks() -> None:
    nvlinks = np.zeros((8, 8), dtype=int)
    for (one, other), number in DGX1_NVLINKS.items():
        nvlinks[one, other] = nvlinks[other, one] = number
    assert nvlinks.sum(axis=1).tolist() == [6] * 8
    machine = PRESETS["v100x8-nvlink"]
    links = gpus(machine)
    us_per_byte = machine.us_per_byte[np.ix_(links, links)]
    assert (us_per_byte == us_per_byte.T).all()
    assert ((us_per_byte == TWO_NVLINKS.us_per_byte) == (nvlinks == 2)).all()
    assert ((us_per_byte == ONE_NVLINK.us_per_byte) == (nvlinks == 1)).all()
    assert machine.transfer_us(MB, links[0], links[1]) == pytest.approx(40.77 + 41.514)
    assert machine.transfer_us(MB, links[0], links[5]) == pytest.approx(5.581 + 100.24)


def test_all_transfers_from_one_server_to_the_other_share_a_queue() -> None:
    machine = PRESETS["2x4-v100"]
    names = [device.name for device in machine.devices]
    assert names[:2] == ["worker:0/CPU:0", "worker:0/GPU:0"]
    assert names[5:7] == ["worker:1/CPU:0", "worker:1/GPU:0"]
    there, back = machine.channel[:5, 5:], machine.channel[5:, :5]
    assert [np.unique(queue).size for queue in (there, back)] == [1, 1]
    within = np.concatenate((machine.channel[:5, :5], machine.channel[5:, 5:])).ravel()
    within = within[within >= 0]
    assert np.unique(within).size == within.size == 2 * 5 * 4
    assert len({there[0, 0], back[0, 0], *within.tolist()}) == 42
    assert machine.transfer_us(MB, 1, 6) == pytest.approx(60 + 85)
    assert machine.signal_us == 60


@pytest.mark.parametrize("name", SWITCHED)
def test_all_transfers_from_a_gpu_behind_a_switch_to_others_share_a_queue(name: str) -> None:
    machine = PRESETS[name]
    links = gpus(machine)
    outgoing = [np.unique(machine.channel[gpu, np.setdiff1d(links, gpu)]) for gpu in links]
    to_host = machine.channel[links, machine.host]
    assert [queue.size for queue in outgoing] == [1] * 8
    assert np.unique([*np.concatenate(outgoing), *to_host]).size == 16


@pytest.mark.parametrize("machine", PRESETS.values(), ids=PRESETS)
def test_every_device_has_a_name_in_tensorflow(machine: Machine) -> None:
    names = [device.name for device in machine.devices]
    found = tensorflow_devices(names, {*range(len(names))}, {})
    task = "/job:worker/task:1" if names[-1].startswith("worker:1/") else ""
    assert found[len(names) - 1] == f"{task}/device:{names[-1].rpartition('/')[2]}"


@pytest.fixture(scope="module")
def two_products():
    def build(tf):
        fed = tf.compat.v1.placeholder(tf.float32, [2048, 2048], name="fed")
        return [tf.add(tf.matmul(fed, fed), tf.matmul(fed, fed + 1.0), name="sum")]

    return exported(build)


@pytest.fixture(scope="module")
def profile_by_kind(two_products) -> dict[DeviceKind, Profile]:
    """The profiles of one machine for each kind of GPU."""
    names = ("2x4-v100", *SWITCHED)
    return {PRESETS[name].kinds["GPU"]: api.profile(two_products, name) for name in names}


@pytest.mark.parametrize("machine", PRESETS.values(), ids=PRESETS)
def test_a_graph_is_placed_on_every_preset(machine: Machine, profile_by_kind) -> None:
    profile = on_machine(profile_by_kind[machine.kinds["GPU"]], machine)
    results = api.compare(profile, ["single", "expert"])
    assert [result.memory_peaks for result in results] == [(), ()]


def test_newer_gpus_are_faster(profile_by_kind) -> None:
    v100, a100, h100 = (
        api.solve(profile, "single").makespan_us for profile in profile_by_kind.values()
    )
    assert v100 > a100 > h100
    assert v100 > 3 * h100
