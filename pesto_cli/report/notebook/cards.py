"""The card of each type of value."""

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from pesto_cli.data.coverage import Coverage
from pesto_cli.data.graph import OpGraph
from pesto_cli.data.machine import Device, Machine
from pesto_cli.data.plan import Plan
from pesto_cli.data.problem import Problem
from pesto_cli.data.result import Comparison, Result, SolveStatus, gap
from pesto_cli.data.schedule import Placement, Schedule, shortfall_bytes
from pesto_cli.files import PlacementFile, Profile
from pesto_cli.report.notebook.card import Card
from pesto_cli.report.notebook.strip import busy_strips
from pesto_cli.report.page.markup import Cell, Share
from pesto_cli.report.tables import size_text
from pesto_cli.report.times import TimeScale, time_text

# Number of op types that the card of a graph lists.
MOST_ROWS = 8

CriticalPath = Callable[[Problem], float]


def graph_card(graph: OpGraph) -> Card:
    """Return the card of a graph, with its most frequent op types."""
    made = np.bincount(graph.tensor_producer, graph.tensor_bytes, graph.num_ops)
    bytes_of: Counter[str] = Counter()
    for name, size in zip(graph.types, made.astype(int).tolist(), strict=True):
        bytes_of[name] += size
    count_of = Counter(graph.types)
    rows = [
        (name or "(no type)", f"{count:,}", size_text(bytes_of[name]))
        for name, count in count_of.most_common(MOST_ROWS)
    ]
    rest = len(count_of) - len(rows)
    facts = _graph_facts(graph)
    if rest > 0:
        facts.append(f"{rest} more op types")
    return Card("op graph", facts, ("type", "ops", "outputs"), rows)


def problem_card(problem: Problem, critical_path_us: CriticalPath) -> Card:
    """Return the card of a problem, with its devices."""
    work_us = float(problem.min_duration_us.sum())
    facts = [
        *_graph_facts(problem.graph),
        f"work {time_text(work_us)}",
        f"critical path {time_text(critical_path_us(problem))}",
    ]
    if problem.headroom < 1:
        facts.append(f"{problem.headroom:.0%} of the memory may be used")
    rows = [
        (*row, f"{count:,}")
        for row, count in zip(
            _device_rows(problem.machine.devices), problem.allowed.sum(axis=0), strict=True
        )
    ]
    return Card("problem", facts, ("device", "kind", "memory", "ops allowed there"), rows)


def profile_card(profile: Profile, critical_path_us: CriticalPath) -> Card:
    """Return the card of a profile: its problem and the source of times, or its coarse nodes."""
    card = problem_card(profile.problem, critical_path_us)
    if profile.members is not None:
        num_ops = sum(map(len, profile.members))
        largest = max(map(len, profile.members), default=0)
        nodes = f"{profile.problem.num_ops:,} nodes for {num_ops:,} ops, at most {largest:,} each"
        return Card("coarse profile", [nodes, *card.facts[1:]], card.columns, card.rows)
    source = profile.provenance.get("source")
    return Card(
        "profile",
        [*card.facts, *([f"times: {source}"] if source else [])],
        card.columns,
        card.rows,
    )


def machine_card(machine: Machine) -> Card:
    """Return the card of a machine: devices, and the time of 1 MiB between each two of them."""
    rows = [
        (*row, *(_link_text(machine, src, dst) for dst in range(machine.num_devices)))
        for src, row in enumerate(_device_rows(machine.devices))
    ]
    columns = ["device", "kind", "memory", *(f"1 MiB to {each.name}" for each in machine.devices)]
    facts = [f"signals {time_text(machine.signal_us)}"]
    if machine.has_contention:
        most = max(slow_down for row in machine.contention.values() for slow_down in row.values())
        facts.append(f"ops up to {most:.0%} slower for each other busy device of the host")
    return Card("machine", facts, columns, rows)


