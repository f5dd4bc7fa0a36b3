"""Results as tables for a terminal."""

from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from pesto_cli.files import CommFit
from pesto_cli.problem import Problem
from pesto_cli.report.summary import Summary
from pesto_cli.result import Result, SolveStatus
from pesto_cli.schedule import shortfall_bytes

GIB = 2**30


def print_tables(tables: Iterable[Table]) -> None:
    """Print to stdout, as wide as the tables need where it is no terminal."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 120
    # Captured, as rich would end the process itself where nobody reads its output.
    with console.capture() as shown:
        for table in tables:
            any_width = console.options.update_width(1000)
            if console.measure(table, options=any_width).maximum > console.width:
                _squeeze(table)
            console.print(table)
    print(shown.get(), end="", flush=True)


def _squeeze(wide: Table) -> None:
    """Headers in two lines, less space between columns."""
    wide.pad_edge, wide.collapse_padding = False, True
    for column in wide.columns:
        column.header = str(column.header).replace(" ", "\n")


def rendered(shown: Table) -> str:
    """A table as plain text, as wide as the terminal of stderr."""
    console = Console(stderr=True, color_system=None, highlight=False)
    if not console.is_terminal:
        console.width = 120
    with console.capture() as text:
        console.print(shown)
    return "\n".join(line.rstrip() for line in text.get().splitlines())


def table(title: str, columns: Sequence[str]) -> Table:
    """An empty table whose first column is text and whose others are numbers."""
    empty = Table(title=title, title_justify="left", box=SIMPLE_HEAD, title_style="bold")
    for index, column in enumerate(columns):
        empty.add_column(column, justify="right" if index else "left", no_wrap=True)
    return empty


def comparison(title: str, problem: Problem, results: Sequence[Result]) -> Table:
    """One row a strategy: step time, bound, gap, peak memory per device, time to solution."""
    devices = [device.name for device in problem.machine.devices]
    peaks = [f"{name} GiB" for name in devices]
    shown = table(title, ["strategy", "step ms", "bound ms", "gap", *peaks, "took", "status"])
    for result in results:
        peak = [f"{size / GIB:.2f}" for size in result.schedule.peak_bytes]
        shown.add_row(
            result.strategy,
            f"{result.makespan_us / 1e3:.2f}",
            f"{result.lower_bound_us / 1e3:.2f}",
            f"{result.gap:.1%}",
            *peak,
            f"{result.runtime_s:.2f} s",
            _status(problem, result),
        )
    return shown


def profile_table(title: str, summary: Summary) -> Table:
    """Op count by duration, as in Pesto's Table 1, total work and critical path."""
    shown = table(
        title, ["ops", "under 10 us", "10 - 100 us", "over 100 us", "work ms", "critical path ms"]
    )
    shown.add_row(
        str(summary.num_ops),
        str(summary.num_short),
        str(summary.num_medium),
        str(summary.num_long),
        f"{summary.work_us / 1e3:.2f}",
        f"{summary.critical_path_us / 1e3:.2f}",
    )
    return shown


def comm_table(title: str, fits: Sequence[CommFit]) -> Table:
    """One row a kind of link."""
    shown = table(title, ["link", "latency us", "us per MB", "R²", "samples"])
    for fit in fits:
        shown.add_row(
            f"{fit.src_kind} -> {fit.dst_kind}",
            f"{fit.comm.latency_us:.3f}",
            f"{fit.comm.us_per_byte * 1e6:.3f}",
            "" if fit.r_squared is None else f"{fit.r_squared:.4f}",
            "" if fit.num_samples is None else str(fit.num_samples),
        )
    return shown


def _status(problem: Problem, result: Result) -> str:
    if result.status is SolveStatus.OUT_OF_MEMORY:
        return f"OOM: {shortfall_text(problem, result)}"
    return str(result.status)


def shortfall_text(problem: Problem, result: Result) -> str:
    """By how much each device's memory is exceeded."""
    short = shortfall_bytes(problem, result.schedule)
    return ", ".join(
        f"{device.name} {size_text(int(size))} short"
        for device, size in zip(problem.machine.devices, short, strict=True)
        if size
    )


def size_text(num_bytes: int) -> str:
    """A size in the largest unit that it has one of."""
    size, unit = float(num_bytes), "B"
    for larger in ("KiB", "MiB", "GiB"):
        if size >= 1024:
            size, unit = size / 1024, larger
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.2f} {unit}"
