"""Tests of file formats: round trips, determinism, atomic writes, and error messages."""

import gzip
import json
import os
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pesto_cli.data.machine import CommModel, Efficiency
from pesto_cli.data.presets import PRESETS
from pesto_cli.data.problem import Problem
from pesto_cli.data.result import Result, SolveStatus
from pesto_cli.data.solution import Solution
from pesto_cli.errors import BadInputError
from pesto_cli.evaluation.simulator import list_schedule
from pesto_cli.files import (
    CommFit,
    Profile,
    atomic_write,
    placement,
    read_comm,
    read_constraints,
    read_machine,
    read_placement,
    read_profile,
    with_comm,
    write_comm,
    write_placement,
    write_profile,
)

ONE_DEVICE = '[[devices]]\nname = "GPU:0"\nkind = "GPU"\nmemory_bytes = 1\n'


def solved(problem: Problem) -> Result:
    schedule = list_schedule(problem, np.array([1, 1, 2, 1]), np.zeros(4))
    return Result("test", SolveStatus.FEASIBLE, Solution.of(problem, schedule, 1.0), 0.0)


def test_a_profile_is_unchanged_after_a_round_trip(tmp_path: Path, diamond_profile: Path) -> None:
    profile = read_profile(diamond_profile)
    again = tmp_path / "again.json.gz"
    write_profile(str(again), profile)
    assert gzip.decompress(again.read_bytes()) == diamond_profile.read_bytes()
    assert read_profile(again).file_hash == profile.file_hash
    assert profile.problem.duration_us[:, 1].tolist() == [1, 10, 10, 1]
    assert profile.graph_hash == "0" * 64


def test_only_the_required_parts_of_a_profile_are_required(tmp_path: Path) -> None:
    path = tmp_path / "small.json"
    link = {"latency_us": 1, "us_per_byte": 0}
    value = {
        "format": "pesto-profile",
        "version": 1,
        "machine": {
            "devices": [{"name": n, "kind": "GPU", "memory_bytes": 5} for n in "AB"],
            "links": [{"src": "A", "dst": "B", **link}, {"src": "B", "dst": "A", **link}],
        },
        "ops": {"name": ["x", "y"], "time_us": {"GPU": [1, 2.5]}},
        "tensors": {"producer": [0], "bytes": [8], "consumers": [[1]]},
    }
    path.write_text(json.dumps(value))
    problem = read_profile(path).problem
    assert problem.machine.signal_us == 7
    assert problem.duration_us.tolist() == [[1, 1], [2.5, 2.5]]
    assert problem.graph.colocation_group.tolist() == [0, 1]


def edited(path: Path, edit: str) -> Path:
    """Return the profile after one statement was executed on its JSON."""
    value = json.loads(path.read_text())
    exec(edit, {"value": value})
    path.write_text(json.dumps(value))
    return path


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ("value['version'] = True", "is version True of pesto-profile; this pesto reads versions"),
        ("value['version'] = 3", "is version 3 of pesto-profile; this pesto reads versions 1 to 2"),
        ("value['format'] = 'pesto-placement'", "format 'pesto-placement', 'pesto-profile'"),
        (
            "del value['ops']['time_us']",
            "ops has no time_us; a table was expected: make the profile .* again",
        ),
        ("value['ops']['time_us']['GPU'].pop()", "time_us.GPU has 3 entries, 4"),
        ("value['ops']['time_us']['GPU'][0] = -1", "op 'a' has time_us -1"),
        (
            "value['ops']['time_us']['GPU'][0] = 'fast'",
            "ops.time_us.GPU.0 is 'fast'; a number was expected",
        ),
        ("value['tensors']['consumers'][0] = [9, 1]", "tensors.consumers names op 9"),
        ("value['tensors']['bytes'].pop()", "one entry for each tensor"),
        ("value['machine']['links'].pop()", "no link GPU:1 -> GPU:0"),
        (
            "value['machine']['links'][0]['channle'] = 'x'",
            "channle is an unknown key; .* mean 'channel'",
        ),
        ("value['control_edges'] = [[3, 0]]", "cycle: "),
    ],
)
def test_a_broken_profile_is_refused_with_the_reason(
    diamond_profile: Path, edit: str, message: str
) -> None:
    with pytest.raises(BadInputError, match=message):
        read_profile(edited(diamond_profile, edit))


