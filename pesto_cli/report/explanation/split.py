"""All facts about an op that was split: its parts, what the plan adds for it, and its prices."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pesto_cli.data.graph import OpGraph
from pesto_cli.data.plan import COPIES
from pesto_cli.data.solution import Solution
from pesto_cli.evaluation.critical_path import CauseFinder, Segment
from pesto_cli.report.explanation.brief import BriefFacts, brief_facts
from pesto_cli.report.explanation.what_if_parts import InParts, in_parts
from pesto_cli.report.families import Families, Made
from pesto_cli.sharding.alternative import shares_of
from pesto_cli.sharding.decisions import Decision, decisions
from pesto_cli.sharding.layouts import Partial


@dataclass(frozen=True)
class Membership:
    """To which op of the original graph an op of a split graph belongs.

    op: this op. made: what it is. part: index of the part, or None. num_parts: the number of parts
    of `op`; 1 if it is whole. alternative: the way in which `op` is split, or None.
    """

    op: str
    made: Made
    part: int | None
    num_parts: int
    alternative: str | None

    @property
    def is_copied(self) -> bool:
        """Whether the parts of `op` are copies."""
        return self.alternative in COPIES


@dataclass(frozen=True)
class Price:
    """The time of an op in a number of parts, by the prices of the profile.

    num_parts: 1 is the whole op. part_us: time of the longest part. work_us: time of all parts.
    is_now: whether the op is split so. Ops that the split adds are not counted.
    """

    num_parts: int
    part_us: float
    work_us: float
    is_now: bool


@dataclass(frozen=True)
class SplitFacts:
    """An op that was split.

    alternative, sizes: see `Choice`. critical: its ops on the critical path of the schedule.
    parts: its parts, and ops that compute for all of them. for_inputs: ops that convert its inputs.
    sums: ops that combine its partial outputs, also after ops that pass these on as they are.
    conversions: ops that cut, join or copy its outputs.
    price_device: the device of the prices: that of the first part.
    what_if: the step with the op whole, and with the op in the next larger number of parts.
    """

    name: str
    type: str
    alternative: str
    sizes: tuple[int, ...]
    makespan_us: float
    critical: tuple[str, ...]
    parts: tuple[BriefFacts, ...]
    for_inputs: tuple[BriefFacts, ...]
    sums: tuple[BriefFacts, ...]
    conversions: tuple[BriefFacts, ...]
    price_device: str
    prices: tuple[Price, ...]
    what_if: tuple[InParts, ...]

    @property
    def is_copied(self) -> bool:
        """Whether its parts are copies."""
        return self.alternative in COPIES


def membership(solution: Solution, families: Families | None, op: int) -> Membership | None:
    """Return to which op an op of a split graph belongs; None if it was not split or added."""
    if families is None or families.made[op] is Made.WHOLE or solution.plan is None:
        return None
    name, part = solution.asked.graph.names[families.of[op]], int(families.part[op])
    choice = solution.plan.choices.get(name)
    num_parts, way = (1, None) if choice is None else (choice.num_parts, choice.alternative)
    return Membership(name, families.made[op], part if part >= 0 else None, num_parts, way)


def split_facts(
    causes: CauseFinder,
    path: Sequence[Segment],
    solution: Solution,
    families: Families,
    op: int,
    others: Mapping[int, Solution | str],
) -> SplitFacts:
    """Collect the facts of an op that was split.

    op: an op of the original graph. others: the solutions with the op in other numbers of parts, or
        why there are none.
    """
    assert solution.plan is not None
    asked, graph = solution.asked, solution.problem.graph
    choice = solution.plan.choices[asked.graph.names[op]]
    members = families.members(op)

    def facts(ops: Iterable[int]) -> tuple[BriefFacts, ...]:
        return tuple(brief_facts(causes, [graph.names[each] for each in ops]))

    def made(*kinds: Made) -> list[int]:
        return [each for each in members if families.made[each] in kinds]

    parts = made(Made.PART, Made.SHARED)
    critical = {segment.op for segment in path if segment.kind == "op"}
    device = int(solution.schedule.device[(parts or members)[0]])
    return SplitFacts(
        name=asked.graph.names[op],
        type=asked.graph.types[op],
        alternative=choice.alternative,
        sizes=choice.sizes,
        makespan_us=solution.makespan_us,
        critical=tuple(graph.names[each] for each in members if each in critical),
        parts=facts(parts),
        for_inputs=facts(_added_before(solution, families, parts)),
        sums=facts(_sums(solution, families, op)),
        conversions=facts(made(Made.CONVERSION)),
        price_device=asked.machine.devices[device].name,
        prices=tuple(_prices(solution, op, device)),
        what_if=tuple(in_parts(solution, op, *each) for each in others.items()),
    )


def _added_before(solution: Solution, families: Families, parts: Sequence[int]) -> list[int]:
    """Return the ops that a plan has added between other ops and some parts, ascending."""
    found, waiting = set[int](), list(parts)
    while waiting:
        before = solution.problem.graph.predecessors[waiting.pop()].tolist()
        new = {op for op in before if op in families.added} - found
        found |= new
        waiting += new
    return sorted(found)


def _sums(solution: Solution, families: Families, op: int) -> list[int]:
    """Return the ops that combine the partial outputs of an op, ascending.

    Linear ops take partial tensors and give partial tensors. So the sum may come after several of
    them, as an op that was added for the last one.
    """
    asked, plan = solution.asked, solution.plan
    assert asked.parts is not None
    assert plan is not None
    graph = asked.graph
    decided = decisions(plan, graph, list(map(asked.parts.spec, range(graph.num_ops))))
    found, seen, waiting = set[int](), {op}, [op]
    while waiting:
        each = waiting.pop()
        found |= {new for new in families.members(each) if families.made[new] is Made.SUM}
        layouts = decided[each].alternative.outputs
        for tensor, layout in zip(graph.tensors_of(each), layouts, strict=True):
            if isinstance(layout, Partial):
                takers = {
                    after
                    for after in graph.consumers_of(tensor).tolist()
                    if after in decided and _takes_partial(graph, after, tensor, decided[after])
                }
                waiting += takers - seen
                seen |= takers
    return sorted(found)


def _takes_partial(graph: OpGraph, op: int, tensor: int, decision: Decision) -> bool:
    rows = [] if graph.inputs is None else graph.inputs[op].tolist()
    slots = zip(rows, decision.alternative.inputs, strict=True)
    return any(taken == tensor and isinstance(layout, Partial) for taken, layout in slots)


def _prices(solution: Solution, op: int, device: int) -> Iterator[Price]:
    """Yield the price of an op whole, in each priced number of parts, and as it is split."""
    asked, parts, plan = solution.asked, solution.asked.parts, solution.plan
    assert parts is not None
    assert plan is not None
    choice, row = plan.choices[asked.graph.names[op]], asked.machine.devices[device]
    whole_us = float(asked.duration_us[op, device])
    kind = asked.kinds.index(row.kind) if row.kind in asked.kinds else None
    if kind is None:  # a feed or fetch on the host, which takes no time
        return
    yield Price(1, whole_us, whole_us, is_now=False)
    times = parts.times.get((int(parts.spec_of[op]), choice.alternative))
    sizes_of = {number: (1,) * number for number in parts.numbers}
    if times is not None:
        priced = [number for number in parts.numbers if number <= times.size]
        sizes_of = {number: shares_of(times.size, [1.0] * number) for number in priced}
    for number, sizes in sorted((sizes_of | {choice.num_parts: choice.sizes}).items()):
        shares = [1.0 if times is None else each / times.size for each in sizes if each]
        ratios = [parts.part_ratio(op, choice.alternative, share)[kind] for share in shares]
        took_us = [
            row.op_overhead_us + (whole_us - row.op_overhead_us) * float(ratio) for ratio in ratios
        ]
        yield Price(number, max(took_us), sum(took_us), is_now=number == choice.num_parts)
