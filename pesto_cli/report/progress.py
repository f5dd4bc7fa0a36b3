"""Progress of a search or other work on stderr: a line that changes in place, or a log."""

import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from pesto_cli.data.limits import Limits
from pesto_cli.data.result import Progress
from pesto_cli.errors import SigtermReceived
from pesto_cli.printable import printable
from pesto_cli.report.tables import size_text
from pesto_cli.report.times import time_text

# A log has a line for a relative change of makespan, bound or shortfall from this size on.
LEAST_LOGGED_CHANGE = 1e-3
# The least width of a terminal, in columns, for a bar that shows the time.
BAR_FROM_COLUMNS = 80


@contextmanager
def progress_on_stderr(name: str, limits: Limits) -> Iterator[Callable[[Progress], None]]:
    """Yield a callback that shows progress on stderr until the context ends.

    Args:
        name: the text shown before the search reports its first stage.
        limits: the limits of the search.
    """
    console = Console(stderr=True, highlight=False)
    if not is_terminal(console):
        log = _Log()
        try:
            yield log.update
        finally:
            log.close()
        return
    line = _Line(name, limits, console)
    with _in_place(line.render, console):
        try:
            yield line.update
        finally:
            line.close()


@contextmanager
def activity_on_stderr(what: str, *, is_long: bool = False) -> Iterator[None]:
    """Show an activity and its elapsed time on a terminal until the context ends.

    If stderr is not a terminal, as in a log, a line tells that a long activity begins.
    """
    console = Console(stderr=True, highlight=False)
    if not is_terminal(console):
        if is_long:
            with suppress(OSError):  # stderr is closed: no reason to stop
                print(f"{printable(what)} ...", file=sys.stderr, flush=True)
        yield
        return
    began, spinner = time.monotonic(), Spinner("dots", style="cyan")

    def render() -> Table:
        line = Table.grid(padding=(0, 1))
        text = f"{printable(what)} ... {time.monotonic() - began:.0f} s"
        line.add_row(spinner, Text(text, no_wrap=True, overflow="ellipsis"))
        return line

    with _in_place(render, console):
        yield


def is_terminal(console: Console) -> bool:
    """Whether stderr is a terminal. With FORCE_COLOR, rich alone would say yes for any file."""
    return sys.stderr.isatty() and console.is_interactive


@contextmanager
def _in_place(render: Callable[[], Table], console: Console) -> Iterator[None]:
    """Show a line that changes in place, and remove it at the end."""
    live = Live(get_renderable=render, console=console, transient=True, refresh_per_second=8)
    with unwound_by_sigterm(), live:
        yield


@contextmanager
def unwound_by_sigterm() -> Iterator[None]:
    """Let a SIGTERM leave all contexts, instead of ending the process at once.

    rich hides the cursor of a terminal, which would stay hidden otherwise.
    """

    def end(signum: int, frame: Any) -> None:
        raise SigtermReceived

    is_main = threading.current_thread() is threading.main_thread()  # the only one with signals
    before = signal.signal(signal.SIGTERM, end) if is_main else None
    try:
        yield
    finally:
        if is_main:
            signal.signal(signal.SIGTERM, before)


class _Log:
    """A log with a line for every change from `LEAST_LOGGED_CHANGE` on, and for the last one.

    A line that reads like the one before it is left out.
    """

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._logged: Progress | None = None
        self._pending, self._pending_s, self._last = "", 0.0, ""

    def update(self, progress: Progress) -> None:
        change = math.inf if self._logged is None else _change(self._logged, progress)
        if change > 0:
            self._pending, self._pending_s = _log_line(progress), time.monotonic() - self._began
        if change >= LEAST_LOGGED_CHANGE:
            self._logged = progress
            self.close()

    def close(self) -> None:
        if self._pending not in ("", self._last):
            clock = f"{self._pending_s:6.1f} s  "
            with suppress(OSError):  # stderr is closed: no reason to stop
                print(f"{clock}{printable(self._pending)}", file=sys.stderr, flush=True)
            self._last = self._pending
        self._pending = ""