def test_missing_truncated_and_foreign_files_have_different_messages(
    tmp_path: Path, diamond_profile: Path
) -> None:
    with pytest.raises(BadInputError, match="does not exist"):
        read_profile(tmp_path / "nothing.json")
    with pytest.raises(BadInputError, match="is a folder"):
        read_profile(tmp_path)
    data = diamond_profile.read_bytes()
    diamond_profile.write_bytes(data[: len(data) // 2])
    with pytest.raises(BadInputError, match="truncated or damaged"):
        read_profile(diamond_profile)
    diamond_profile.write_bytes(gzip.compress(data)[:-20])
    with pytest.raises(BadInputError, match="truncated or damaged gzip"):
        read_profile(diamond_profile)
    diamond_profile.write_bytes(b"\x0a\x08\xff\xfe graph")
    with pytest.raises(BadInputError, match="is not JSON"):
        read_profile(diamond_profile)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("step.meta", b"\x0a\x08\xff\xfe graph"),
        ("step", b"\x0a\x0c\x0a\x01c\x12\x05Const\xff"),
        ("step.txt", b'node {\n  name: "c"\n'),
    ],
)
def test_a_graph_in_place_of_a_profile_is_recognised(
    tmp_path: Path, name: str, data: bytes
) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(BadInputError, match=f"is a TensorFlow graph; .*pesto profile {path} -m"):
        read_profile(path)


def test_a_saved_model_in_place_of_a_profile_is_recognised(tmp_path: Path) -> None:
    (tmp_path / "saved_model.pb").touch()
    with pytest.raises(BadInputError, match=f"is a folder; .*pesto profile {tmp_path} -m"):
        read_profile(tmp_path)


def test_a_placement_is_unchanged_after_a_round_trip_with_ops_in_another_order(
    tmp_path: Path, diamond: Problem
) -> None:
    path = tmp_path / "p.json"
    result = solved(diamond)
    write_placement(path, placement(Profile(diamond), result))
    value = json.loads(path.read_text())
    for column in value["ops"].values():
        column.reverse()
    path.write_text(json.dumps(value))
    found = read_placement(path).match(diamond)
    assert found.device.tolist() == result.schedule.device.tolist()
    assert found.rank.tolist() == result.schedule.rank.tolist()


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ("value['ops']['name'][0] = 'z'", "of another graph: it lacks 1 ops such as 'a'"),
        ("value['devices'][2] = 'TPU:0'", "uses device 'TPU:0'; one of CPU:0"),
        ("value['ops']['device'][0] = 7", "on device 7"),
        ("value['ops']['rank'][0] = 5", "ranks on GPU:0 are not 0 to 2"),
        ("value['ops']['rank'].pop()", "4, 4 and 3 entries"),
        ("value['ops']['device'][0], value['ops']['rank'] = 0, [0, 0, 0, 1]", "may not run"),
    ],
)
def test_a_broken_placement_is_refused_with_the_reason(
    tmp_path: Path, diamond: Problem, edit: str, message: str
) -> None:
    path = tmp_path / "p.json"
    write_placement(path, placement(Profile(diamond), solved(diamond)))
    with pytest.raises(BadInputError, match=message):
        read_placement(edited(path, edit)).match(diamond)


