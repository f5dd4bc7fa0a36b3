"""The plan that a user's constraints choose for some ops; strategies decide on all others.

A rule `by = "batch"` splits ops as in a data-parallel step. If only some ops are split, an op whose
parts would take open sums, or values of their own, of an op that is not among them stays whole.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pesto_cli.data.constraints import SplitRule, matching_ops
from pesto_cli.data.labels import Role
from pesto_cli.data.plan import Choice, Local, Plan
from pesto_cli.data.problem import Problem
from pesto_cli.data.specs import OpSpec
from pesto_cli.errors import BadInputError
from pesto_cli.sharding.alternative import Alternative
from pesto_cli.sharding.decisions import decisions
from pesto_cli.sharding.problems import prices_of, rewritten
from pesto_cli.sharding.rules import all_alternatives, alternatives
from pesto_cli.sharding.rules.variables import is_variable
from pesto_cli.sharding.variables import (
    choices_of,
    is_handle,
    refusing_op,
    variable_decisions,
)
from pesto_cli.strategies.data_parallel import batch_plan
from pesto_cli.strategies.plan_mapping import fitting

BATCH = "batch"


def with_chosen(problem: Problem, rules: Sequence[SplitRule]) -> Problem:
    """Return the problem with a choice for each op that the rules split.

    Raises:
        BadInputError: a rule matches no op that can be split in this way, two rules differ about an
            op, sizes do not fit, or the profile does not price the parts.
    """
    if not rules:
        return problem
    choices: dict[str, Choice] = {}
    for rule in rules:
        for name, choice in _choices(problem, rule).items():
            if choices.setdefault(name, choice) != choice:
                raise BadInputError(
                    f"two constraints split op {name!r}: by {_shown(choices[name])}, and by "
                    f"{_shown(choice)}; one way was expected: change a pattern."
                )
    plan = Plan(choices)
    rewritten(problem, plan)  # checks that it fits, and is priced
    return replace(problem, chosen=plan)


def _choices(problem: Problem, rule: SplitRule) -> Mapping[str, Choice]:
    if (rule.parts is None) == (not rule.sizes):
        found = "neither" if rule.parts is None else "both"
        raise BadInputError(
            f"a constraint splits ops {rule.ops!r} and has {found} of parts and sizes; one of the "
            "two was expected."
        )
    ops = matching_ops(problem, rule.ops)
    if rule.by == BATCH and rule.sizes:
        raise BadInputError(
            f"a constraint splits ops {rule.ops!r} by 'batch' and has sizes; parts was expected: "
            "give it, or name another way."
        )
    named = (_by_batch if rule.by == BATCH else _by_name)(problem, ops, rule)
    if not named:
        raise BadInputError(
            f"a constraint splits ops {rule.ops!r} by {rule.by!r}; of the {len(ops)} ops, none can "
            f"be split so: {_ways(problem, ops)}."
        )
    return named


def _by_name(problem: Problem, ops: Sequence[int], rule: SplitRule) -> dict[str, Choice]:
    parts, found = prices_of(problem), dict[str, Choice]()
    for op in ops:
        spec, name = parts.spec(op), problem.graph.names[op]
        for way in () if spec is None else all_alternatives(spec):
            if spec is None or way.name != rule.by:
                continue
            choice = Choice(way.name, rule.sizes or _equal(name, way, rule.parts or 0))
            if is_variable(spec):
                found |= _of_variable(problem, op, choice)
            elif not spec.takes_handle:
                found[name] = choice
    return found


def _of_variable(problem: Problem, op: int, choice: Choice) -> Mapping[str, Choice]:
    """Return the choices for a variable, its slots, and all ops that take them."""
    parts, graph = prices_of(problem), problem.graph
    specs = parts.op_specs
    decided = variable_decisions(graph, specs, op, choice.alternative, choice.sizes)
    if decided is None:
        raise BadInputError(_no_variable(problem, specs, op, choice.alternative))
    return choices_of(graph, decided)


def _no_variable(
    problem: Problem, specs: Sequence[OpSpec | None], variable: int, asked: str
) -> str:
    """Return why a variable cannot be split as asked, and the ways that are possible."""
    graph = problem.graph
    refusing, spec = refusing_op(graph, specs, variable, asked), specs[variable]
    ways = [
        repr(way.name)
        for way in (() if spec is None else alternatives(spec))
        if refusing_op(graph, specs, variable, way.name) is None
    ]
    because = "an op that takes it or its slots cannot be split so"
    if refusing is not None:
        because += f" ({graph.types[refusing]} {graph.names[refusing]!r})"
        if _is_taken_whole(problem, refusing):
            because = f"a node outside the step needs its slot {graph.names[refusing]!r} whole"
    return (
        f"a constraint splits variable {graph.names[variable]!r} by {asked!r}, but {because}; "
        + (f"{' or '.join(ways)} was expected." if ways else "leave the variable whole.")
    )


def _equal(name: str, way: Alternative, num_parts: int) -> tuple[int, ...]:
    """Return sizes of parts that differ by at most one unit."""
    if way.size is not None and num_parts > way.size:
        raise BadInputError(
            f"a constraint splits op {name!r} by {way.name!r} into {num_parts} parts; at most "
            f"{way.size} were expected."
        )
    return way.equal_sizes(num_parts)


def _by_batch(problem: Problem, ops: Sequence[int], rule: SplitRule) -> dict[str, Choice]:
    """Return the choices of these ops in a data-parallel plan, if they can be split alone.

    An op that cannot compute something else alone, such as the statistics of its own rows, computes
    the same as the whole op.
    """
    parts, graph = prices_of(problem), problem.graph
    names, found = {graph.names[op] for op in ops}, dict[str, Choice]()
    for local in dict.fromkeys((problem.local, frozenset[Local]())):
        choices = batch_plan(replace(problem, local=local), range(rule.parts or 0)).choices
        plan = Plan({name: choices[name] for name in choices if name in names} | found)
        decided = fitting(graph, parts.op_specs, decisions(plan, graph, parts.op_specs))
        found = {graph.names[op]: plan.choices[graph.names[op]] for op in decided}
    return found


def _ways(problem: Problem, ops: Sequence[int]) -> str:
    """Return the ways to split these ops, or why there are none.

    Ops that take a variable are split with it, never by a rule for their own names.
    """
    parts, graph = prices_of(problem), problem.graph
    specs = dict.fromkeys(parts.spec(op) for op in ops)
    names = dict.fromkeys(
        way.name
        for spec in specs
        if spec is not None and not spec.takes_handle
        for way in alternatives(spec)
    )
    kept = [graph.names[op] for op in ops if op in parts.kept_whole]
    if kept:
        return (
            f"[[whole]], [[together]] or --whole-variables keeps {kept[0]!r} whole: leave one of "
            "the two out"
        )
    if names:
        return f"one of {', '.join(map(repr, names))} was expected"
    rows = [] if graph.inputs is None else [graph.inputs[op].tolist() for op in ops]
    handles = [t for row in rows for t in row if t >= 0 and is_handle(graph, t)]
    if handles:
        variable = graph.names[graph.tensor_producer[handles[0]]]
        return (
            f"ops that take a variable are split with it: name the variable, such as {variable!r}"
        )
    taken = [graph.names[op] for op in ops if _is_taken_whole(problem, op)]
    if taken:
        return (
            "an op outside the step that is no read or assignment, such as an If or a While, takes "
            f"variable {taken[0]!r}, which stays whole: leave it out"
        )
    return "leave them out"


def _is_taken_whole(problem: Problem, op: int) -> bool:
    """Whether an op is a variable that has no spec because a node outside the step needs it whole.

    See `graphdef.outside_step`. A variable that constraints keep whole has no spec either.
    """
    parts = prices_of(problem)
    is_variable = bool(problem.graph.labels.has_role(Role.VARIABLE)[op])
    return is_variable and parts.spec(op) is None and op not in parts.kept_whole


def _shown(choice: Choice) -> str:
    return f"{choice.alternative!r} into {choice.num_parts} parts"
