"""Counting finished runs on stderr: a bar on a terminal, else a line for each run."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from pesto_cli.printable import printable
from pesto_cli.report.progress import is_terminal, unwound_by_sigterm

# Called with the run that ended, the numbers of finished runs and of all runs, and whether this run
# took time, because its result was not cached.
Tick = Callable[[str, int, int, bool], None]


@contextmanager
def run_counter_on_stderr(what: str) -> Iterator[Tick]:
    """Yield a callback that shows finished runs and the time left, until the context ends."""
    console = Console(stderr=True, highlight=False)
    estimate = _RemainingTime()
    if not is_terminal(console):

        def log(ended: str, over: int, count: int, is_new: bool) -> None:
            rest = estimate.text(over, count, is_new)
            if is_new:
                line = printable(f"{over}/{count} {what}: {ended}{rest}")
                print(line, file=sys.stderr, flush=True)

        yield log
        return
    columns = (MofNCompleteColumn(), BarColumn(), TextColumn("{task.description}", markup=False))
    bar = Progress(*columns, TimeElapsedColumn(), console=console, transient=True)
    with unwound_by_sigterm(), bar:
        task = bar.add_task(what, total=None)

        def tick(ended: str, over: int, count: int, is_new: bool) -> None:
            rest = estimate.text(over, count, is_new)
            bar.update(task, completed=over, total=count, description=f"{printable(ended)}{rest}")

        yield tick


class _RemainingTime:
    """An estimate of the remaining time by the mean time of runs that were not cached."""

    def __init__(self) -> None:
        self._began, self._num_new = time.monotonic(), 0

    def text(self, over: int, count: int, is_new: bool) -> str:
        """Return the remaining time as text; empty until a run took time."""
        self._num_new += is_new
        if not self._num_new:
            return ""
        left_s = (time.monotonic() - self._began) / self._num_new * (count - over)
        return f", about {left_s / 60:.0f} min left" if left_s >= 60 else f", {left_s:.0f} s left"
