"""What a search began with, and what it ended with."""

from collections.abc import Iterator

from pesto_cli.data.problem import Problem
from pesto_cli.data.result import Result
from pesto_cli.diff import MappedPlacement
from pesto_cli.report.sections import Section
from pesto_cli.report.tables import size_text
from pesto_cli.report.times import time_text

# Of a graph's ops, placed by name; below it a warm start is little more than a guess.
LITTLE = 0.5


def mapping_text(carried: MappedPlacement) -> str:
    """How many ops got their device from an earlier placement, and how."""
    num_ops = len(carried.placement.device)
    if carried.is_whole:
        return f"all {num_ops:,} ops are where it has them"
    return (
        f"of {num_ops:,} ops, {carried.num_by_name:,} are where it has them, "
        f"{carried.num_by_scope:,} with others of their scope, {carried.num_by_neighbours:,} with "
        f"what they exchange data with, {carried.num_by_default:,} anywhere"
    )


def mapping_warnings(carried: MappedPlacement) -> Iterator[str]:
    """What the user should know of a start that was carried over."""
    if carried.lost_devices:
        yield (
            f"warning: it uses {', '.join(carried.lost_devices)}, which the machine lacks; these "
            "ops are placed anew."
        )
    if not carried.num_by_name:
        yield (
            "warning: it is of another model or machine, or all names have changed: none of its "
            "ops is in the graph, on a device of the machine. The search begins without it."
        )
    elif carried.share_by_name < LITTLE:
        yield (
            f"warning: only {carried.share_by_name:.0%} of the ops are known to it: it is a poor "
            "start."
        )


def solved_section(problem: Problem, result: Result) -> Section:
    """A result's figures, one a row."""
    devices = zip(problem.machine.devices, result.schedule.peak_bytes.tolist(), strict=True)
    rows = [
        ["step", time_text(result.makespan_us)],
        ["lower bound", time_text(result.lower_bound_us)],
        ["gap", f"{result.gap:.1%}"],
        *([f"{device.name} peak", size_text(peak)] for device, peak in devices),
        ["took", f"{result.runtime_s:.1f} s"],
    ]
    how = f"by {result.strategy}, {result.status}"
    return Section(remarks=[how, *result.solution.notes], columns=["", "predicted"], rows=rows)
