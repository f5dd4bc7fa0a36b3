"""The figures and tables of a page."""

from collections.abc import Iterator, Sequence
from typing import Any

from pesto_cli import __version__
from pesto_cli.data.load import Load
from pesto_cli.data.problem import Problem
from pesto_cli.data.result import Result, SolveStatus
from pesto_cli.files import Profile
from pesto_cli.report.page.markup import Cell, Share, figures, table
from pesto_cli.report.page.reference import Reference
from pesto_cli.report.page.shown import Shown
from pesto_cli.report.splits import (
    bounded_text,
    change_text,
    load_table,
    loads_of,
    made_rows,
    split_text,
)
from pesto_cli.report.tables import shortfall_text, size_text
from pesto_cli.report.times import TimeScale, time_text
from pesto_cli.report.utilisation import Use, device_use, link_use, step_parts


def headline(
    problem: Problem, shown: Shown, baselines: Sequence[Result], reference: Reference | None
) -> str:
    """Return the large figures: step time, bound, gap, speed-ups over baselines, and memory."""
    result = shown.result
    named = [
        ("predicted step time", time_text(result.makespan_us), _overhead(problem)),
        ("lower bound", time_text(result.lower_bound_us), _proved(result)),
    ]
    named += _split_figures(shown, reference)
    named += [
        (
            f"compared with {other.strategy}",
            f"{other.makespan_us / result.makespan_us:.2f} ×",
            f"as fast as {other.strategy}, {_takes(other.makespan_us, other)}",
        )
        for other in baselines
        if result.makespan_us > 0 and other.strategy != result.strategy
        if reference is None or other is not reference.result
    ]
    fullest = (result.schedule.peak_bytes / problem.capacity_bytes.clip(1)).max()
    named.append(("fullest memory", _share_text(fullest), _fits(problem, result)))
    return figures(named)


def _split_figures(shown: Shown, reference: Reference | None) -> Iterator[tuple[str, str, str]]:
    """Yield how many ops are split, and how the step compares with that of whole ops."""
    solution = shown.result.solution
    plan = solution.plan
    if not plan or reference is None:
        return
    split, whole = Load.of(solution.problem, solution.schedule), reference.load
    yield (
        "ops that are split",
        f"{len(plan.choices):,} of {solution.asked.num_ops:,}",
        f"into at most {plan.num_parts} parts: {change_text(split, whole)}, "
        f"compared with {reference.name}",
    )
    if split.makespan_us > 0:
        saved_us = whole.makespan_us - split.makespan_us
        yield (
            "compared with whole ops",
            f"{whole.makespan_us / split.makespan_us:.2f} ×",
            f"as fast as {reference.text}, {_takes(whole.makespan_us, reference.result)}: "
            f"splitting {'saves' if saved_us >= 0 else 'costs'} {time_text(abs(saved_us))}",
        )


def _takes(makespan_us: float, result: Result | None) -> str:
    is_short = result is not None and result.status is SolveStatus.OUT_OF_MEMORY
    also = " and does not fit into memory" if is_short else ""
    return f"which takes {time_text(makespan_us)}{also}"


def _proved(result: Result) -> str:
    if result.makespan_us and not result.lower_bound_us:
        return "no bound is proved"
    none = f"no {bounded_text(result.solution)} is faster"
    if not result.gap:
        return f"reached: {none}"
    most = f"at most {result.gap:.1%}" if result.gap >= 0.0005 else "less than 0.1%"
    return f"{none}: this one can be improved by {most}"


def _overhead(problem: Problem) -> str:
    overhead_us = problem.machine.step_overhead_us
    return f"a real step takes {time_text(overhead_us)} more" if overhead_us else "by the simulator"


def _share_text(share: float) -> str:
    """Return a share of the memory as text, such as 62%, 0.4% or under 0.1%."""
    if 0 < share < 0.0005:
        return "under 0.1%"
    return f"{share:.1%}" if 0 < share < 0.01 else f"{share:.0%}"


def _fits(problem: Problem, result: Result) -> str:
    if result.status is SolveStatus.OUT_OF_MEMORY:
        return f"does not fit: {shortfall_text(problem, result)}"
    return "of the usable memory: it fits"


def compared(problem: Problem, named: Sequence[tuple[str, Result]]) -> str:
    """Return a table with a row for each placement and each baseline."""
    scale = TimeScale.of(result.makespan_us for _, result in named)
    longest_us = max(result.makespan_us for _, result in named) or 1.0
    rows: list[list[Cell]] = []
    for name, result in named:
        sent = sum(use.num_bytes for use in link_use(result.problem, result.schedule))
        peaks = result.schedule.peak_bytes.tolist()
        step = Share(scale.text(result.makespan_us), result.makespan_us / longest_us)
        status = "does not fit" if result.status is SolveStatus.OUT_OF_MEMORY else "fits"
        rows.append(
            [
                *(name, result.strategy, step, f"{result.gap:.1%}", size_text(sent)),
                *map(size_text, peaks),
                status,
            ]
        )
    columns = ["placement", "strategy", f"step {scale.unit}", "gap", "sent"]
    columns += [f"peak {device.name}" for device in problem.machine.devices] + ["memory"]
    return table("Comparison", columns, rows, num_text=2)


