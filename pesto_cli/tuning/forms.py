"""The forms of plans that are tried: they differ in structure, and not only in the seed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from pesto_cli.data.problem import Problem
from pesto_cli.data.result import Result, SolveStatus
from pesto_cli.data.solution import Solution
from pesto_cli.errors import BadInputError, InfeasibleError
from pesto_cli.evaluation.sampling import relative_deviation
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.files import PlacementFile, Profile
from pesto_cli.refine import STAGES_NEAR_START, refine
from pesto_cli.strategies.context import Context, Strategy
from pesto_cli.strategies.data_parallel import DataParallel, VariableLayout, hosts_of
from pesto_cli.strategies.devices import accelerators, differ
from pesto_cli.strategies.expert import Expert
from pesto_cli.strategies.intra_op import HIDDEN, IntraOp
from pesto_cli.strategies.pesto import Pesto
from pesto_cli.strategies.placement_mapping import start_from
from pesto_cli.strategies.plan_mapping import split_start
from pesto_cli.strategies.run import run
from pesto_cli.strategies.single import Single
from pesto_cli.strategies.split_search.forms import BUCKETS_BYTES
from pesto_cli.strategies.tensor_parallel import TensorParallel


@dataclass(frozen=True)
class Form:
    """A form of plan.

    strategy: constructs the plan, or searches for it.
    max_parts: ops are split into at most so many parts; None if the profile decides.
    """

    name: str
    strategy: Strategy
    max_parts: int | None = None
    is_simple: bool = False


@dataclass(frozen=True)
class Refined:
    """The plan of another strategy, whose parts are then placed and ordered by a search."""

    name: ClassVar[str] = "refined"
    is_search: ClassVar[bool] = True
    splits: ClassVar[bool] = True
    needs_parts: ClassVar[bool] = True
    strategy: Strategy

    def __call__(self, problem: Problem, context: Context) -> Solution:
        """Construct, and refine until the limits end the search."""
        built = self.strategy(problem, context)
        schedule = refine(
            Simulator(built.problem),
            [built.schedule],
            context.limits,
            lower_bound_us=built.lower_bound_us,
            stages=STAGES_NEAR_START,
        )
        return replace(built, schedule=schedule)


def simple_forms(problem: Problem) -> Iterator[Form]:
    """Yield the plans that people make without a search."""
    yield Form("single", Single(), 1, is_simple=True)
    yield Form("expert", Expert(), 1, is_simple=True)
    for name, strategy in _data_parallel(problem):
        yield Form(name, strategy, is_simple=True)


def searched_forms(problem: Problem) -> list[Form]:
    """Return the forms that are searched for, the most promising ones first."""
    whole = [Form("pesto --robust", Pesto(robust=True), 1), Form("pesto", Pesto(), 1)]
    parts = problem.parts
    if parts is None:
        return whole
    fewest = parts.numbers[:1] if len(parts.numbers) > 1 else ()
    built: list[tuple[str, Strategy]] = [
        *_data_parallel(problem),
        ("intra-op", IntraOp(HIDDEN)),
        ("tensor-parallel", TensorParallel()),
    ]
    return [
        whole[0],
        Form("split --robust", Pesto(robust=True)),
        Form("split", Pesto()),  # as `pesto solve`
        whole[1],
        *(Form(f"split by {number}", Pesto(), number) for number in fewest),
        *(Form(f"{name}, refined", Refined(strategy)) for name, strategy in built),
    ]


def _data_parallel(problem: Problem) -> Iterator[tuple[str, DataParallel]]:
    """Yield the settings of `data-parallel` that differ on this machine, by name."""
    if problem.parts is None:
        return
    variables = set(np.flatnonzero(problem.graph.resident_bytes > 0).tolist())
    can_split_variables = not variables <= problem.parts.kept_whole
    devices = accelerators(problem)
    if 1 < len(set(hosts_of(problem, devices))) < len(devices):
        yield "data-parallel, sums by host", DataParallel(by_host=True)
    for layout in VariableLayout:
        if layout is not VariableLayout.WHOLE and not can_split_variables:
            continue
        name = "data-parallel" + ("" if layout is VariableLayout.WHOLE else f", {layout} variables")
        yield name, DataParallel(variables=layout)
        if layout is VariableLayout.MIRRORED:
            yield (
                f"{name} in buckets",
                DataParallel(variables=layout, bucket_bytes=BUCKETS_BYTES[0]),
            )
    if differ(problem, devices):
        yield "data-parallel, proportional", DataParallel(proportional=True)


def solved(
    form: Form, profile: Profile, context: Context, starts: Sequence[PlacementFile] = ()
) -> tuple[Result | None, str]:
    """Return the result of a form that fits into memory; else None and the reason.

    starts: placements to start from: the best ones that ran, with and without split ops.
    """
    problem = profile.problem
    if form.max_parts is not None:
        asked = max((each.num_parts for each in problem.chosen.choices.values()), default=1)
        if asked > form.max_parts:
            return None, f"{form.name} is left out: the constraints split ops into {asked} parts."
        problem = problem.limited(form.max_parts)
    deviation = None
    if profile.spread is not None:
        deviation = relative_deviation(problem, profile.spread)
    context = replace(context, deviation=deviation)
    for placed in starts:
        if not placed.plan:
            start = start_from(placed, Simulator(problem)).placement
            context = replace(context, warm_start=start)
        elif problem.parts is not None and (mapped := split_start(placed, problem)) is not None:
            context = replace(context, split_start=mapped.start)
    try:
        result = run(problem, form.strategy, context)
    except (BadInputError, InfeasibleError) as error:
        return None, f"{form.name} is left out: {error}"
    if result.status is SolveStatus.OUT_OF_MEMORY:
        return None, f"{form.name} is left out: its plan does not fit into memory."
    return replace(result, strategy=form.name), ""
