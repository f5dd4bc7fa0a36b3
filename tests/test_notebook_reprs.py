"""The cards of values in notebooks, as HTML and text, with escaped names."""

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import on_gpus, two_gpus

from pesto_cli import api as pesto
from pesto_cli.data.graph import OpGraph, Tensor
from pesto_cli.data.machine import short_list
from pesto_cli.data.problem import Problem
from pesto_cli.files import Profile
from pesto_cli.report.notebook.strip import NUM_BINS, busy_shares

EXAMPLES = Path(__file__).parent.parent / "examples"


class Cells(HTMLParser):
    """The texts of table cells, row by row; fails if tags are not closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.open: list[str] = []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: Any) -> None:
        if tag != "rect":  # rect tags close themselves
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        if tag != "rect":
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


def shown(shell: Any, value: object) -> tuple[str, str]:
    """Return the text and the HTML of a value."""
    data, _ = shell.display_formatter.format(value)
    return data["text/plain"], data["text/html"]


def test_every_value_shows_the_same_table_as_text_and_html(shell: Any, diamond: Problem) -> None:
    profile = Profile(diamond, {"source": "analytic"})
    result = pesto.solve(profile, "expert")
    values: dict[str, object] = {
        "op graph": diamond.graph,
        "problem": diamond,
        "profile": profile,
        "coarse profile": pesto.coarsen(profile, 2),
        "machine": diamond.machine,
        "placement": pesto.placement(profile, result),
        "schedule": result.schedule,
        "expert": result,
        "comparison": pesto.compare(profile, ["single", "expert"]),
    }
    for title, value in values.items():
        text, html = shown(shell, value)
        assert text.startswith(f"{title}: ")
        rows = Cells(html).rows
        assert len(rows) > 1
        words = text.split()
        assert all(word in words for row in rows for cell in row for word in cell.split()), title
    assert "device 1" in shown(shell, result.schedule.placement)[0]


def test_a_result_names_its_devices(shell: Any, diamond: Problem) -> None:
    result = pesto.solve(Profile(diamond), "expert")
    for shows in shown(shell, result):
        assert "GPU:0" in shows
        assert "device 0" not in shows
    assert "device 0" in shown(shell, result.schedule)[0]


def test_values_print_as_one_short_line(diamond: Problem) -> None:
    profile = pesto.load(EXAMPLES / "rnnlm.profile.json.gz")
    comparison = pesto.compare(profile, ["single", "expert"])
    single = comparison[0]
    devices = "CPU:0, GPU:0, GPU:1"
    for value, part in (
        (profile, f"2,831 ops on {devices}"),
        (profile.problem, f"2,831 ops on {devices}"),
        (profile.problem.graph, "2,831 ops, 2,677 tensors, 1,390 control edges"),
        (profile.problem.machine, devices),
        (single, f"single, feasible, 2,831 ops on {devices}, makespan 128,519.3 us"),
        (comparison, f"single {single.makespan_us:,.1f} us, expert "),
        (pesto.placement(profile, single), f"2,831 ops on {devices}, makespan 128,519.3 us"),
        (pesto.coarsen(Profile(diamond), 2), f"2 nodes for 4 ops on {devices}"),
    ):
        assert part in repr(value)
        assert len(repr(value)) < 160
        assert "\n" not in repr(value)
    assert short_list(f"GPU:{index}" for index in range(99)).endswith("GPU:7 and 91 more")


def test_figures_are_those_of_the_value(shell: Any, diamond: Problem) -> None:
    comparison = pesto.compare(Profile(diamond), ["single"])
    html = shown(shell, comparison)[1]
    assert Cells(html).rows[1][:4] == ["single", "22.00", "14.00", "36.4%"]
    assert "makespan 22.00 us" in shown(shell, comparison[0].schedule)[0]
    assert "4 ops" in shown(shell, diamond.graph)[0]
    assert "2 nodes for 4 ops" in shown(shell, pesto.coarsen(Profile(diamond), 2))[0]


def test_names_are_escaped(shell: Any) -> None:
    evil = "<script>alert(1)</script>"
    graph = OpGraph.build(["a", "b"], [Tensor(0, 8, [1])], types=[evil, "A & B"])
    html = shown(shell, graph)[1]
    assert evil not in html
    assert [row[0] for row in Cells(html).rows] == ["type", evil, "A & B"]
    placed = pesto.placement(
        Profile(on_gpus(graph, [1, 1])), pesto.solve(Profile(on_gpus(graph, [1, 1])), "single")
    )
    placed.devices[1] = evil
    assert evil not in shown(shell, placed)[1]


def test_a_result_that_does_not_fit_shows_the_shortfall(shell: Any) -> None:
    graph = OpGraph.build(["a"], resident_bytes=[300])
    profile = Profile(on_gpus(graph, [1.0], two_gpus(memory_bytes=200)))
    comparison = pesto.compare(profile, ["single"])
    assert "100 B short" in shown(shell, comparison)[0]
    assert "GPU:0 is 100 B short" in shown(shell, comparison[0])[1]


def test_an_empty_graph_is_shown_too(shell: Any) -> None:
    problem = on_gpus(OpGraph.build([]), [])
    for value in (problem.graph, Profile(problem), pesto.compare(Profile(problem), ["single"])):
        assert "0 ops" in shown(shell, value)[0]


def test_strips_add_up_to_the_busy_time() -> None:
    rng = np.random.default_rng(0)
    ends = np.sort(rng.random(200) * 70)
    start_us, end_us = ends[::2], ends[1::2]
    shares = busy_shares(start_us, end_us, 70.0)
    assert shares.sum() * 70 / NUM_BINS == pytest.approx((end_us - start_us).sum())


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.ipynb")), ids=lambda path: path.stem)
def test_notebooks_have_outputs_but_no_traces_of_the_machine(path: Path) -> None:
    text = path.read_text()
    assert len(text) < 400_000
    assert not re.search(r"/(home|root|tmp|usr|Users)/", text)
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert all(cell["outputs"] for cell in cells[1:])
    assert not [cell for cell in cells if cell["metadata"]]


IN_TURN = """
import importlib, sys
from pesto_cli import api as pesto
assert "IPython" not in sys.modules
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
show = lambda: print(shell.display_formatter.format(pesto.load("v100x2-nvlink"))[0]["text/plain"])
show()
importlib.reload(pesto)
show()
"""


def test_the_api_registers_cards_in_ipython_and_does_not_import_it_elsewhere() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IN_TURN], capture_output=True, text=True, check=True
    )
    before, after = (
        done.stdout.index("<Machine: CPU:0, GPU:0, GPU:1>"),
        done.stdout.index("machine: signals"),
    )
    assert before == 0 < after
