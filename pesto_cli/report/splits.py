"""What a result has split, and what that adds and saves."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from pesto_cli.data.problem import Problem
from pesto_cli.data.result import Result
from pesto_cli.data.schedule import Schedule, sent_bytes
from pesto_cli.report.layouts import Layouts, layouts
from pesto_cli.report.tables import size_text
from pesto_cli.report.times import TimeScale


@dataclass(frozen=True)
class Load:
    """The load of a schedule.

    work_us: time of all ops. sent_bytes: bytes of all transfers. peak_bytes: the peak memory,
    summed over the accelerators and the host.
    """

    makespan_us: float
    num_ops: int
    work_us: float
    sent_bytes: int
    peak_bytes: int

    @classmethod
    def of(cls, problem: Problem, schedule: Schedule) -> "Load":
        """Return the load of a schedule of a problem."""
        own_us = problem.duration_us[np.arange(problem.num_ops), schedule.device]
        return cls(
            makespan_us=schedule.makespan_us,
            num_ops=problem.num_ops,
            work_us=float(own_us.sum()),
            sent_bytes=int(sent_bytes(problem, schedule).sum()),
            peak_bytes=int(schedule.peak_bytes.sum()),
        )


def split_tables(result: Result) -> Iterator[Layouts]:
    """Yield a table for a result with split ops: its load, and that of the best with whole ops."""
    solution = result.solution
    if solution.plan is None:
        return
    loads = {"split": Load.of(solution.problem, solution.schedule)}
    if solution.whole is not None:
        loads["whole ops"] = Load.of(solution.asked, solution.whole)
    scale = TimeScale.of(load.makespan_us for load in loads.values())
    title = (
        f"Split: {len(solution.plan.choices):,} of {solution.asked.num_ops:,} ops into at most "
        f"{solution.plan.num_parts} parts"
    )
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
    yield layouts(title, columns, rows)


def split_json(result: Result) -> dict[str, Any]:
    """Return the same as JSON; empty if no op was split."""
    solution = result.solution
    if solution.plan is None:
        return {}
    whole = None if solution.whole is None else asdict(Load.of(solution.asked, solution.whole))
    return {
        "split": {
            "num_split_ops": len(solution.plan.choices),
            "num_parts": solution.plan.num_parts,
            "load": asdict(Load.of(solution.problem, solution.schedule)),
            "whole": whole,
        }
    }