def test_a_placement_that_splits_a_group_is_refused(tmp_path: Path, diamond: Problem) -> None:
    path = tmp_path / "p.json"
    write_placement(path, placement(Profile(diamond), solved(diamond)))
    together = diamond.constrained(colocation_group=np.array([0, 1, 1, 2]))
    with pytest.raises(BadInputError, match="splits a colocation group: 'b' is on GPU:0, 'c'"):
        read_placement(path).match(together)


GPU_WITH_EFFICIENCY = """
[[devices]]
name = "GPU:0"
kind = "GPU"
memory_bytes = 17_179_869_184
[kinds.GPU]
type = "GPU"
frequency_mhz = 1530
num_cores = 80
bandwidth_gb_s = 900
architecture = "7.0"
[kinds.GPU.efficiency.MatMul]
arithmetic = {arithmetic}
[kinds.GPU.efficiency.""]
memory = 0.75
"""


def test_a_machine_file_has_efficiencies_by_op_type(tmp_path: Path) -> None:
    path = tmp_path / "machine.toml"
    path.write_text("links = []" + GPU_WITH_EFFICIENCY.format(arithmetic=4.2))
    kind = read_machine(str(path)).kinds["GPU"]
    assert kind.efficiency_of("MatMul") == Efficiency(4.2, 1.0)
    assert kind.efficiency_of("Relu") == Efficiency(1.0, 0.75)


@pytest.mark.parametrize("arithmetic", [0, -1, "nan", 1e4, '"fast"'])
def test_an_efficiency_out_of_range_is_refused(tmp_path: Path, arithmetic: object) -> None:
    path = tmp_path / "machine.toml"
    path.write_text("links = []" + GPU_WITH_EFFICIENCY.format(arithmetic=arithmetic))
    with pytest.raises(BadInputError, match=r"kinds\.GPU\.efficiency\.MatMul\.arithmetic"):
        read_machine(str(path))


def test_the_efficiencies_of_a_preset_are_kept_by_a_profile(
    tmp_path: Path, diamond_profile: Path
) -> None:
    profile = read_profile(diamond_profile)
    kinds = PRESETS["h100x8-nvswitch"].kinds
    machine = replace(profile.problem.machine, kinds=kinds)
    again = tmp_path / "again.json"
    write_profile(str(again), replace(profile, problem=replace(profile.problem, machine=machine)))
    assert read_profile(again).problem.machine.kinds == kinds
    assert kinds["GPU"].efficiency


def test_a_machine_file_gives_the_same_machine_as_the_preset(tmp_path: Path) -> None:
    path = tmp_path / "machine.toml"
    path.write_text(
        """
signal_us = 5
[kinds.V100]
type = "GPU"
frequency_mhz = 1530
num_cores = 80
bandwidth_gb_s = 900
architecture = "7.0"
launch_us = 5
no_launch_us = 1
[[devices]]
name = "GPU:0"
kind = "V100"
memory_bytes = 17_179_869_184
[[devices]]
name = "GPU:1"
kind = "V100"
memory_bytes = 17_179_869_184
speed = 0.5
[[links]]
src = "GPU:0"
dst = "GPU:1"
latency_us = 40.77
us_per_byte = 2.0757e-5
channel = "nvlink"
[[links]]
src = "GPU:1"
dst = "GPU:0"
latency_us = 40.77
us_per_byte = 2.0757e-5
channel = "nvlink"
"""
    )
    machine = read_machine(str(path))
    assert machine.kinds["V100"] == PRESETS["v100x2-nvlink"].kinds["GPU"]
    assert machine.channel.tolist() == [[-1, 0], [0, -1]]
    assert machine.devices[1].speed == 0.5
    assert machine.host is None
    assert read_machine("v100x2-pcie") is PRESETS["v100x2-pcie"]


