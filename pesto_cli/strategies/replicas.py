"""Copies of a step, one for each device: every process of data parallelism runs a whole step.

A copy has the ops of the step, and the times and tensors of its part of a batch plan. Ops that the
plan keeps whole are whole in each copy, and so are all ops of the update. Copies share nothing but
gradients: the tensors that the update takes from the backward pass.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pesto_cli.data.adjacency import reached
from pesto_cli.data.columns import BoolArray, IntArray
from pesto_cli.data.graph import OpGraph
from pesto_cli.data.labels import Phase
from pesto_cli.data.plan import Plan
from pesto_cli.data.problem import Problem
from pesto_cli.data.specs import Operand, OpSpec
from pesto_cli.sharding.alternative import Alternative, part_spec, scaled_extents
from pesto_cli.sharding.decisions import Decision, decisions
from pesto_cli.sharding.expansion import Expansion
from pesto_cli.sharding.layouts import Split
from pesto_cli.sharding.new_ops import NewOps, Ref
from pesto_cli.sharding.problems import expanded, prices_of
from pesto_cli.strategies.devices import hosts_of_devices

WHOLE_IN_EACH_COPY = Alternative("whole", None, (), ())


@dataclass(frozen=True)
class Gradient:
    """A tensor that copies combine.

    tensor: of the original graph. operand: one copy of it, or the largest piece.
    is_sum: whether the copies are added; otherwise the pieces are joined, as rows of an embedding.
    takers: (op, slot) of the original graph.
    """

    tensor: int
    operand: Operand
    is_sum: bool
    takers: tuple[tuple[int, int], ...]


@dataclass(frozen=True, eq=False)
class Replicas:
    """The ops of all copies; op i of copy k is `k * problem.num_ops + i`.

    problem: the problem whose step is copied. device_of_copy: `[num_copies]`.
    """

    problem: Problem
    device_of_copy: Sequence[int]
    ops: NewOps
    decided: Mapping[int, Decision]
    gradients: tuple[Gradient, ...]

    @classmethod
    def of(cls, problem: Problem, plan: Plan, device_of_copy: Sequence[int]) -> "Replicas":
        """Copy the step; part k of each op that the plan splits is in copy k."""
        parts, graph = prices_of(problem), problem.graph
        specs = parts.op_specs
        is_update = _is_update(graph)
        split = {
            op: each for op, each in decisions(plan, graph, specs).items() if not is_update[op]
        }
        num_copies = len(device_of_copy)
        nothing = OpSpec("", (), (), ())
        decided = {
            op: split.get(op, Decision(specs[op] or nothing, WHOLE_IN_EACH_COPY, (1,) * num_copies))
            for op in range(problem.num_ops)
        }
        feeds = dict(_shares_of_feeds(problem, split))
        ops = NewOps()
        for copy in range(num_copies):
            _add_copy(ops, problem, copy, split, feeds)
        gradients = tuple(_gradients(problem, split, ops, is_update))
        return cls(problem, device_of_copy, ops, decided, gradients)

    def copied(self, tensor: int, copy: int) -> Ref:
        """Return a tensor of the original graph in a copy."""
        producer = int(self.problem.graph.tensor_producer[tensor])
        output = tensor - self.problem.graph.tensors_of(producer).start
        return copy * self.problem.num_ops + producer, output

    def expanded(self) -> Problem:
        """Return the problem of all ops that have been added so far."""
        kept = np.arange(len(self.ops))
        return expanded(self.problem, Expansion(self.ops, (), kept, self.decided))

    def devices(self, problem: Problem) -> IntArray:
        """Return the device of each op of the expanded problem, `[num_ops]`.

        An op that may not be on the device of its copy is on another one of the same server if it
        can be, such as the CPU.
        """
        hosts = hosts_of_devices(problem)
        copy_of_group = np.zeros(problem.graph.num_groups, dtype=np.int64)
        copy_of_group[problem.graph.colocation_group] = self.ops.part
        found = np.empty(problem.graph.num_groups, dtype=np.int64)
        for group, copy in enumerate(copy_of_group.tolist()):
            own, allowed = self.device_of_copy[copy], problem.group_allowed[group]
            able = np.flatnonzero(allowed).tolist()
            found[group] = min(able, key=lambda each: (each != own, hosts[each] != hosts[own]))
        return found[problem.graph.colocation_group]


def _is_update(graph: OpGraph) -> BoolArray:
    """Return whether each op is of the update, `[num_ops]`; no gradient depends on such an op.

    The phase of an op that adds gradients does not tell whether other gradients depend on it.
    """
    phase = graph.labels.phase
    is_needed = reached(graph.predecessors, np.flatnonzero(phase == Phase.BACKWARD).tolist())
    found: BoolArray = (phase == Phase.UPDATE) & ~is_needed
    return found


def _add_copy(
    ops: NewOps,
    problem: Problem,
    copy: int,
    split: Mapping[int, Decision],
    feeds: Mapping[int, Sequence[OpSpec]],
) -> None:
    graph, first = problem.graph, copy * problem.num_ops
    rows = [] if graph.inputs is None else list(graph.inputs.rows())
    for op, row in enumerate(rows):
        spec = feeds[op][copy] if op in feeds else None
        if op in split:
            spec = part_spec(split[op].spec, split[op].alternative, split[op].sizes[copy])
        inputs = [None if tensor is None else _ref(problem, tensor, first) for tensor in row]
        name = f"{graph.names[op]}.part_{copy}"
        ops.add(name, inputs, serves=op, origin=op, part=copy, spec=spec, is_priced=True)
    ops.controls += [(first + before, first + after) for before, after in graph.control_edges]


def _ref(problem: Problem, tensor: int, first: int) -> Ref:
    producer = int(problem.graph.tensor_producer[tensor])
    return first + producer, tensor - problem.graph.tensors_of(producer).start


def _shares_of_feeds(
    problem: Problem, split: Mapping[int, Decision]
) -> Iterator[tuple[int, list[OpSpec]]]:
    """Yield the feeds that an op takes in parts: each process feeds its part of the batch."""
    graph = problem.graph
    for op in np.flatnonzero(problem.is_feed).tolist():
        spec = prices_of(problem).spec(op)
        for tensor in graph.tensors_of(op):
            for consumer, slot in _takers(problem, tensor):
                decision = split.get(consumer)
                layout = None if decision is None else decision.alternative.inputs[slot]
                if spec is None or decision is None or not isinstance(layout, Split):
                    continue
                whole = spec.outputs[0]
                size = decision.alternative.size
                extents = scaled_extents(whole.sizes[layout.axis], decision.sizes, size)
                outputs = [(whole.resized(layout.axis, extent),) for extent in extents]
                yield op, [OpSpec(spec.type, spec.attributes, (), each) for each in outputs]


def _takers(problem: Problem, tensor: int) -> Iterator[tuple[int, int]]:
    """Yield the op and the slot of each input that is a tensor."""
    inputs = problem.graph.inputs
    assert inputs is not None
    for op in problem.graph.consumers_of(tensor).tolist():
        for slot in np.flatnonzero(inputs[op] == tensor).tolist():
            yield op, slot


def _gradients(
    problem: Problem, split: Mapping[int, Decision], ops: NewOps, is_update: BoolArray
) -> Iterator[Gradient]:
    """Yield the tensors on devices that the update takes from the backward pass.

    Split ones are pieces. Others of floating point are sums; indices that are whole are alike.
    """
    graph = problem.graph
    is_backward = (graph.labels.phase != Phase.FORWARD) & ~is_update
    for op in np.flatnonzero(is_backward).tolist():
        for output, tensor in enumerate(graph.tensors_of(op)):
            takers = [taker for taker in _takers(problem, tensor) if is_update[taker[0]]]
            on_host = graph.consumer_on_host[graph.consumer_offsets[tensor] :][
                : len(graph.consumers_of(tensor))
            ]
            spec = ops.specs[op]
            operand = (
                Operand(graph.tensor_shape[tensor], graph.tensor_dtype[tensor])
                if spec is None
                else spec.outputs[output]
            )
            is_piece = op in split and isinstance(split[op].alternative.outputs[output], Split)
            is_number = (operand.dtype or "").startswith(("float", "bfloat"))
            if takers and not on_host.all() and (is_piece or is_number) and operand.is_static:
                yield Gradient(tensor, operand, not is_piece, tuple(takers))
