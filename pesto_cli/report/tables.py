"""Tables of results, profiles and communication fits."""

import math
from collections.abc import Sequence

from rich.table import Table

from pesto_cli.data.problem import Problem
from pesto_cli.data.result import Result, SolveStatus
from pesto_cli.data.schedule import shortfall_bytes
from pesto_cli.files import CommFit
from pesto_cli.report.layouts import Layouts, Lined, layouts, table
from pesto_cli.report.summary import Summary
from pesto_cli.report.times import TimeScale


def comparison(title: str, problem: Problem, results: Sequence[Result]) -> Layouts:
    """Return a table of results: step time, bound, gap, peak memory, solution time and status."""
    scale = TimeScale.of(result.makespan_us for result in results)
    quality = ["strategy", f"step {scale.unit}", f"bound {scale.unit}", "gap"]
    rows = [
        [
            result.strategy,
            scale.text(result.makespan_us),
            scale.text(result.lower_bound_us),
            f"{result.gap:.1%}",
        ]
        for result in results
    ]
    forms = [
        _with_a_column_a_device(quality, rows, problem, results, narrow=narrow)
        for narrow in (False, True)
    ]
    return Layouts(title, *forms, _with_a_line_a_device(quality, rows, problem, results))


def expert_remark(results: Sequence[Result]) -> str | None:
    """Return a remark if the expert's placement is slower than a single device, else None."""
    fitting = {
        result.strategy: result.makespan_us
        for result in results
        if result.status is not SolveStatus.OUT_OF_MEMORY
    }
    if fitting.get("expert", 0.0) <= fitting.get("single", math.inf):
        return None
    slower = fitting["expert"] / fitting["single"] - 1
    return (
        f"expert is {slower:.1%} slower than single: a split of this model by layers costs more"
        " time in transfers and idle devices than it saves."
    )


def _with_a_column_a_device(
    quality: Sequence[str],
    rows: Sequence[Sequence[str]],
    problem: Problem,
    results: Sequence[Result],
    *,
    narrow: bool,
) -> Table:
    """Return a table with one row for each result, and a column for each device's peak memory."""
    peaks = [f"peak {device.name}" for device in problem.machine.devices]
    lines = [
        [
            *row,
            *map(size_text, result.schedule.peak_bytes.tolist()),
            _took(result),
            _status(problem, result, narrow),
        ]
        for row, result in zip(rows, results, strict=True)
    ]
    return table([*quality, *peaks, "took", "status"], lines, narrow=narrow)


def _with_a_line_a_device(
    quality: Sequence[str],
    rows: Sequence[Sequence[str]],
    problem: Problem,
    results: Sequence[Result],
) -> Table:
    """Return a table with one row for each result, for narrow terminals.

    The cell `peak` has one line for the peak memory of each device, and one for each shortfall.
    """
    lines = [
        [*row, _memory(problem, result), (_status_word(result), _took(result))]
        for row, result in zip(rows, results, strict=True)
    ]
    shown = table([*quality, "peak", "status took"], lines, narrow=True)
    shown.leading = 1
    return shown


def _memory(problem: Problem, result: Result) -> list[str]:
    lines = []
    peaks, short = result.schedule.peak_bytes, shortfall_bytes(problem, result.schedule)
    for device, peak, excess in zip(problem.machine.devices, peaks, short, strict=True):
        lines.append(f"{device.name} {size_text(int(peak))}")
        if excess:
            lines.append(f"{size_text(int(excess))} short")
    return lines


def _took(result: Result) -> str:
    return f"{result.runtime_s:.2f} s"


def profile_table(title: str, summary: Summary) -> Layouts:
    """Return a table of op counts by duration (Pesto paper, Table 1), work and critical path."""
    scale = TimeScale.of([summary.work_us, summary.critical_path_us])
    columns = ["ops", "under 10 us", "10 - 100 us", "over 100 us"]
    columns += [f"work {scale.unit}", f"critical path {scale.unit}"]
    counts = (summary.num_ops, summary.num_short, summary.num_medium, summary.num_long)
    times = (summary.work_us, summary.critical_path_us)
    return layouts(title, columns, [[*map(str, counts), *map(scale.text, times)]])


def comm_table(title: str, fits: Sequence[CommFit]) -> Layouts:
    """Return a table with a row for each kind of link, and overheads at endpoints if any."""
    columns = ["link", "latency us", "us per MB", "R²", "samples"]
    have_overheads = any(fit.has_overhead for fit in fits)
    if have_overheads:
        columns += ["sender overhead us", "us per MB", "receiver overhead us", "us per MB"]
    rows = [_comm_row(fit, have_overheads) for fit in fits]
    return layouts(title, columns, rows)


def _comm_row(fit: CommFit, have_overheads: bool) -> list[str]:
    comm = fit.comm
    row = [
        f"{fit.src_kind} -> {fit.dst_kind}" + (f" ({fit.channel})" if fit.channel else ""),
        f"{comm.latency_us:.3f}",
        f"{comm.us_per_byte * 1e6:.3f}",
        "" if fit.r_squared is None else f"{fit.r_squared:.4f}",
        "" if fit.num_samples is None else str(fit.num_samples),
    ]
    if have_overheads:
        row += [f"{comm.sender_us:.3f}", f"{comm.sender_us_per_byte * 1e6:.3f}"]
        row += [f"{comm.receiver_us:.3f}", f"{comm.receiver_us_per_byte * 1e6:.3f}"]
    return row


def _status(problem: Problem, result: Result, narrow: bool) -> Lined:
    if result.status is not SolveStatus.OUT_OF_MEMORY:
        return _status_word(result)
    first, *others = _shortfalls(problem, result)
    lines = [f"OOM: {first}", *others]
    return [f"{line}," for line in lines[:-1]] + lines[-1:] if narrow else ", ".join(lines)


def _status_word(result: Result) -> str:
    return "OOM" if result.status is SolveStatus.OUT_OF_MEMORY else str(result.status)


def shortfall_text(problem: Problem, result: Result) -> str:
    """Return text on the devices whose memory is exceeded, and by how much; empty if none is."""
    return ", ".join(_shortfalls(problem, result))


def _shortfalls(problem: Problem, result: Result) -> list[str]:
    short = shortfall_bytes(problem, result.schedule)
    return [
        f"{device.name} {size_text(int(size))} short"
        for device, size in zip(problem.machine.devices, short, strict=True)
        if size
    ]


def size_text(num_bytes: int) -> str:
    """Return a size as text, in the largest unit (up to GiB) of which it has at least one."""
    size, unit = float(num_bytes), "B"
    for larger in ("KiB", "MiB", "GiB"):
        if size >= 1024:
            size, unit = size / 1024, larger
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.2f} {unit}"