def test_an_unknown_machine_or_bad_toml_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="no preset and no file; one of v100x2-nvlink"):
        read_machine("a100x2")
    path = tmp_path / "machine.toml"
    path.write_text("devices = [")
    with pytest.raises(BadInputError, match="is not TOML"):
        read_machine(str(path))
    path.write_text("devices = []\nlinks = []\nsignal = 3")
    with pytest.raises(BadInputError, match="signal is an unknown key; one of signal_us"):
        read_machine(str(path))
    entry = '[[devices]]\nname = "GPU:0"\nkind = "GPU"\nmemory_bytes = 1\nsped = 0.8\n'
    path.write_text(f"links = []\n{entry}")
    with pytest.raises(BadInputError) as refused:
        read_machine(str(path))
    assert str(refused.value) == (
        f"{path}: devices.0 (GPU:0): sped is an unknown key; one of name, kind, memory_bytes, "
        "speed, op_overhead_us, host was expected. Did you mean 'speed'?"
    )


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("kind", "kidn", "devices.0 (GPU:0): kidn is an unknown key, and kind is missing; one of"),
        ("kind", "kidn", "Did you mean 'kind'?"),
        ("memory_bytes", "memory_gb", "Did you mean 'memory_bytes'?"),
        ("memory_bytes = 1", "", "(GPU:0) has no memory_bytes; a whole number of bytes was"),
        ("= 1", "= '16GB'", "(GPU:0): memory_bytes is '16GB'; a whole number of bytes was"),
        ("= 1", "= -1", "device 'GPU:0' has memory_bytes -1"),
        ("name", "Name", "devices.0 (entry 1): Name is an unknown key, and name is missing"),
        ("[[devices]]", "[[device]]", ": device is an unknown key, and devices is missing"),
        ("[[devices]]", "[devices]", "a list of tables with the keys name, kind, memory_bytes"),
        (
            "= 1",
            "= 1\n[[links]]\nsrc = 'a'\ndst = 'b'",
            "links.0 (a -> b) has no latency_us; a",
        ),
        ("= 1", "= 1\n[kinds.GPU]\ntype = 'TPU'", "type is 'TPU'; 'CPU' or 'GPU' was expected"),
        (ONE_DEVICE, "", "[[devices]] with name, kind and memory_bytes, and, from each"),
        (ONE_DEVICE, "signal_us = 3", "the file has no devices; a list of tables with"),
    ],
)
def test_a_mistake_in_a_machine_file_is_explained(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    path = tmp_path / "machine.toml"
    path.write_text(ONE_DEVICE.replace(old, new))
    with pytest.raises(BadInputError, match=re.escape(message)) as refused:
        read_machine(str(path))
    assert str(refused.value).startswith(str(path))


def test_one_device_needs_no_links_and_two_do(tmp_path: Path) -> None:
    path = tmp_path / "machine.toml"
    path.write_text(ONE_DEVICE)
    assert read_machine(str(path)).links == ()
    path.write_text(ONE_DEVICE + ONE_DEVICE.replace("GPU:0", "GPU:1"))
    with pytest.raises(BadInputError, match=r"no link GPU:0 -> GPU:1; .*: add one"):
        read_machine(str(path))


def test_a_misspelt_preset_is_recognised() -> None:
    with pytest.raises(BadInputError, match="Did you mean 'v100x2-nvlink'"):
        read_machine("v100x2-nvlnk")
    with pytest.raises(BadInputError, match="Did you mean 'local-workers:N'"):
        read_machine("local-worker:2", "local-workers:N", "local-gpus")


def test_a_communication_fit_replaces_the_links_of_its_kind(tmp_path: Path) -> None:
    path = tmp_path / "comm.json"
    write_comm(path, [CommFit("GPU", "GPU", CommModel(3, 4e-5), 0.99, 12)])
    fits = read_comm(path)
    machine = with_comm(PRESETS["v100x2-nvlink"], fits)
    assert machine.latency_us[1, 2] == 3
    assert machine.latency_us[0, 1] == 7
    assert fits[0].r_squared == 0.99
    with pytest.raises(BadInputError, match="at least one common kind of link"):
        with_comm(machine, [CommFit("TPU", "TPU", CommModel(1, 1))])


def test_constraints_are_read_from_toml(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text(
        'headroom = 0.9\n[[pin]]\nops = "a*"\ndevice = "GPU:0"\n[[together]]\nops = "b"'
    )
    constraints = read_constraints(path)
    assert constraints.headroom == 0.9
    assert constraints.pin[0].ops == "a*"
    assert constraints.together == ["b"]
    for text, message in (
        (
            '[[pin]]\nop = "a"\ndevice = "GPU:0"',
            "pin.0 (entry 1): op is an unknown key, and ops is missing; one of ops, device was "
            "expected. Did you mean 'ops'?",
        ),
        ('[[pin]]\nops = "a"', "pin.0 (entry 1) has no device; a text was expected: add it."),
        ('whole = ["a*"]', "whole.0 is 'a*'; a table with the key ops was expected: correct it."),
        (
            '[pin]\nops = "a"',
            "pin is {'ops': 'a'}; a list of tables with the keys ops, device, in TOML each under "
            "[[pin]], was expected: correct it.",
        ),
    ):
        path.write_text(text)
        with pytest.raises(BadInputError, match=re.escape(message)):
            read_constraints(path)


def test_a_failed_write_leaves_nothing_behind(tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    target.write_text("old")
    with pytest.raises(BadInputError, match="does not exist; create it first"):
        atomic_write(tmp_path / "missing" / "out.json", b"new")
    with pytest.raises(BadInputError, match="is a folder"):
        atomic_write(tmp_path, b"new")
    with pytest.raises(TypeError):
        atomic_write(target, "no bytes")  # type: ignore[arg-type]
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_write_follows_a_link_and_writes_to_a_pipe(tmp_path: Path) -> None:
    real, link, pipe = tmp_path / "real", tmp_path / "link", tmp_path / "pipe"
    real.write_text("old")
    link.symlink_to(real)
    atomic_write(link, b"new")
    assert link.is_symlink()
    assert real.read_bytes() == b"new"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    atomic_write(pipe, b"through")
    assert os.read(reader, 100) == b"through"
    os.close(reader)
    assert pipe.is_fifo()


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ("value['tensors']['bytes'][0] = 2**70", "less than or equal"),
        ("value['tensors']['consumers'][0][0] = 2**70", "less than"),
        ("value['machine']['devices'][0]['memory_bytes'] = 10**400", "less than or equal"),
        ("value['machine']['signal_us'] = 1e400", "Infinity is not a number"),
        ("value['ops']['time_us']['GPU'][0] = 1e300", "a number from 0 to 1e"),
        ("value['ops']['time_us']['GPU'][0] = 5e-324", "0, or a time of at least 1e-30"),
        ("value['ops']['time_us']['GPU'][0] = float('nan')", "NaN is not a number"),
        (
            "value['ops'].update(name=[], time_us={}); value['tensors'] = "
            "dict(producer=[], bytes=[], consumers=[]); value['ops'].pop('type'); "
            "[value['ops'].pop(key) for key in ('colocation_group', 'resident_bytes', 'alias_of')]",
            "the graph has no op",
        ),
    ],
)
def test_numbers_beyond_all_bounds_are_refused(
    diamond_profile: Path, edit: str, message: str
) -> None:
    with pytest.raises(BadInputError, match=message):
        read_profile(edited(diamond_profile, edit))


def test_damaged_gzip_and_endless_nesting_are_refused(
    tmp_path: Path, diamond_profile: Path
) -> None:
    packed = bytearray(gzip.compress(diamond_profile.read_bytes()))
    packed[30:34] = b"\xff\xff\xff\xff"
    diamond_profile.write_bytes(packed)
    with pytest.raises(BadInputError, match="damaged gzip"):
        read_profile(diamond_profile)
    diamond_profile.write_text("[" * 200_000)
    with pytest.raises(BadInputError, match="is not JSON"):
        read_profile(diamond_profile)
