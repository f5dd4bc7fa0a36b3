"""Texts on the warm start of a search, and a summary of its result."""

from collections.abc import Iterator

from pesto_cli.data.plan import Plan
from pesto_cli.data.problem import Problem
from pesto_cli.data.result import Result
from pesto_cli.diff import MappedPlacement, MappedSplit
from pesto_cli.report.sections import Section
from pesto_cli.report.tables import size_text
from pesto_cli.report.times import time_text

# With a smaller share of ops placed by name, a warm start is hardly better than a guess.
LEAST_SHARE_BY_NAME = 0.5


def mapping_text(mapped: MappedPlacement) -> str:
    """Return a text on how many ops got their device from an earlier placement, and how."""
    num_ops = len(mapped.placement.device)
    if mapped.is_whole:
        return (
            "the op keeps its device" if num_ops == 1 else f"all {num_ops:,} ops keep their device"
        )
    return (
        f"of {num_ops:,} ops, {mapped.num_by_name:,} keep their device, {mapped.num_by_scope:,} "
        f"get the device of their scope, {mapped.num_by_neighbours:,} that of their neighbours, "
        f"{mapped.num_by_default:,} any device"
    )


def split_start_text(plan: Plan, problem: Problem, split: MappedSplit | None) -> str:
    """Return a text on a warm start from a placement that splits ops.

    plan: the plan of the placement. split: how it was mapped to the problem.
    """
    num_split = len(plan.choices)
    if split is not None and split.num_kept == num_split:
        if num_split == 1:
            return "the op that the placement splits starts in the same parts"
        return f"all {num_split:,} ops that the placement splits start in the same parts"
    if split is not None:
        return (
            f"of the {num_split:,} ops that the placement splits, {split.num_kept:,} start in the "
            f"same parts and {num_split - split.num_kept:,} start whole, because they have changed "
            "or cannot be split so any more"
        )
    reason = (
        "the profile has no prices of parts, or ops are to stay whole"
        if problem.parts is None
        else "the ops have changed, or cannot be split so any more"
    )
    return (
        f"the {num_split:,} ops that the placement splits start whole, each on the device of its "
        f"first part: {reason}"
    )


def mapping_warnings(mapped: MappedPlacement) -> Iterator[str]:
    """Yield warnings on a warm start that was mapped from another graph."""
    if mapped.lost_devices:
        yield (
            f"warning: the placement uses {', '.join(mapped.lost_devices)}, which the machine "
            "lacks; their ops get other devices."
        )
    if not mapped.num_by_name:
        yield (
            "warning: the placement is of another model or machine, or all names have changed: "
            "none of its ops is in the graph, on a device of the machine. The search starts "
            "without it."
        )
    elif mapped.share_by_name < LEAST_SHARE_BY_NAME:
        yield (
            f"warning: the placement has only {mapped.share_by_name:.0%} of the ops, so it is a "
            "poor start."
        )


def solved_section(problem: Problem, result: Result) -> Section:
    """Return the figures of a result, one in each row."""
    devices = zip(problem.machine.devices, result.schedule.peak_bytes.tolist(), strict=True)
    sampled = result.solution.sampled
    robust = [] if sampled is None else [["mean of samples", time_text(sampled.mean_us)]]
    rows = [
        ["step", time_text(result.makespan_us)],
        *robust,
        ["lower bound", time_text(result.lower_bound_us)],
        ["gap", f"{result.gap:.1%}"],
        *([f"{device.name} peak", size_text(peak)] for device, peak in devices),
        ["took", f"{result.runtime_s:.1f} s"],
    ]
    how = f"by {result.strategy}, {result.status}"
    return Section(remarks=[how, *result.solution.notes], columns=["", "predicted"], rows=rows)
