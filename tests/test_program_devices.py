"""Devices that a program sets itself are reported, and kept on request."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Pesto
from training_graphs import exported

from pesto_cli import api
from pesto_cli.data.problem import Problem
from pesto_cli.errors import BadInputError, InfeasibleError
from pesto_cli.files import Profile
from pesto_cli.graphdef.program_devices import program_device


@pytest.mark.parametrize(
    ("devices", "pattern"),
    [
        (["/device:GPU:1"], "GPU:1"),
        (["/gpu:1"], "GPU:1"),
        (["/job:localhost/replica:0/task:0/device:CPU:0"], "CPU:0"),
        (["/job:worker/task:1/cpu:0"], "worker:1/CPU:0"),
        (["/job:ps"], "ps:*/*:*"),
        (["/device:GPU:*"], "GPU:*"),
        (["", "/device:GPU:0", ""], "GPU:0"),
        (["/device:GPU:0", "/device:GPU:1"], ""),
        (["", ""], ""),
        (["nowhere"], "nowhere"),
    ],
)
def test_a_tensorflow_device_is_a_pattern_of_names(devices: Sequence[str], pattern: str) -> None:
    assert program_device(devices) == pattern


def two_towers(tf: Any) -> Sequence[Any]:
    """Build two products on GPUs of variables on the CPU, where an optimiser updates them."""
    tf1 = tf.compat.v1
    x = tf1.placeholder(tf.float32, [64, 64], name="x")
    sums = []
    for index in range(2):
        with tf.device("/cpu:0"):
            v = tf1.get_variable(f"v{index}", [64, 64], use_resource=True)
        with tf.device(f"/device:GPU:{index}"):
            name = tf.strings.as_string(tf.shape(x)[0], name=f"text{index}")  # no GPU has strings
            product = tf.matmul(x, v, name=f"product{index}")
            with tf.control_dependencies([name.op]):
                sums.append(tf.reduce_sum(product, name=f"sum{index}"))
    loss = tf.add_n(sums, name="loss")
    train = tf1.train.GradientDescentOptimizer(0.1).minimize(loss)
    return [train, loss]


@pytest.fixture(scope="module")
def priced() -> Profile:
    return api.profile(exported(two_towers), cpu_offload=True)


def placed(profile: Profile) -> Mapping[str, str]:
    found = api.placement(profile, api.solve(profile, "expert"))
    return {
        name: found.devices[device] for name, device in zip(found.names, found.device, strict=True)
    }


def test_ops_stay_on_the_devices_that_the_program_sets(priced: Profile) -> None:
    device = placed(api.keep_devices(priced))
    for index in range(2):
        assert device[f"product{index}"] == device[f"sum{index}"] == f"GPU:{index}"
        assert device[f"v{index}"] == "CPU:0"
        assert device[f"text{index}"] == "CPU:0"
    without = placed(priced)
    assert {without[f"v{index}"] for index in range(2)} != {"CPU:0"}


def test_a_note_reports_the_ops_and_names_the_option(priced: Profile) -> None:
    (note,) = (text for text in priced.provenance["notes"] if "tf.device" in text)
    assert "(CPU:0, GPU:0, GPU:1)" in note
    assert "--keep-devices" in note


def test_a_profile_without_program_devices_is_refused(priced: Profile) -> None:
    with pytest.raises(BadInputError, match="profile the graph again"):
        api.keep_devices(replace(priced, program_device=None))


def test_a_profile_file_stores_program_devices_and_solve_keeps_them(
    priced: Profile, pesto: Pesto, tmp_path: Path
) -> None:
    path, output = tmp_path / "towers.profile.json", tmp_path / "placement.json"
    api.write_profile(path, priced)
    assert api.read_profile(path).program_device == list(priced.program_device or ())
    options = ["--strategy", "single", "--keep-devices", "--quiet"]
    assert pesto("solve", path, "-o", output, *options).code == 0
    found = api.read_placement(output)
    row = found.names.index("product1")
    assert found.devices[found.device[row]] == "GPU:1"
    assert found.provenance["parameters"]["keep_devices"] is True


def rebuilt(profile: Profile, *, cpu_times: bool, devices: Sequence[str]) -> Profile:
    """Return the profile for some of its devices; optionally without CPU times of GPU ops."""
    problem, machine = profile.problem, profile.problem.machine
    machine = replace(
        machine,
        devices=tuple(device for device in machine.devices if device.name in devices),
        links=tuple(link for link in machine.links if {link.src, link.dst} <= set(devices)),
    )
    columns = {kind: problem.time_us[:, problem.kinds.index(kind)] for kind in problem.kinds}
    if not cpu_times:
        columns["CPU"] = np.where(np.isnan(columns["GPU"]), columns["CPU"], np.nan)
    return replace(profile, problem=Problem.build(problem.graph, columns, machine))


def test_devices_that_the_machine_lacks_are_refused(priced: Profile) -> None:
    with pytest.raises(BadInputError, match=r"to GPU:1, such as '.*\(CPU:0, GPU:0\): leave"):
        api.keep_devices(rebuilt(priced, cpu_times=True, devices=["CPU:0", "GPU:0"]))


def test_a_device_on_which_ops_have_no_time_is_refused(priced: Profile) -> None:
    with pytest.raises(InfeasibleError, match=r"no time there.*--cpu-offload"):
        api.keep_devices(rebuilt(priced, cpu_times=False, devices=["CPU:0", "GPU:0", "GPU:1"]))
