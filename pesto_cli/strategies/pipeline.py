"""`pipeline`: contiguous layers in stages, and micro-batches that run through them.

The accelerators are divided into stages, and each stage has layers with about equal work
(PipeDream: Narayanan et al., SOSP '19, Section 3.1). The devices of a stage have parts of the
batch, as in HetPipe (Park et al., ATC '20), and each part is divided into micro-batches. All
numbers of stages that divide the number of accelerators are tried, with 1 to 8 micro-batches.
Gradients are added flat, or first over the micro-batches of a device, whichever is faster. Each is
tried in two orders:

- GPipe (Huang et al., NeurIPS '19, Section 2): a stage runs all micro-batches forward, then all
  backward.
- 1F1B (PipeDream, Section 3.2): stage s of S runs S - s micro-batches forward, then one backward
  and one forward by turns. So a stage keeps the activations of at most S - s micro-batches.

The step stays synchronous: gradients of all micro-batches are added before the update, so weights
are never stale, as they are in PipeDream and HetPipe. Activations are not computed again, as GPipe
does to save memory. If an op of a stage needs all micro-batches, such as batch normalisation, they
wait for each other.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from pesto_cli.data.columns import FloatArray, IntArray
from pesto_cli.data.labels import Phase
from pesto_cli.data.plan import Plan
from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import Placement, Schedule
from pesto_cli.data.solution import Solution
from pesto_cli.errors import BadInputError, UnfitError
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.sharding.problems import Rewritten, rewritten
from pesto_cli.strategies.context import Context
from pesto_cli.strategies.data_parallel import batch_plan, best_solution, stages_of_ops
from pesto_cli.strategies.devices import accelerators
from pesto_cli.strategies.meshes import Mesh, most_parts, stages_of_width
from pesto_cli.strategies.part_devices import devices_of_parts

MICRO_BATCHES = (1, 2, 4, 8)


@dataclass(frozen=True)
class Pipeline:
    """The best pipeline of all numbers of stages and micro-batches, and of two orders."""

    name: ClassVar[str] = "pipeline"
    splits: ClassVar[bool] = True
    needs_parts: ClassVar[bool] = True

    def __call__(self, problem: Problem, context: Context) -> Solution:
        """Split, divide the layers, deal the variables of each stage, and order the parts.

        Raises:
            UnfitError: the profile has no prices of parts, or no pipeline is possible.
        """
        found, reasons, is_over = list[Solution](), list[str](), context.limits.begin()
        for mesh in _pipelines(accelerators(problem), most_parts(problem)):
            if found and is_over():
                break
            try:
                found.append(pipelined(problem, mesh))
            except UnfitError as error:
                reasons.append(str(error))
        if not found:
            raise UnfitError(
                "; ".join(reasons[:1])
                or "there is one accelerator, so there is no pipeline; two or more were expected: "
                "use another strategy."
            )
        return min(found, key=lambda each: each.objective)


def _pipelines(devices: list[int], max_parts: int) -> Iterator[Mesh]:
    """Yield pipelines over all devices with 2 to `max_parts` parts of the batch."""
    for width in (width for width in range(1, len(devices)) if len(devices) % width == 0):
        for times in MICRO_BATCHES:
            if 2 <= width * times <= max_parts:
                yield Mesh(stages_of_width(devices, width), times)


def pipelined(problem: Problem, mesh: Mesh) -> Solution:
    """Return the best of the orders of GPipe and 1F1B, with flat sums and with sums on devices.

    Raises:
        UnfitError: no input of the step can be split into so many parts.
    """
    devices = mesh.devices(0, np.arange(mesh.num_parts)).tolist()
    plans = [batch_plan(problem, devices)]
    if mesh.width > 1 and mesh.num_micro_batches > 1:
        plans.append(replace(plans[0], hosts=tuple(devices.index(each) for each in devices)))
    solutions = [best_solution(problem, *in_both_orders(problem, each, mesh)) for each in plans]
    return min(solutions, key=lambda each: each.objective)


def in_both_orders(problem: Problem, plan: Plan, mesh: Mesh) -> tuple[Rewritten, list[Schedule]]:
    """Return the problem that a plan splits, and its schedules in the orders of GPipe and 1F1B."""
    split = rewritten(problem, plan)
    simulator = Simulator(split.problem)
    stage = stages_of_ops(problem, split, mesh)
    device = devices_of_parts(split, mesh, stage)
    turns = (_turns(split, mesh, stage, ahead) for ahead in _aheads(mesh, stage))
    return split, [_by_turns(simulator, device, turn) for turn in turns]


def _aheads(mesh: Mesh, stage: IntArray) -> Iterator[IntArray]:
    """Yield how many micro-batches each op's stage runs forward before the first one backward."""
    yield np.full(len(stage), mesh.num_micro_batches)
    yield np.minimum(len(mesh.stages) - stage, mesh.num_micro_batches)


def _turns(split: Rewritten, mesh: Mesh, stage: IntArray, ahead: IntArray) -> FloatArray:
    """Return the turn of each op on its device, `[num_ops]`; ops of a turn are a micro-batch's.

    With `ahead` micro-batches forward first, the turns are F0 F1 .. B0 F B1 F B2 .. B. An op that
    is no part has the first turn of the ops that need its output; updates come last.
    """
    graph = split.problem.graph
    micro_batch = np.maximum(split.part, 0) // mesh.width
    backward_before = np.maximum(micro_batch - ahead + 1, 0)
    forward_before = np.minimum(micro_batch + ahead, mesh.num_micro_batches)
    is_forward = graph.labels.phase == Phase.FORWARD
    turn = micro_batch + np.where(is_forward, backward_before, forward_before).astype(np.float64)
    turn[(split.part < 0) | (graph.labels.phase == Phase.UPDATE)] = np.inf
    for op in reversed(graph.topological_order.tolist()):
        if turn[op] == np.inf and split.part[op] < 0:
            turn[op] = min(turn[graph.successors[op]], default=np.inf)
    return turn


def _by_turns(simulator: Simulator, device: IntArray, turn: FloatArray) -> Schedule:
    """Return the schedule in which devices run ops by turn, and by upward rank within a turn.

    A device waits for the ops of a turn. If devices would wait for each other forever, it runs the
    ops of the next turns that are ready.
    """
    order = np.lexsort((-simulator.upward_rank(device), turn))
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    rank = np.empty_like(place)
    for each in np.unique(device):
        here = np.flatnonzero(device == each)
        rank[here[np.argsort(place[here])]] = np.arange(len(here))
    try:
        return simulator.replay(Placement(device, rank))
    except BadInputError:
        return simulator.list_schedule(device, -place.astype(np.float64))
