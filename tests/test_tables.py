"""Tables are complete in terminals of any width, and times have enough digits."""

import io
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from conftest import Pesto, on_gpus
from rich.console import Console
from test_cli import save
from test_progress import run_in_terminal

from pesto_cli.data.graph import OpGraph, Tensor
from pesto_cli.data.limits import Limits
from pesto_cli.data.machine import CommModel, Device, Link, Machine
from pesto_cli.data.problem import Problem
from pesto_cli.report.counts import count_text
from pesto_cli.report.layouts import Layouts, layouts
from pesto_cli.report.tables import comparison, expert_remark
from pesto_cli.report.times import TimeScale, time_text
from pesto_cli.strategies import Context
from pesto_cli.strategies.run import run

MIB = 2**20


def short_of_memory(num_gpus: int = 2) -> Problem:
    """Every GPU has 100 MiB, and each of as many ops holds 200 MiB of variables for 128.5 ms."""
    names = ["CPU:0", *(f"GPU:{index}" for index in range(num_gpus))]
    machine = Machine(
        tuple(Device(name, name[:3], 100 * MIB) for name in names),
        tuple(Link(src, dst, CommModel(1, 0)) for src in names for dst in names if src != dst),
    )
    ops = [str(op) for op in range(num_gpus)]
    graph = OpGraph.build(ops, resident_bytes=[200 * MIB] * num_gpus)
    return on_gpus(graph, [128_500.0] * num_gpus, machine)


def compared(problem: Problem) -> Layouts:
    names = ("single", "round-robin")
    results = [run(problem, name, Context(Limits(time_limit_s=0.1))) for name in names]
    return comparison("a/title/that/is/a/path/of/some/length.json", problem, results)


def lines_of(shown: Layouts, columns: int) -> Sequence[str]:
    terminal = io.StringIO()
    Console(file=terminal, width=columns).print(shown)
    return [line.rstrip() for line in terminal.getvalue().splitlines()]


def test_an_expert_that_is_slower_than_a_single_device_gets_a_remark() -> None:
    chain = OpGraph.build(["a", "b"], [Tensor(0, 10**6, [1])])
    found = run(on_gpus(chain, [10.0, 10.0]), "single", Context())
    later = replace(found.schedule, end_us=found.schedule.end_us + 5.0)
    slower = replace(found.solution, schedule=later)
    for expert, remark in ((found.solution, None), (slower, "expert is 25.0% slower than single")):
        said = expert_remark([found, replace(found, strategy="expert", solution=expert)])
        assert said == remark or (remark and said and said.startswith(remark))
    assert expert_remark([replace(found, strategy="expert")]) is None


@pytest.mark.parametrize("columns", [30, 40, 60, 80, 100, 120, 200])
def test_no_figure_is_cut_in_a_terminal_of_any_width(columns: int) -> None:
    lines = lines_of(compared(short_of_memory()), columns)
    assert max(map(len, lines)) <= columns
    shown = "".join("".join(lines).split())
    assert "…" not in shown
    assert shown.startswith("a/title/that/is/a/path/of/some/length.json")
    if columns >= 60:  # below, a cell may take several lines
        for figure in ("257.00", "128.50", "single", "round-robin", "300.00MiBshort"):
            assert figure in shown


@pytest.mark.parametrize(("columns", "devices_in_a_line"), [(60, 1), (80, 1), (120, 3)])
def test_a_narrow_terminal_has_a_line_for_each_device(columns: int, devices_in_a_line: int) -> None:
    lines = lines_of(compared(short_of_memory()), columns)
    assert max(sum(line.count(f"{kind}:") for kind in ("CPU", "GPU")) for line in lines) >= (
        devices_in_a_line
    )
    both_short = [line for line in lines if line.endswith("GPU:1 100.00 MiB short")]
    alone = [line.strip() for line in lines if line.strip() == "100.00 MiB short"]
    assert len(both_short) == (devices_in_a_line > 1)
    assert len(alone) == 2 * (devices_in_a_line == 1)


def test_a_file_has_one_line_for_each_strategy_with_any_number_of_devices(
    pesto: Pesto, tmp_path
) -> None:
    profile = save(tmp_path / "many.json", short_of_memory(num_gpus=12))
    done = pesto("compare", profile, "--strategies", "single,round-robin", "--quiet")
    (row,) = (line for line in done.out.splitlines() if "round-robin" in line)
    assert row.count("100.00 MiB short") == 12
    assert row.count("200.00 MiB") == 12


def test_a_terminal_shows_every_shortfall(tmp_path) -> None:
    profile = save(tmp_path / "short.json", short_of_memory())
    argv = ("compare", str(profile), "--strategies", "round-robin", "--quiet")
    code, output = run_in_terminal(*argv)
    assert code == 0
    assert output.count("100.00 MiB short") == 2


def test_cells_are_not_read_as_markup() -> None:
    shown = layouts("[bold]x[/bold]", ["name", "n"], [["scope[a]/b:0", "1"]])
    assert {"[bold]x[/bold]", "scope[a]/b:0"} <= set(" ".join(lines_of(shown, 80)).split())


def test_a_name_that_is_too_long_breaks_after_a_slash() -> None:
    name = "gradients/layer_0/attention/MatMul_grad/tuple/control_dependency"
    shown = layouts("", ["op", "us"], [[name, "1.00"], ["the end of 'a/b', which was busy", "2"]])
    lines = lines_of(shown, 40)
    assert max(map(len, lines)) <= 40
    start = next(index for index, line in enumerate(lines) if line.startswith("gradients/"))
    pieces = [line.split()[0] for line in lines[start : start + 3]]
    assert "".join(pieces) == name
    assert all(piece.endswith("/") for piece in pieces[:-1])
    assert "the end of 'a/b', which was busy" in "\n".join(lines)


@pytest.mark.parametrize(
    ("time_us", "text"),
    [
        (0, "0.0 us"),
        (0.0125, "0.013 us"),
        (7, "7.000 us"),
        (14, "14.00 us"),
        (110, "110.0 us"),
        (999.5, "999.5 us"),
        (1000, "1.000 ms"),
        (9876.5, "9.877 ms"),
        (64_880, "64.88 ms"),
        (128_519.3, "128.52 ms"),
        (2_000_000, "2000.00 ms"),
    ],
)
def test_a_time_has_at_least_four_digits(time_us: float, text: str) -> None:
    assert time_text(time_us) == text


def test_times_of_one_table_share_unit_and_decimals() -> None:
    scale = TimeScale.of([180.0, 110.0])
    assert (scale.unit, scale.text(180.0), scale.text(110.0)) == ("us", "180.0", "110.0")
    scale = TimeScale.of([500.0, 30_000.0])
    assert (scale.unit, scale.text(500.0), scale.text(30_000.0)) == ("ms", "0.5000", "30.0000")


@pytest.mark.parametrize("seed", range(3))
def test_any_two_times_a_thousandth_apart_look_different(seed: int) -> None:
    for time_us in 10.0 ** np.random.default_rng(seed).uniform(0, 7, 200):
        assert time_text(time_us) != time_text(time_us * 1.001)


def test_a_number_has_its_noun_in_the_singular_or_plural() -> None:
    assert [count_text(count, "step") for count in (0, 1, 2)] == ["0 steps", "1 step", "2 steps"]