def step_table(problem: Problem, shown: Shown) -> str:
    """Return a table of the parts of the critical path."""
    makespan_us = shown.result.makespan_us or 1.0
    parts = step_parts(shown.result.problem, shown.result.schedule, shown.path)
    rows = [
        (name, time_text(us), Share(f"{us / makespan_us:.1%}", us / makespan_us))
        for name, us in parts.items()
    ]
    columns = ["part", "time", "share"]
    return table("Parts of the critical path of the schedule", columns, rows)


def split_tables(shown: Shown, reference: Reference | None) -> str:
    """Return tables of what was split, and of the ops of the split step; empty if none was."""
    solution, families = shown.result.solution, shown.families
    if families is None or reference is None:
        return ""
    columns, rows = load_table(loads_of(solution, reference.load, reference.name))
    made = [
        (name, count, work, Share(f"{share:.1%}", share))
        for name, count, work, share in made_rows(solution, families)
    ]
    return table(f"Split: {split_text(solution)}", columns, rows) + table(
        "Ops of the split step", ["what", "ops", "work", "share"], made
    )


def devices_table(problem: Problem, shown: Shown) -> str:
    """Return a table of the utilisation and memory of each device."""
    result = shown.result
    rows = [
        (
            *_use_cells(use, result.makespan_us),
            size_text(peak),
            size_text(int(capacity)),
            Share(f"{peak / max(1, capacity):.1%}", peak / max(1, capacity)),
        )
        for use, peak, capacity in zip(
            device_use(result.problem, result.schedule),
            result.schedule.peak_bytes.tolist(),
            problem.capacity_bytes.tolist(),
            strict=True,
        )
    ]
    columns = ["device", "ops", "outputs", "computes", "busy", "peak memory", "usable", "used"]
    return table("Devices", columns, rows)


def links_table(problem: Problem, shown: Shown) -> str:
    """Return a table of the utilisation of each link, the busiest first."""
    uses = link_use(shown.result.problem, shown.result.schedule)
    rows = [
        _use_cells(use, shown.result.makespan_us)
        for use in sorted(uses, key=lambda use: -use.busy_us)
    ]
    if not rows:
        return "<p>There are no transfers between devices.</p>\n"
    return table("Links", ["link", "transfers", "bytes", "sends", "busy"], rows)


def _use_cells(use: Use, makespan_us: float) -> tuple[Cell, ...]:
    share = use.busy_us / (makespan_us or 1.0)
    return (
        use.name,
        f"{use.count:,}",
        size_text(use.num_bytes),
        time_text(use.busy_us) if use.busy_us else "0",
        Share(f"{share:.1%}", share),
    )


def provenance(profile: Profile, shown: Sequence[Shown], title: str) -> str:
    """Return tables with the provenance of the profile and the placements."""
    problem = profile.problem
    graph = problem.graph
    rows = [
        ("profile", title),
        ("profile hash", profile.file_hash or "not from a file"),
        ("ops, tensors", f"{graph.num_ops:,}, {graph.num_tensors:,}"),
        ("devices", ", ".join(device.name for device in problem.machine.devices)),
        *_entries(profile.provenance),
        ("report made by", f"pesto {__version__}"),
    ]
    tables = [table("Profile", ["what", "value"], rows, num_text=2)]
    for each in shown:
        made_for = each.provenance.get("profile_hash")
        is_same = made_for == profile.file_hash
        rows = [
            ("placement hash", each.file_hash or "not from a file"),
            (
                "made for",
                "this profile" if is_same else f"another profile: {made_for or 'unknown'}",
            ),
            *_entries(each.provenance),
        ]
        tables.append(table(each.name, ["what", "value"], rows, num_text=2))
    return "".join(tables)


# Names for people, where they differ from the keys in files.
NAMES = {
    "tensorflow_version": "TensorFlow version",
    "num_runs": "measured steps",
    "num_ops": "ops that compute",
    "matched_ops": "of these, measured",
    "recorded_us": "measured in a step (us)",
    "matched_us": "of this, in ops of the graph (us)",
    "time_limit": "time limit (s)",
    "num_nodes": "nodes of the coarse graph",
    "balance": "output bytes of devices may differ by",
    "workers": "threads",
}


# Default values, which are not shown.
DEFAULTS = {"congestion": True, "cheap_starts": True}


def _entries(values: Any) -> Iterator[tuple[str, str]]:
    """Yield names and values, also nested ones, without long, default, empty and None values."""
    for key, value in values.items():
        name = NAMES.get(key, key.replace("_", " "))
        if DEFAULTS.get(key) is value:
            continue
        if isinstance(value, dict):
            yield from _entries(value)
        elif isinstance(value, bool):
            yield from [(name, "yes")] if value else []
        elif isinstance(value, float):
            yield name, f"{value:,.10g}"
        elif isinstance(value, str | int) and value != "":
            yield name, str(value)
        elif isinstance(value, list) and value and all(isinstance(each, str) for each in value):
            yield name, "; ".join(value)
