"""The progress of a search, and how it is shown on a terminal and in a log."""

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import Pesto, on_gpus, two_gpus
from test_cli import grid, save

from pesto_cli.data.graph import OpGraph
from pesto_cli.data.limits import Limits
from pesto_cli.data.problem import Problem
from pesto_cli.data.result import Progress
from pesto_cli.data.schedule import Schedule
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.files import read_placement, read_profile
from pesto_cli.report.progress import activity_on_stderr, progress_on_stderr
from pesto_cli.strategies import Context
from pesto_cli.strategies.pesto import BASELINES
from pesto_cli.strategies.run import run

QUICK = Context(Limits(time_limit_s=0.2, deterministic=True))


def progress_of(problem: Problem) -> list[Progress]:
    told: list[Progress] = []
    run(problem, "pesto", replace(QUICK, on_progress=told.append))
    return told


def test_stages_come_in_order_and_name_the_source_of_the_incumbent(diamond: Problem) -> None:
    told = progress_of(diamond)
    assert list(dict.fromkeys(each.stage for each in told)) == [
        "single",
        "expert",
        "interleaved layers",
        *BASELINES,
        "coarse ILP",
        "refinement",
    ]
    # 22 us on one device, 14 us at best: see conftest.
    assert told[0].makespan_us == 22
    makespans = [each.makespan_us for each in told]
    assert makespans == sorted(makespans, reverse=True)
    assert told[-1].makespan_us == 14
    best = next(each for each in told if each.makespan_us == 14)
    assert told[-1].source == best.source == best.stage


def test_the_bound_rises_when_the_ilp_proves_more() -> None:
    figure2 = Path(__file__).parent.parent / "examples" / "figure2.profile.json"
    told = progress_of(read_profile(figure2).problem)
    bounds = [each.lower_bound_us for each in told]
    assert bounds == sorted(bounds)
    assert bounds[0] == pytest.approx(105)
    assert bounds[-1] == pytest.approx(110)
    assert told[-1].gap == pytest.approx(0, abs=1e-6)


def test_an_incumbent_that_does_not_fit_has_its_shortfall() -> None:
    graph = OpGraph.build(["a"], resident_bytes=[100])
    (told, *_) = progress_of(on_gpus(graph, [1], two_gpus(memory_bytes=70)))
    assert told.shortfall_bytes == 30


@pytest.fixture
def schedule() -> Schedule:
    problem = on_gpus(OpGraph.build(["a"]), [1.0])
    return Simulator(problem).list_schedule(np.array([1]), np.zeros(1))


def at(schedule: Schedule, ms: float, bound_ms: float = 10.0, short: int = 0) -> Progress:
    incumbent = replace(schedule, end_us=np.array([1e3 * ms]))
    return Progress("refinement", "refinement", incumbent, short, 1e3 * bound_ms)


def logged(capsys: pytest.CaptureFixture[str], told: list[Progress]) -> list[str]:
    """Return the lines of a log without the times."""
    with progress_on_stderr("pesto", Limits()) as tell:
        for each in told:
            tell(each)
    return [" ".join(line.split()[2:]) for line in capsys.readouterr().err.splitlines()]


def test_a_log_has_incumbent_bound_and_gap(
    capsys: pytest.CaptureFixture[str], schedule: Schedule
) -> None:
    told = [at(schedule, 30.0, short=3 * 2**30), at(schedule, 40.0), at(schedule, 20.0)]
    assert logged(capsys, told) == [
        "30.00 ms bound 10.00 ms 3.00 GiB short refinement",
        "40.00 ms bound 10.00 ms gap 75.0% refinement",
        "20.00 ms bound 10.00 ms gap 50.0% refinement",
    ]


def test_a_log_has_no_gap_until_a_bound_is_proved(
    capsys: pytest.CaptureFixture[str], schedule: Schedule
) -> None:
    assert logged(capsys, [at(schedule, 40.0, bound_ms=0.0), at(schedule, 40.0)]) == [
        "40.00 ms refinement",
        "40.00 ms bound 10.00 ms gap 75.0% refinement",
    ]


def test_a_log_leaves_out_small_changes_except_the_last_one(
    capsys: pytest.CaptureFixture[str], schedule: Schedule
) -> None:
    times = [100.0, 99.95, 99.92, 99.89, 99.85, 99.81]
    lines = logged(capsys, [at(schedule, ms) for ms in times])
    assert [float(line.split()[0]) for line in lines] == [100.0, 99.89, 99.81]


def test_a_log_has_no_two_equal_lines(
    capsys: pytest.CaptureFixture[str], schedule: Schedule
) -> None:
    lines = logged(capsys, [at(schedule, ms) for ms in (100.0, 50.0, 49.9999)])
    assert [float(line.split()[0]) for line in lines] == [100.0, 50.0]


