"""What a result has split, and what that adds and saves."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pesto_cli.data.load import Load, whole_load
from pesto_cli.data.plan import Choice
from pesto_cli.data.result import Result
from pesto_cli.data.solution import PlanSet, Solution
from pesto_cli.report.families import NAMES, Families, Made
from pesto_cli.report.layouts import Layouts, layouts
from pesto_cli.report.tables import size_text
from pesto_cli.report.times import TimeScale, time_text

SPLIT, WHOLE = "split", "whole ops"


def split_tables(result: Result) -> Iterator[Layouts]:
    """Yield a table for a result with split ops: its load, and that of the best with whole ops."""
    loads = loads_of(result.solution, whole_load(result.solution))
    if SPLIT in loads:
        title = f"Split: {split_text(result.solution)}"
        yield layouts(title, *load_table(loads))


def split_text(solution: Solution) -> str:
    """Return how many ops are split, and into how many parts."""
    plan = solution.plan
    num_ops, num_parts = (0, 1) if plan is None else (len(plan.choices), plan.num_parts)
    return f"{num_ops:,} of {solution.asked.num_ops:,} ops into at most {num_parts} parts"


def bounded_text(solution: Solution) -> str:
    """Return which placements are not shorter than the lower bound."""
    is_of_all = solution.bound_holds_for is PlanSet.ALL_PLANS
    return "placement" if is_of_all else "placement of whole ops"


def parts_text(choice: Choice | None) -> str:
    """Return the number of parts or copies of an op; None: it is whole."""
    if choice is None:
        return "whole"
    return f"{choice.num_parts} {'copies' if choice.is_copied else 'parts'}"


def loads_of(solution: Solution, whole: Load | None, name: str = WHOLE) -> Mapping[str, Load]:
    """Return the load of a solution with split ops, and that of whole ops if it is known.

    The result is empty if no op was split. name: the key of the load of whole ops.
    """
    if not solution.plan:
        return {}
    loads = {SPLIT: Load.of(solution.problem, solution.schedule)}
    return loads if whole is None else loads | {name: whole}


def load_table(loads: Mapping[str, Load]) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    """Return the columns and rows of a table of loads."""
    scale = TimeScale.of(load.makespan_us for load in loads.values())
    columns = ["ops", f"step {scale.unit}", "number", f"work {scale.unit}", "sent", "peak memory"]
    rows = [
        [
            name,
            scale.text(load.makespan_us),
            f"{load.num_ops:,}",
            scale.text(load.work_us),
            size_text(load.sent_bytes),
            size_text(load.peak_bytes),
        ]
        for name, load in loads.items()
    ]
    return columns, rows


def change_text(split: Load, whole: Load) -> str:
    """Return the work, transfers and memory with split ops, and the change from whole ops."""
    work = _change(whole.work_us, split.work_us)
    sent = _change(whole.sent_bytes, split.sent_bytes)
    peak = _change(whole.peak_bytes, split.peak_bytes)
    return (
        f"work {time_text(split.work_us)}{work}, sent {size_text(split.sent_bytes)}{sent}, "
        f"peak memory {size_text(split.peak_bytes)}{peak}"
    )


def _change(before: float, after: float) -> str:
    if before:
        return f" ({after / before - 1:+,.0%})"
    return " (from 0)" if after else ""


def made_rows(solution: Solution, families: Families) -> list[tuple[str, str, str, float]]:
    """Return a row for each kind of ops in a split step: kind, number, work, share of the work."""
    took_us = (solution.schedule.end_us - solution.schedule.start_us).tolist()
    work_us, count = dict.fromkeys(Made, 0.0), dict.fromkeys(Made, 0)
    for made, us in zip(families.made, took_us, strict=True):
        work_us[made] += us
        count[made] += 1
    total_us = sum(took_us) or 1.0
    return [
        (NAMES[made], f"{count[made]:,}", time_text(us) if us else "0", us / total_us)
        for made, us in work_us.items()
        if count[made]
    ]


def split_json(result: Result, whole: Load | None = None) -> dict[str, Any]:
    """Return the loads of a result with split ops as JSON; empty if no op was split.

    whole: the load of the best schedule with whole ops, for a result that does not contain it.
    """
    solution = result.solution
    if solution.plan is None:
        return {}
    whole = whole_load(solution) or whole
    return {
        "split": {
            "num_split_ops": len(solution.plan.choices),
            "num_parts": solution.plan.num_parts,
            "load": asdict(Load.of(solution.problem, solution.schedule)),
            "whole": None if whole is None else asdict(whole),
        }
    }
