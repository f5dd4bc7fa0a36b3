"""Names from files are escaped on a terminal, and unchanged in files."""

import base64
import gzip
import json
import logging
import os
import pty
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import Pesto
from hypothesis import given
from hypothesis import strategies as st

from pesto_cli import api
from pesto_cli.data.graph import OpGraph, Tensor
from pesto_cli.data.presets import PRESETS
from pesto_cli.data.problem import Problem
from pesto_cli.errors import BadInputError
from pesto_cli.files import Profile, write_profile
from pesto_cli.printable import logger, printable, printable_chart
from pesto_cli.report.sections import Section, sections_markdown

# Escape sequences, line ends, marks of writing direction, markup, and a lone surrogate.
HOSTILE = "\x1b[2J\x1b]0;t\x07\x9b1m\r\n::error::\u2028\t\b\u202e\u2066\u200e\u200f\u061c[/b]:x:"
SHOWN = r"\x1b[2J\x1b]0;t\x07\x9b1m\r\n::error::\u2028\t\x08\u202e\u2066\u200e\u200f\u061c[/b]:x:"
QUICK = ("--time-limit", "0.2", "--deterministic")


@given(st.text(st.characters()))
def test_a_printable_text_is_on_one_line_and_is_not_changed_again(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    assert printable(shown) == shown
    assert text.isprintable() == (shown == text)


def test_escapes_are_those_of_python() -> None:
    assert printable(HOSTILE) == SHOWN
    assert printable("mödels 日本 é → ×") == "mödels 日本 é → ×"
    assert printable("half \udc80") == r"half \udc80"


def test_the_message_of_an_error_is_printable_and_its_arguments_are_unchanged() -> None:
    error = BadInputError(f"op {HOSTILE} is unknown")
    assert str(error) == f"op {SHOWN} is unknown"
    assert error.args == (f"op {HOSTILE} is unknown",)


def test_messages_of_a_logger_are_printable(caplog: pytest.LogCaptureFixture) -> None:
    logger("pesto_cli.of_a_test").warning("%s takes 100 %% of %d", HOSTILE, 3)
    assert caplog.messages == [f"{SHOWN} takes 100 % of 3"]
    assert logging.getLogger("pesto_cli.of_a_test").filters == logger("pesto_cli.of_a_test").filters


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a hostile name, and files in which every name is hostile."""
    folder = tmp_path / HOSTILE.replace("/", "")
    folder.mkdir()
    monkeypatch.chdir(folder)
    server = PRESETS["v100x2-nvlink"]
    new = {device.name: device.name + HOSTILE for device in server.devices}
    machine = replace(
        server,
        devices=tuple(replace(each, name=new[each.name]) for each in server.devices),
        links=tuple(
            replace(each, src=new[each.src], dst=new[each.dst], channel=f"{each.src}{HOSTILE}")
            for each in server.links
        ),
    )
    names = [f"{letter}/{HOSTILE}/{letter}" for letter in "abcd"]
    graph = OpGraph.build(
        names,
        [Tensor(0, 1000, [1, 2]), Tensor(1, 10**9, [3]), Tensor(2, 1000, [3])],
        types=["MatMul" + HOSTILE] * 4,
    )
    profile = Profile(Problem.build(graph, {"GPU": [10.0, 900.0, 900.0, 10.0]}, machine))
    write_profile("x.profile.json", profile)
    for strategy in ("single", "round-robin"):
        placed = api.placement(profile, api.solve(profile, strategy))
        api.write_placement(f"{strategy}.placement.json", placed)
    other = Profile(
        Problem.build(
            replace(graph, names=(*names[:3], f"e{HOSTILE}")),
            {"GPU": [10.0, 900.0, 900.0, 10.0]},
            machine,
        )
    )
    api.write_placement("other.placement.json", api.placement(other, api.solve(other, "single")))
    tight = replace(machine, devices=tuple(replace(d, memory_bytes=2000) for d in machine.devices))
    write_profile(
        "tight.profile.json", replace(profile, problem=replace(profile.problem, machine=tight))
    )
    rows = [f'"G{HOSTILE}",GPU,{size},{10 + size / 1000}' for size in (1, 1000, 50_000, 10**6)]
    table = "\n".join(["src_kind,dst_kind,bytes,us", *rows])
    Path("x.csv").write_text(table, newline="")
    bad = json.loads(Path("x.profile.json").read_text())
    bad["ops"]["name"][1] = bad["ops"]["name"][0]
    Path("twice.profile.json").write_text(json.dumps(bad))
    bad["ops"][HOSTILE] = bad["machine"]["devices"][0][HOSTILE] = 1
    Path("unknown.profile.json").write_text(json.dumps(bad))
    Path("c.toml").write_text('[[pin]]\nops = "a*"\ndevice = "\\u001b[2J\\n\\u202e"\n')
    Path("m.toml").write_text('[[devices]]\n"\\u001b[2J\\n" = 1\n')
    return folder


OP = f"b/{HOSTILE}/b"
COMMANDS = {
    "coarsen x.profile.json -n 2 -o coarse.json": 0,
    "simulate x.profile.json --placement round-robin.placement.json --random-orders 2": 0,
    "compare x.profile.json --strategies single,expert": 0,
    "explain x.profile.json round-robin.placement.json": 0,
    "explain x.profile.json round-robin.placement.json OP": 0,
    "explain x.profile.json round-robin.placement.json *": 0,
    "explain x.profile.json round-robin.placement.json no-such-HOSTILE": 2,
    "diff single.placement.json round-robin.placement.json --profile x.profile.json": 0,
    "diff single.placement.json other.placement.json": 0,
    "diff single.placement.json other.placement.json --format md": 0,
    "comm --from x.csv -o x.comm.json": 0,
    "report x.profile.json round-robin.placement.json -o HOSTILE.html": 0,
    "solve x.profile.json -o HOSTILE.placement.json --strategy single": 0,
    "solve x.profile.json -o p.json --strategy pesto --warm-start other.placement.json": 0,
    "solve tight.profile.json -o p.json --strategy single": 3,
    "simulate tight.profile.json --placement single.placement.json": 0,
    "compare tight.profile.json --strategies single,expert": 0,
    "solve twice.profile.json -o p.json": 2,
    "solve unknown.profile.json -o p.json": 2,
    "solve x.profile.json -o p.json --constraints c.toml": 2,
    "solve HOSTILE.profile.json -o p.json": 2,
    "solve x.profile.json -o missing/HOSTILE/p.json": 2,
    "profile x.profile.json -m m.toml -o p.json": 2,
    "solve --HOSTILE": 2,
    "HOSTILE": 2,
}


@pytest.mark.parametrize("command", COMMANDS)
def test_names_on_the_terminal_are_escaped(pesto: Pesto, folder: Path, command: str) -> None:
    argv = [
        {"OP": OP}.get(word, word.replace("HOSTILE", HOSTILE.replace("/", "")))
        for word in command.split()
    ]
    if argv[0] in ("solve", "compare"):
        argv += QUICK
    shown = pesto(*argv)
    assert shown.code == COMMANDS[command], shown.err
    for text in (shown.out, shown.err):
        assert {letter for letter in text if not letter.isprintable()} <= {"\n"}
        assert not re.search(r"^::error::", text, re.MULTILINE)
    assert shown.out or shown.err


def test_json_and_files_have_unchanged_names(pesto: Pesto, folder: Path) -> None:
    shown = pesto("explain", "x.profile.json", "single.placement.json", OP, "--json")
    assert json.loads(shown.out)["name"] == OP
    pesto("solve", "x.profile.json", "-o", "p.json", "--strategy", "single", "--quiet")
    assert api.read_placement("p.json").names[1] == OP
    argv = ("simulate", "x.profile.json", "--placement", "p.json", "--trace", "t.json", "--quiet")
    assert pesto(*argv).code == 0
    events = json.loads(Path("t.json").read_text())["traceEvents"]
    assert OP in {event["name"] for event in events}


def test_a_page_escapes_names(pesto: Pesto, folder: Path) -> None:
    argv = ("report", "x.profile.json", "round-robin.placement.json", "-o", "page.html")
    assert pesto(*argv).code == 0
    page = Path("page.html").read_text()
    (packed,) = re.findall(r">(H4sI[A-Za-z0-9+/=]+)<", page)
    data = gzip.decompress(base64.b64decode(packed)).decode()
    json.loads(data)
    visible = re.sub(r"(?s)<(script|style).*?</\1>", "", page)
    for text in (visible, data):
        assert {letter for letter in text if not letter.isprintable()} <= {"\n"}
        assert "::error::" in text


def test_tables_within_charts_keep_their_lines() -> None:
    table = "name,us\na,1\nb,2\n"
    chart = {"data": {"values": table}, "datasets": {"data-1": table}, "title": "a\nb"}
    assert printable_chart(chart) == {**chart, "title": "a\\nb"}


def test_charts_accept_any_name(folder: Path) -> None:
    profile = api.read_profile("x.profile.json")
    placed = api.read_placement("round-robin.placement.json")
    for chart in (api.timeline, api.memory, api.layers):
        api.save("chart.svg", chart(profile, placed))
        drawn = Path("chart.svg").read_text()
        assert {letter for letter in drawn if not letter.isprintable()} <= {"\n"}
        assert "GPU:0" in drawn


def test_markdown_has_each_name_on_one_line(folder: Path) -> None:
    section = Section(
        HOSTILE, [HOSTILE], [HOSTILE, "n"], [[HOSTILE, "1"]], ops={HOSTILE: [HOSTILE]}
    )
    text = sections_markdown(HOSTILE, [section])
    assert {letter for letter in text if not letter.isprintable()} <= {"\n"}
    assert not [line for line in text.splitlines() if line.startswith("::")]


def test_a_terminal_gets_colours_but_no_escape_sequence_of_a_name(folder: Path) -> None:
    """Without the escape sequences of rich, the output is printable."""
    argv = ("compare", "x.profile.json", "--strategies", "single,pesto", "--time-limit", "1")
    program = "import sys; from pesto_cli.cli import main; main()"
    process, terminal = pty.fork()
    if process == 0:
        environ = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "200"}
        os.execve(sys.executable, [sys.executable, "-c", program, *argv], environ)
    shown = b""
    while True:
        try:
            shown += os.read(terminal, 65536)
        except OSError:
            break
    os.close(terminal)
    assert os.waitpid(process, 0)[1] == 0
    text = shown.decode()
    assert "\x1b[1m" in text  # headers
    assert "\x1b[?25h" in text  # the cursor is shown again
    rest = re.sub(r"\x1b\[(\d*(;\d+)*m|2K|1A|\?25[lh])", "", text)
    assert {letter for letter in rest if not letter.isprintable()} <= {"\r", "\n"}
    assert r"\x1b[2J" in rest


def test_arguments_that_are_not_text_are_reported(diamond_profile: Path) -> None:
    program = "import sys; from pesto_cli.cli import main; main()"
    argv = [sys.executable, "-c", program, "explain", str(diamond_profile), b"p\xff\x1b.json"]
    done = subprocess.run(argv, capture_output=True)
    assert done.returncode == 2
    assert rb"p\udcff\x1b.json does not exist" in done.stderr