def _change(before: Progress, after: Progress) -> float:
    """Return the largest relative change of makespan, bound and shortfall, as a share."""
    pairs = (
        (before.makespan_us, after.makespan_us),
        (before.lower_bound_us, after.lower_bound_us),
        (before.shortfall_bytes, after.shortfall_bytes),
    )
    return max(abs(new - old) / max(old, new) if old != new else 0.0 for old, new in pairs)


def _log_line(progress: Progress) -> str:
    """Return a line of the log without its time."""
    short, bound_us = progress.shortfall_bytes, progress.lower_bound_us
    bound = [f"bound {time_text(bound_us)}"] if bound_us else []
    gap = [f"gap {progress.gap:5.1%}"] if bound_us else []
    quality = [f"{size_text(short)} short"] if short else gap
    makespan = f"{time_text(progress.makespan_us):>10}"
    return "  ".join([makespan, *bound, *quality, progress.source])


class _Line:
    """A line that changes in place; above it, a permanent line for every finished stage."""

    def __init__(self, name: str, limits: Limits, console: Console) -> None:
        self._began = time.monotonic()
        self._name, self._limits, self._console = name, limits, console
        self._clock_width = len(self._clock(limits.time_limit_s))
        self._spinner = Spinner("dots", style="cyan")
        self._now: Progress | None = None

    def update(self, progress: Progress) -> None:
        if self._now is None:
            self._print(self._row("time", "incumbent", _quality("bound", "gap"), "stage"))
        elif progress.stage != self._now.stage:
            self.close()
        self._now = progress

    def close(self) -> None:
        if self._now is not None:
            clock = f"{time.monotonic() - self._began:.1f} s"
            self._print(self._row(clock, *_figures(self._now), self._now.stage))

    def render(self) -> Table:
        """Return the line that changes, with a bar if time is limited and the terminal is wide."""
        elapsed_s, limit_s = time.monotonic() - self._began, self._limits.time_limit_s
        stage = self._now.stage if self._now else self._name
        if self._limits.stop.is_set():
            stage = "stopping ..."
        row = self._row(self._clock(elapsed_s), *_figures(self._now), stage)
        cells: list[RenderableType] = [self._spinner, row]
        if not self._limits.deterministic and self._console.width >= BAR_FROM_COLUMNS:
            cells.append(ProgressBar(limit_s, min(elapsed_s, limit_s), width=20))
        line = Table.grid(padding=(0, 1))
        line.add_row(*cells)
        return line

    def _print(self, row: Text) -> None:
        line = Table.grid(padding=(0, 1))
        line.add_row(" ", row)  # the space stands below the spinner of the other line
        self._console.print(line)

    def _row(self, clock: str, incumbent: str, quality: str, stage: str) -> Text:
        return Text.assemble(
            clock.rjust(self._clock_width),
            (incumbent.rjust(12), "bold"),
            quality,
            (f"  {printable(stage)}", "cyan"),
            no_wrap=True,
            overflow="ellipsis",
        )

    def _clock(self, elapsed_s: float) -> str:
        # In deterministic mode, work is limited instead of time.
        limit = "" if self._limits.deterministic else f" / {self._limits.time_limit_s:g}"
        return f"{elapsed_s:.1f}{limit} s"


def _figures(progress: Progress | None) -> tuple[str, str]:
    """Return the makespan as text, and bound and gap, or by how much memory is exceeded.

    Bound and gap are empty until a bound is proved.
    """
    if progress is None:
        return "", _quality("", "")
    quality = _quality("", "")
    if progress.lower_bound_us:
        quality = _quality(time_text(progress.lower_bound_us), f"{progress.gap:.1%}")
    if progress.shortfall_bytes:
        quality = f"{size_text(progress.shortfall_bytes)} short".rjust(len(quality))
    return time_text(progress.makespan_us), quality


def _quality(bound: str, gap: str) -> str:
    return bound.rjust(12) + gap.rjust(7)