def test_a_log_has_a_line_for_a_higher_bound_but_not_for_a_new_stage(
    capsys: pytest.CaptureFixture[str], schedule: Schedule
) -> None:
    first, higher = at(schedule, 20.0), at(schedule, 20.0, bound_ms=15.0)
    lines = logged(capsys, [first, replace(first, stage="other"), higher])
    assert [line.split("ms ", 1)[1] for line in lines] == [
        "bound 10.00 ms gap 50.0% refinement",
        "bound 15.00 ms gap 25.0% refinement",
    ]


def test_quiet_prints_what_its_help_says(
    pesto: Pesto, tmp_path: Path, diamond_profile: Path
) -> None:
    quick = ("--time-limit", 0.2, "--deterministic", "--quiet")
    solved = pesto("solve", diamond_profile, "-o", tmp_path / "p.json", *quick)
    assert (solved.out, solved.err) == ("", "")
    assert "Print neither progress nor summary." in pesto("solve", "--help").out
    compared = pesto("compare", diamond_profile, *quick)
    assert "round-robin" in compared.out
    assert compared.err == ""
    assert "Print no progress, only the table." in pesto("compare", "--help").out


COLUMNS = 60
HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"


PESTO = "from pesto_cli.cli import main; main()"


def run_in_terminal(
    *argv: str, interrupt_at: str | None = None, script: str = PESTO
) -> tuple[int, str]:
    """Run pesto in a terminal; press Ctrl-C when it shows a text. Return exit code and output."""
    terminal, inside = pty.openpty()
    fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-c", script, *argv],
        stdin=inside,
        stdout=inside,
        stderr=inside,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "", "LINES": ""},
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(inside)
    output, pressed = "", False
    while True:
        try:
            output += os.read(terminal, 1 << 16).decode()
        except OSError:  # the end, for a terminal
            break
        if interrupt_at and interrupt_at in output and not pressed:
            os.write(terminal, b"\x03")
            pressed = True
    os.close(terminal)
    return process.wait(timeout=60), output


def test_a_terminal_has_a_line_for_each_stage_and_is_restored(tmp_path: Path) -> None:
    profile, placement = save(tmp_path / "grid.json", grid(6, 60)), tmp_path / "p.json"
    argv = ("solve", str(profile), "-o", str(placement), "--time-limit", "100", "--workers", "1")
    code, output = run_in_terminal(*argv, interrupt_at="refinement")
    assert code == 130
    assert len(read_placement(placement).device) == 360
    assert output.count(HIDE_CURSOR) == output.count(SHOW_CURSOR) == 1
    assert output.index(HIDE_CURSOR) < output.index(SHOW_CURSOR)
    # The final text of a line is what is written after the last time it was erased.
    lines = [
        re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", re.split(r"\x1b\[2K|\r(?!\n)", line)[-1]).rstrip()
        for line in output.split(SHOW_CURSOR)[0].replace("\r\n", "\n").split("\n")
    ]
    stages = ("single", "expert", "coarse ILP", "refinement")
    lasting = [line for line in lines if line.endswith(stages) and "/" not in line]
    assert [line.split("%  ")[1] for line in lasting] == list(stages)
    assert all(len(line) <= COLUMNS for line in lines)


AT_WORK = """
import os, signal, time
from pesto_cli.report.progress import activity_on_stderr

with activity_on_stderr("at work"):
    os.kill(os.getpid(), {signal})
"""


COUNTING = """
import os, signal
from pesto_cli.report.run_counter import run_counter_on_stderr

with run_counter_on_stderr("at work"):
    os.kill(os.getpid(), {signal})
"""


@pytest.mark.parametrize("script", [AT_WORK, COUNTING])
def test_a_terminal_is_restored_after_a_sigterm(script: str) -> None:
    code, output = run_in_terminal(script=script.format(signal="signal.SIGTERM"))
    assert code == 128 + signal.SIGTERM
    assert "at work" in output
    assert output.count(HIDE_CURSOR) == output.count(SHOW_CURSOR) == 1


def test_a_log_has_lines_for_long_activities_only(capfd: pytest.CaptureFixture[str]) -> None:
    with activity_on_stderr("at work"):
        pass
    assert capfd.readouterr() == ("", "")
    with activity_on_stderr("at work, about 40 s", is_long=True):
        assert capfd.readouterr() == ("", "at work, about 40 s ...\n")
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_log_has_no_control_codes_even_if_colour_is_forced(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], schedule: Schedule
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress_on_stderr("pesto", Limits()) as tell:
        tell(at(schedule, 20.0))
    assert "\x1b" not in capsys.readouterr().err
