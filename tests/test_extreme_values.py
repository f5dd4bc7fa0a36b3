"""Extreme values: numbers beyond 64 bits, sums that overflow, deep nesting, odd texts."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Pesto, on_gpus, two_gpus
from test_bad_input import node, small_graph

from pesto_cli.cluster.cluster_file import read_cluster_file
from pesto_cli.data.graph import OpGraph, Tensor
from pesto_cli.data.machine import CommModel, Device, Link, Machine
from pesto_cli.errors import BadInputError
from pesto_cli.files import read_machine
from pesto_cli.files.storage import MAX_DEPTH, dumps, loads, read_toml
from pesto_cli.graphdef.containers import read_meta_graph
from pesto_cli.graphdef.read import read_step
from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.profile.comm import fit, read_samples
from pesto_cli.profile.traces.chrome_timeline import read_chrome, viewer_lines
from pesto_cli.profile.traces.received import ReceivedLabel

SINGLE = ("--strategy", "single", "--quiet")


def changed(path: Path, entry: Sequence[str | int], value: Any) -> None:
    content = json.loads(path.read_text())
    *way, last = entry
    inner = content
    for key in way:
        inner = inner[key]
    inner[last] = value
    path.write_text(json.dumps(content))


@pytest.mark.parametrize("value", [-(10**30), 10**30, -(2**63) - 1, 2**63, -(10**400)])
@pytest.mark.parametrize(
    "entry",
    [
        ("tensors", "bytes", 0),
        ("tensors", "producer", 0),
        ("tensors", "consumers", 0, 0),
        ("ops", "resident_bytes", 0),
        ("ops", "alias_of", 0),
        ("machine", "devices", 0, "memory_bytes"),
        ("control_edges",),
    ],
    ids=lambda entry: ".".join(map(str, entry)),
)
def test_a_number_beyond_64_bits_is_named(
    pesto: Pesto, diamond_profile: Path, entry: Sequence[str | int], value: int
) -> None:
    changed(diamond_profile, entry, [[0, value]] if entry == ("control_edges",) else value)
    refused = pesto("solve", diamond_profile, "-o", diamond_profile.parent / "p.json", *SINGLE)
    assert refused.code == 2
    assert str(entry[-1] if isinstance(entry[-1], str) else entry[1]) in refused.err


def test_a_graph_built_of_numbers_beyond_64_bits_is_refused() -> None:
    for column in ("resident_bytes", "alias_of", "num_members"):
        with pytest.raises(
            BadInputError, match=f"ops.{column} has a number that does not fit into 64 bits"
        ):
            OpGraph.build(["a"], **{column: [-(10**30)]})  # type: ignore[arg-type]
    with pytest.raises(BadInputError, match=r"tensors\.bytes has a number"):
        OpGraph.build(["a"], [Tensor(0, 10**30)])


def with_comm(**values: float) -> Machine:
    comm = CommModel(**({"latency_us": 1.0, "us_per_byte": 0.001} | values))
    return Machine((Device("a", "GPU", 1), Device("b", "GPU", 1)), tuple(links(comm)))


def links(comm: CommModel) -> list[Link]:
    return [Link("a", "b", comm), Link("b", "a", comm)]


@pytest.mark.parametrize("us", [1e13, 1e308, float("inf"), float("nan"), -1.0])
def test_times_of_a_machine_are_limited(us: float) -> None:
    for name in ("latency_us", "us_per_byte", "min_us", "wait_us", "sender_us"):
        with pytest.raises(
            BadInputError, match=rf"a -> b has {name} .*; a number from 0 to 1e\+12"
        ):
            with_comm(**{name: us})
    with pytest.raises(BadInputError, match="signal_us is"):
        Machine((Device("a", "GPU", 1),), (), signal_us=us)
    with pytest.raises(BadInputError, match="has op_overhead_us"):
        Machine((Device("a", "GPU", 1, op_overhead_us=us),), ())


@pytest.mark.parametrize("speed", [float("inf"), 1e300, 5e-324, 0.0, -1.0, float("nan")])
def test_the_speed_of_a_device_is_limited(speed: float) -> None:
    with pytest.raises(BadInputError, match=r"has speed .*; a number from 1e-09 to 1e\+09"):
        Machine((Device("a", "GPU", 1, speed=speed),), ())


CHAIN = OpGraph.build(["a", "b"], [Tensor(0, 2**45, [1])])


@pytest.mark.parametrize(
    ("graph", "machine", "words"),
    [
        (
            OpGraph.build(["a", "b"], resident_bytes=[2**51, 2**51 + 1024]),
            two_gpus(),
            "the variables of all ops add up to 4.504e+15 bytes",
        ),
        (
            OpGraph.build(["a", "b"], [Tensor(0, 2**62), Tensor(1, 2**62)]),
            two_gpus(),
            "all tensors add up to 9.223e+18 bytes",
        ),
        (CHAIN, with_comm(us_per_byte=1e12), "transfers of all tensors to all devices add up to"),
        (CHAIN, with_comm(sender_us_per_byte=1e12), "transfers of all tensors"),
        (
            OpGraph.build([f"{op}" for op in range(1001)]),
            Machine((Device("a", "GPU", 1, op_overhead_us=1e12),), ()),
            "all ops, each on its slowest device, add up to",
        ),
        (
            OpGraph.build([f"{op}" for op in range(1001)]),
            Machine((Device("a", "GPU", 1),), (), signal_us=1e12),
            "signals to all ops add up to",
        ),
    ],
)
def test_a_total_that_overflows_is_named(graph: OpGraph, machine: Machine, words: str) -> None:
    with pytest.raises(BadInputError) as refused:
        on_gpus(graph, [1.0] * graph.num_ops, machine)
    assert words in str(refused.value)


def test_a_problem_just_below_the_limits_is_solved(pesto: Pesto, diamond_profile: Path) -> None:
    changed(diamond_profile, ("ops", "resident_bytes"), [2**45, 2**45, 0, 0])
    changed(diamond_profile, ("tensors", "bytes"), [2**45, 2**45, 2**45])
    changed(diamond_profile, ("machine", "devices", 1, "memory_bytes"), 2**60)
    output = diamond_profile.parent / "p.json"
    assert pesto("solve", diamond_profile, "-o", output, *SINGLE).code == 0
    assert max(json.loads(output.read_text())["predicted"]["peak_bytes"]) >= 2**46


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = " + "[" * 20_000 + "]" * 20_000, "nested more than"),
        ("x = " + "{a = " * 20_000 + "1" + "}" * 20_000, "nested more than"),
        (".".join(["a"] * 20_000) + " = 1", "nested more than"),
        ("[" + ".".join(["a"] * 20_000) + "]", "nested more than"),
        ("x = " + "9" * 5000, "4300 digits"),
        ("x = -" + "9" * 5000, "4300 digits"),
        ("x = 0x" + "f" * 6000, "more than 64 bits"),
        (f"x = {2**63}", "more than 64 bits"),
    ],
)
@pytest.mark.parametrize("read", [read_machine, read_cluster_file, read_toml])
def test_toml_that_is_too_deep_or_too_large_is_refused(
    tmp_path: Path, read: Callable[[str], Any], text: str, words: str
) -> None:
    path = tmp_path / "m.toml"
    path.write_text(f"{text}\n")
    with pytest.raises(BadInputError, match=words) as refused:
        read(str(path))
    assert str(path) in str(refused.value)
    assert len(str(refused.value)) < 500


def test_keys_of_some_parts_and_texts_with_many_dots_are_toml(tmp_path: Path) -> None:
    path = tmp_path / "m.toml"
    path.write_text(f'a.b.c.d = ["{".".join(["x"] * 200)}", "{"x, " * 200}"]\n')
    assert len(read_toml(path)["a"]["b"]["c"]["d"][0]) == 399


def test_json_may_be_nested_up_to_the_limit() -> None:
    depth = MAX_DEPTH - 1
    json.dumps(loads(b"[" * depth + b"1" + b"]" * depth))
    for depth in (MAX_DEPTH + 1, 900, 100_000):
        with pytest.raises(ValueError, match="nested more than"):
            loads(b"[" * depth + b"1" + b"]" * depth)


@pytest.mark.parametrize(
    "text", [r'["\ud800"]', r'{"\udfff": 1}', r'["\udc00\ud800"]', '["\udcff"]']
)
def test_a_lone_surrogate_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"surrogate|can't decode"):
        loads(text.encode("utf-8", "surrogatepass"))


def test_surrogate_pairs_are_accepted() -> None:
    assert loads(rb'["\ud83c\udf55", "\\ud800"]') == ["\U0001f355", r"\ud800"]


def test_written_files_can_be_read() -> None:
    """This includes the name of a file that is not UTF-8."""
    source = os.fsdecode(b"csv:gr\xf6sse.csv")
    found = loads(dumps({"source": source, "emoji": "\U0001f355"}))
    assert found == {"source": "csv:gr?sse.csv", "emoji": "\U0001f355"}


@pytest.mark.parametrize(
    "entry", [("machine", "devices", 1, "name"), ("ops", "name", 1), ("provenance", "graph_hash")]
)
def test_names_that_cannot_be_written_are_refused_on_reading(
    pesto: Pesto, diamond_profile: Path, entry: Sequence[str | int]
) -> None:
    changed(diamond_profile, entry, "half \ud800")
    refused = pesto("solve", diamond_profile, "-o", diamond_profile.parent / "p.json", *SINGLE)
    assert refused.code == 2
    assert r"half of a surrogate pair in a text" in refused.err
    assert r"half \ud800" in refused.err


def test_a_port_of_5000_digits_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text(f'[cluster]\nworker = ["host:{"1" * 5000}"]\n')
    with pytest.raises(BadInputError, match="HOST:PORT was expected"):
        read_cluster_file(path)


@pytest.mark.parametrize("number", ["9" * 5000, "99999999999"])
def test_an_output_of_5000_digits_is_refused(number: str) -> None:
    meta = small_graph()
    meta.collection_def["train_op"].node_list.value.append(f"y:{number}")
    with pytest.raises(BadInputError, match="op 'y' has 1 outputs"):
        read_step(meta)
    meta = small_graph(lambda graph: graph.node[-1].input.insert(0, f"y:{number}"))
    with pytest.raises(BadInputError, match="NODE or NODE:NUMBER was expected"):
        read_step(meta)


def test_text_graphs_that_are_nested_too_deep_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "g.pbtxt"
    deep = 'func { name: "f" attr { key: "k" value { ' * 5000
    path.write_text(f'node {{ name: "a" op: "b" attr {{ key: "k" value {{ {deep}')
    with pytest.raises(BadInputError, match="damaged"):
        read_meta_graph(path)


def constants_that_wait(graph_def: Any) -> None:
    """Add a ladder of constants with 2^40 paths of 40 steps each."""
    small = next(each for each in graph_def.node if each.op == "Const")
    for number in range(40):
        for side in "ab":
            constant = graph_def.node.add()
            constant.CopyFrom(small)
            constant.name = f"{side}{number}"
            constant.input[:] = [f"^a{number - 1}", f"^b{number - 1}"] if number else ["^y"]
    names = [f"{side}{number}" for side in "ab" for number in range(40)]
    taker = graph_def.node.add(name="taker", op="AddN", input=names)
    taker.attr["T"].type, taker.attr["N"].i = small.attr["dtype"].type, len(names)
    node(graph_def, "loss").input.append("^taker")


def test_constants_with_control_inputs_are_visited_once() -> None:
    graph = read_step(small_graph(constants_that_wait)).graph
    before, after = graph.index_of["y"], graph.index_of["taker"]
    assert [before, after] in graph.control_edges.tolist()


def large(graph_def: Any) -> None:
    fed = graph_def.node.add(name="large", op="Placeholder")
    fed.attr["dtype"].type = tensorflow().float32.as_datatype_enum
    fed.attr["shape"].shape.dim.add(size=2**45)
    node(graph_def, "loss").input.append("^large")


def test_a_tensor_above_the_limit_is_named() -> None:
    with pytest.raises(BadInputError, match=r"an output of 'large' takes .* bytes; at most"):
        read_step(small_graph(large))


@pytest.mark.parametrize("value", [10**400, -(10**400), float("1e400"), 10**30])
@pytest.mark.parametrize("key", ["ts", "dur"])
def test_events_without_a_time_are_ignored(key: str, value: float) -> None:
    event = {"ph": "X", "pid": 1, "ts": 1, "dur": 2, "name": "a:A"}
    data = json.dumps({"traceEvents": [event | {key: value}, event]}).replace("Infinity", "1e999")
    trace = read_chrome(Path("t"), data.encode())
    assert trace is not None
    (line,) = viewer_lines(trace)
    assert [found.us for found in line.events] == [2.0]


def test_a_value_that_cannot_be_a_key_is_not_a_stat_of_an_event() -> None:
    event = {"ph": "X", "pid": 1, "ts": 1, "dur": 2, "name": "a", "args": {"id": [[1]], "x": 1}}
    (line,) = viewer_lines({"traceEvents": [event]})
    assert line.events[0].stats == {"x": 1}


@pytest.mark.parametrize("figure", ["1.2.3", "9" * 5000])
def test_a_label_without_a_number_is_ignored(figure: str) -> None:
    assert ReceivedLabel.parse(f"[{figure}MB] [1Gb/s] edge_1_x from a to b") is None


@pytest.mark.parametrize("us", ["1e308", "1e13", "9" * 400, "inf", "nan"])
def test_times_in_tables_are_limited(tmp_path: Path, us: str) -> None:
    path = tmp_path / "samples.csv"
    path.write_text(f"src_kind,dst_kind,bytes,us\nGPU,GPU,1,{us}\nGPU,GPU,2,{us}\n")
    with pytest.raises(
        BadInputError, match=r"line 2: us is .*; a number from 0 to 1e\+12"
    ) as refused:
        read_samples(path)
    assert len(str(refused.value)) < 300


def test_transfers_without_a_time_are_not_fitted(tmp_path: Path) -> None:
    path = tmp_path / "samples.csv"
    path.write_text("src_kind,dst_kind,bytes,us\nGPU,GPU,1,0\nGPU,GPU,2,0\n")
    with pytest.raises(BadInputError, match="all took 0 us"):
        fit(read_samples(path))


PESTO = (sys.executable, "-c", "from pesto_cli.cli import main; main()")


@pytest.mark.parametrize("closed", ["2>&-", ">&-", "<&-", "<&- >&- 2>&-"])
def test_closed_streams_change_nothing(diamond_profile: Path, closed: str) -> None:
    output = diamond_profile.parent / "p.json"
    argv = ("solve", str(diamond_profile), "-o", str(output), "--strategy", "heft")
    shell = ("sh", "-c", f'exec "$@" {closed}', "sh", *PESTO, *argv)
    done = subprocess.run(shell, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(output.read_text())["format"] == "pesto-placement"
    assert np.isfinite(json.loads(output.read_text())["predicted"]["makespan_us"])
    refused = subprocess.run((*shell[:4], *PESTO, "solve", "gone", "-o", str(output)))
    assert refused.returncode == 2