def placement_card(placed: PlacementFile) -> Card:
    """Return the card of a placement file: ops of each device, and the stored prediction."""
    predicted, strategy = placed.predicted, placed.provenance.get("strategy")
    facts = [f"{len(placed.names):,} ops", *_split_facts(placed.plan)]
    facts += [f"by {strategy}"] if strategy else []
    if "makespan_us" in predicted:
        facts += _quality(predicted["makespan_us"], predicted.get("lower_bound_us", 0.0))
    count = np.bincount(np.array(placed.device, dtype=np.int64), minlength=len(placed.devices))
    peaks = predicted.get("peak_bytes") or [None] * len(placed.devices)
    rows = [
        (name, _share(ops, len(placed.names)), "" if peak is None else size_text(peak))
        for name, ops, peak in zip(placed.devices, count.tolist(), peaks, strict=True)
    ]
    return Card("placement", facts, ("device", "ops", "peak memory"), rows)


def plan_card(plan: Plan) -> Card:
    """Return the card of a plan, with the most frequent ways in which ops are split."""
    facts = ["all ops stay whole"]
    if plan:
        split = [f"{len(plan.choices):,} ops split", f"at most {plan.num_parts} parts"]
        facts = [*split, *_local_facts(plan)]
    if plan.hosts:
        facts.append(f"sums and copies once for each of {len(set(plan.hosts))} hosts")
    if plan.islands:
        number = len(set(plan.islands))
        facts.append(f"a share of large tensors is sent once to each of {number} islands")
    if plan.bucket_bytes:
        facts.append(f"gradients are added in buckets of at most {size_text(plan.bucket_bytes)}")
    ways = Counter((each.alternative, each.num_parts) for each in plan.choices.values())
    rows = [
        (alternative, f"{num_parts}", _share(count, len(plan.choices)))
        for (alternative, num_parts), count in ways.most_common(MOST_ROWS)
    ]
    if (rest := len(ways) - len(rows)) > 0:
        facts.append(f"{rest} more ways")
    return Card("plan", facts, ("split by", "parts", "ops"), rows)


def coverage_card(coverage: Coverage) -> Card:
    """Return the card of a coverage, with the op types that have the most work."""
    count = sum(row.num_ops for row in coverage.rows)
    facts = [
        f"{count:,} of {coverage.num_ops:,} ops stay whole",
        f"{coverage.share:.1%} of the work",
    ]
    rows = [
        (f"{row.type or '(no type)'}: {row.reason}", f"{row.num_ops:,}", _percent(row.share))
        for row in coverage.rows[:MOST_ROWS]
    ]
    if (rest := len(coverage.rows) - len(rows)) > 0:
        facts.append(f"{rest} more rows")
    return Card("coverage", facts, ("op type: reason", "ops", "share of the work"), rows)


def bare_placement_card(placement: Placement) -> Card:
    """Return the card of a placement without names of devices."""
    num_ops = len(placement.device)
    rows = [
        (f"device {device}", _share(ops, num_ops))
        for device, ops in enumerate(np.bincount(placement.device).tolist())
    ]
    return Card("placement", [f"{num_ops:,} ops"], ("device", "ops"), rows)


def schedule_card(schedule: Schedule, devices: Sequence[str] = ()) -> Card:
    """Return the card of a schedule: how busy devices are. devices: their names, if known."""
    names = devices or [f"device {index}" for index in range(len(schedule.peak_bytes))]
    took_us = schedule.end_us - schedule.start_us
    busy_us = np.bincount(schedule.device, took_us, len(names)).tolist()
    count = np.bincount(schedule.device, minlength=len(names)).tolist()
    facts = [
        f"{len(schedule.device):,} ops",
        f"{len(schedule.transfers):,} transfers",
        f"makespan {time_text(schedule.makespan_us)}",
    ]
    rows = [
        (name, f"{ops:,}", _share(us, schedule.makespan_us, "{:.0%}"), size_text(peak))
        for name, ops, us, peak in zip(
            names, count, busy_us, schedule.peak_bytes.tolist(), strict=True
        )
    ]
    columns = ("device", "ops", "busy", "peak memory")
    return Card("schedule", facts, columns, rows, busy_strips(schedule, names))


def result_card(result: Result) -> Card:
    """Return the card of a result: its schedule and quality."""
    card = schedule_card(result.schedule, tuple(result.problem.machine.index_of))
    facts = [
        str(result.status),
        *_quality(result.makespan_us, result.lower_bound_us),
        f"took {result.runtime_s:.2f} s",
        *_split_facts(result.solution.plan),
    ]
    facts += [
        f"{peak.device} is {size_text(peak.shortfall_bytes)} short" for peak in result.memory_peaks
    ]
    return Card(result.strategy, facts, card.columns, card.rows, card.picture)


def comparison_card(comparison: Comparison) -> Card:
    """Return the card of a comparison, with a row for each strategy."""
    problem, results = comparison.problem, comparison.results
    scale = TimeScale.of(result.makespan_us for result in results)
    longest_us = max((result.makespan_us for result in results), default=0.0) or 1.0
    columns = ["strategy", f"step {scale.unit}", f"bound {scale.unit}", "gap"]
    columns += [f"peak {device.name}" for device in problem.machine.devices] + ["took", "status"]
    rows: list[tuple[Cell, ...]] = [
        (
            result.strategy,
            Share(scale.text(result.makespan_us), result.makespan_us / longest_us),
            scale.text(result.lower_bound_us),
            f"{result.gap:.1%}",
            *[size_text(peak) for peak in result.schedule.peak_bytes.tolist()],
            f"{result.runtime_s:.2f} s",
            _status(problem, result),
        )
        for result in results
    ]
    return Card("comparison", [f"{problem.num_ops:,} ops"], columns, rows)


def _graph_facts(graph: OpGraph) -> list[str]:
    facts = [
        f"{graph.num_ops:,} ops",
        f"{graph.num_tensors:,} tensors of {size_text(int(graph.tensor_bytes.sum()))}",
    ]
    if resident := int(graph.resident_bytes.sum()):
        facts.append(f"variables of {size_text(resident)}")
    if len(graph.control_edges):
        facts.append(f"{len(graph.control_edges):,} control edges")
    if several := int((graph.groups.degree > 1).sum()):
        facts.append(f"{several:,} colocation groups")
    return facts


def _device_rows(devices: Sequence[Device]) -> list[tuple[str, ...]]:
    return [(each.name, each.kind, size_text(each.memory_bytes)) for each in devices]


def _link_text(machine: Machine, src: int, dst: int) -> str:
    return "" if src == dst else time_text(float(machine.transfer_us(2.0**20, src, dst)))


def _quality(makespan_us: float, lower_bound_us: float) -> list[str]:
    return [
        f"step {time_text(makespan_us)}",
        f"bound {time_text(lower_bound_us)}",
        f"gap {gap(makespan_us, lower_bound_us):.1%}",
    ]


def _share(part: float, whole: float, form: str = "") -> Cell:
    share = part / whole if whole else 0.0
    return Share(form.format(share) if form else f"{part:,}", share)


def _percent(share: float) -> Cell:
    return Share(f"{share:.1%}", share)


def _split_facts(plan: Plan | None) -> list[str]:
    if not plan:
        return []
    split = f"{len(plan.choices):,} ops split into at most {plan.num_parts} parts"
    return [split, *_local_facts(plan)]


def _local_facts(plan: Plan) -> list[str]:
    return [f"{plan.num_local:,} compute something else (local)"] if plan.num_local else []


def _status(problem: Problem, result: Result) -> str:
    if result.status is SolveStatus.OUT_OF_MEMORY:
        return f"{size_text(int(shortfall_bytes(problem, result.schedule).sum()))} short"
    return str(result.status)
