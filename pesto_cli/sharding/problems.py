"""Problem + plan -> Problem: the parts of ops as ops, with their times, sizes and constraints."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pesto_cli.data.columns import BoolArray, FloatArray, IntArray
from pesto_cli.data.graph import OpGraph, Tensor
from pesto_cli.data.inputs import Inputs
from pesto_cli.data.labels import Compound, Labels, Role
from pesto_cli.data.parts import Parts
from pesto_cli.data.plan import WHOLE_OPS, Plan
from pesto_cli.data.problem import Problem
from pesto_cli.data.specs import SMALL_CONSTANT_ELEMENTS, Operand, OpSpec
from pesto_cli.errors import UnfitError
from pesto_cli.sharding.added_ops import FORWARDING
from pesto_cli.sharding.decisions import Decision, decisions
from pesto_cli.sharding.expansion import Expansion, expand
from pesto_cli.sharding.groups import groups
from pesto_cli.sharding.new_ops import Ref


@dataclass(frozen=True, eq=False)
class Rewritten:
    """A problem whose ops were split by a plan.

    origin: `[problem.num_ops]`: the op of the original problem of which the op is a copy or a part;
        -1 for an op that the rewriting has added.
    part: `[problem.num_ops]`: index of the part; -1 for ops that are no parts.
    host: `[problem.num_ops]`: the host of `plan.hosts` for which an added op adds parts or passes a
        tensor on; else -1.
    serves: `[problem.num_ops]`: the origin, or for an added op the op whose output it converts.
    """

    problem: Problem
    plan: Plan
    origin: IntArray
    part: IntArray
    host: IntArray
    serves: IntArray


def rewritten(problem: Problem, plan: Plan) -> Rewritten:
    """Split the ops of a problem by a plan.

    Raises:
        BadInputError: the profile has no prices of parts, or none for a part of the plan; or the
            plan does not fit the graph.
        InfeasibleError: an op that the plan adds can run on no device.
    """
    parts = prices_of(problem)
    specs = [parts.spec(op) for op in range(problem.num_ops)]
    expansion = expand(problem.graph, specs, plan)
    return _Rewriter(problem, parts, plan, expansion, specs).rewritten()


def prices_of(problem: Problem) -> Parts:
    """Return the prices of parts of a problem.

    Raises:
        UnfitError: there are none.
    """
    if problem.parts is None:
        raise UnfitError(
            "the profile has no prices of parts, so its ops cannot be split; a profile with them "
            "was expected: profile the graph with --parts 2,4,8, and do not coarsen it."
        )
    return problem.parts


class _Rewriter:
    def __init__(
        self,
        problem: Problem,
        parts: Parts,
        plan: Plan,
        expansion: Expansion,
        specs: Sequence[OpSpec | None],
    ) -> None:
        self._problem, self._parts, self._plan, self._specs = problem, parts, plan, specs
        self._decided = decisions(plan, problem.graph, specs)
        self._ops = expansion.ops
        self._kept = [
            op
            for op, needed in enumerate(expansion.needed)
            if needed and not _is_small_constant(expansion.ops.specs[op])
        ]
        self._ratios: dict[tuple[OpSpec, str, int], FloatArray] = {}

    def rewritten(self) -> Rewritten:
        """Return the rewritten problem with the map back."""
        problem, ops, kept = self._problem, self._ops, self._kept
        origin, part, host, serves = (
            np.array([column[op] for op in kept], dtype=np.int64)
            for column in (ops.origin, ops.part, ops.host, ops.serves)
        )
        graph = self._graph(origin, part, serves)
        new = replace(
            problem,
            graph=graph,
            time_us=self._time_us(origin, serves),
            permitted=self._permitted(origin, serves),
            parts=None,
            chosen=WHOLE_OPS,
        )
        return Rewritten(new, self._plan, origin, part, host, serves)

    def _graph(self, origin: IntArray, part: IntArray, serves: IntArray) -> OpGraph:
        old, ops, kept = self._problem.graph, self._ops, self._kept
        number = {op: index for index, op in enumerate(kept)}
        tensors, tensor_of = self._tensors(number)
        is_copy = (origin >= 0) & (part < 0) & np.array([ops.specs[op] is None for op in kept])
        return OpGraph.build(
            [ops.names[op] for op in kept],
            tensors,
            types=[
                spec.type if (spec := ops.specs[op]) else old.types[ops.origin[op]] for op in kept
            ],
            control_edges=[
                (number[before], number[after])
                for before, after in ops.controls
                if before in number and after in number
            ],
            colocation_group=groups(old, self._decided, ops, kept),
            resident_bytes=np.where(is_copy, old.resident_bytes[origin], 0),
            alias_of=self._aliases(number),
            num_members=np.where(is_copy, old.num_members[origin], 1),
            labels=_labels(old.labels, origin, serves),
            inputs=Inputs.build(
                [
                    [None if ref is None else tensor_of.get(ref) for ref in ops.inputs[op]]
                    for op in kept
                ]
            ),
        )

    def _tensors(
        self, number: Mapping[int, int]
    ) -> tuple[list[Tensor], dict[tuple[int, int], int]]:
        """Return the tensors, and the index in this list of each output (op, output number)."""
        graph, ops = self._problem.graph, self._ops
        consumers: dict[tuple[int, int], list[tuple[int, bool]]] = {}
        for op in self._kept:
            for slot, ref in enumerate(ops.inputs[op]):
                if ref is not None and ref[0] in number:
                    consumers.setdefault(ref, []).append((number[op], self._on_host(op, slot, ref)))
        tensors, tensor_of = list[Tensor](), dict[tuple[int, int], int]()
        for op in self._kept:
            spec = ops.specs[op]
            if spec is None:
                first, last = graph.op_tensors[ops.origin[op] : ops.origin[op] + 2].tolist()
                outputs = [
                    (int(graph.tensor_bytes[t]), _shape(graph, t)) for t in range(first, last)
                ]
            else:
                outputs = [(each.num_bytes, (each.shape, each.dtype)) for each in spec.outputs]
            for output, (num_bytes, (shape, dtype)) in enumerate(outputs):
                found = consumers.get((op, output), [])
                tensor_of[op, output] = len(tensors)
                tensors.append(
                    Tensor(
                        number[op],
                        num_bytes,
                        [consumer for consumer, _ in found],
                        [host for _, host in found],
                        shape,
                        dtype,
                    )
                )
        return tensors, tensor_of

    def _on_host(self, op: int, slot: int, ref: Ref) -> bool:
        """Return whether a tensor is in host memory both at its producer and at a consumer."""
        specs = self._ops.specs
        if specs[op] is None and specs[ref[0]] is None:
            return self._was_on_host(self._ops.origin[op], slot)
        return self._input_on_host(op, slot) and self._output_on_host(*ref)

    def _input_on_host(self, op: int, slot: int) -> bool:
        """Return whether an op takes an input in host memory."""
        spec = self._ops.specs[op]
        if spec is not None:
            return self._operand_on_host(op, spec, spec.inputs[slot])
        own = self._specs[self._ops.origin[op]]
        if own is not None:
            return own.inputs[slot].on_host
        return self._was_on_host(self._ops.origin[op], slot)

    def _output_on_host(self, op: int, output: int) -> bool:
        spec = self._ops.specs[op]
        if spec is not None:
            return self._operand_on_host(op, spec, spec.outputs[output])
        own = self._specs[self._ops.origin[op]]
        return own is None or own.outputs[output].on_host

    def _operand_on_host(self, op: int, spec: OpSpec, operand: Operand) -> bool:
        if self._is_main(op, spec):
            return operand.on_host
        return operand.on_host or self._parts.added_on_host(spec.type, str(operand.dtype))

    def _was_on_host(self, op: int, slot: int) -> bool:
        """Return whether an op took the tensor in a slot in host memory before the rewriting."""
        graph = self._problem.graph
        tensor = -1 if graph.inputs is None else int(graph.inputs[op][slot])
        first, last = graph.consumer_offsets[tensor : tensor + 2].tolist()
        place = first + int(np.searchsorted(graph.consumers[first:last], op))
        return bool(graph.consumer_on_host[place])

    def _is_main(self, op: int, spec: OpSpec) -> bool:
        """Return whether an op is a part with the type of its origin, priced in the profile."""
        origin = self._ops.origin[op]
        return origin >= 0 and self._ops.part[op] >= 0 and self._main_type(origin) == spec.type

    def _main_type(self, origin: int) -> str:
        return self._problem.graph.types[origin]

    def _aliases(self, number: Mapping[int, int]) -> list[int]:
        """Return `alias_of`: a copy or part of an alias is an alias of the op in its first slot."""
        graph, ops = self._problem.graph, self._ops
        found = []
        for op in self._kept:
            spec, origin = ops.specs[op], ops.origin[op]
            source = int(graph.alias_of[origin]) if origin >= 0 else -1
            if spec is not None and not self._is_main(op, spec):
                refs = ops.inputs[op] if spec.type in FORWARDING else ()
                found.append(next((number[ref[0]] for ref in refs if ref is not None), -1))
            elif source == origin:
                found.append(number[op] if source >= 0 else -1)
            else:
                found.append(self._alias(op, origin, source, number))
        return found

    def _alias(self, op: int, origin: int, source: int, number: Mapping[int, int]) -> int:
        graph = self._problem.graph
        if source < 0 or graph.inputs is None:
            return -1
        for tensor, ref in zip(graph.inputs[origin].tolist(), self._ops.inputs[op], strict=True):
            if ref is not None and tensor >= 0 and graph.tensor_producer[tensor] == source:
                return number[ref[0]]
        return -1

    def _time_us(self, origin: IntArray, serves: IntArray) -> FloatArray:
        """Return the times, `[num_ops, num_kinds]`; see `Parts`.

        An added op can run where the op can run whose output it converts. If it has no time there
        (a feed is in host memory, and is cut on the GPUs), it can run wherever it has one.
        """
        old, ops = self._problem.time_us, self._ops
        time_us = old[serves].copy()
        for index, op in enumerate(self._kept):
            spec = ops.specs[op]
            if spec is None:
                continue
            if self._is_main(op, spec):
                decision = self._decided[ops.origin[op]]
                time_us[index] *= self._ratio(ops.origin[op], decision, ops.part[op])
            else:
                added_us = self._parts.added_us(spec)
                there_us = np.where(np.isnan(time_us[index]), np.nan, added_us)
                time_us[index] = added_us if np.isnan(there_us).all() else there_us
        return time_us

    def _ratio(self, op: int, decision: Decision, part: int) -> FloatArray:
        alternative, size = decision.alternative, decision.sizes[part]
        key = (decision.spec, alternative.name, size)
        if key not in self._ratios:
            share = 1.0 if alternative.size is None else size / alternative.size
            self._ratios[key] = self._parts.part_ratio(op, alternative.name, share)
        return self._ratios[key]

    def _permitted(self, origin: IntArray, serves: IntArray) -> BoolArray:
        """Return where each op may run: parts where their op may, added ops everywhere."""
        permitted: BoolArray = np.where(
            (origin >= 0)[:, None], self._problem.permitted[serves], True
        )
        return permitted


def _is_small_constant(spec: OpSpec | None) -> bool:
    """Return whether a part of a constant is so small that each device has a copy of it."""
    if spec is None or spec.type != "Const":
        return False
    return math.prod(spec.outputs[0].sizes) <= SMALL_CONSTANT_ELEMENTS


def _shape(graph: OpGraph, tensor: int) -> tuple[tuple[int | None, ...] | None, str | None]:
    return (
        graph.tensor_shape[tensor] if graph.tensor_shape else None,
        graph.tensor_dtype[tensor] if graph.tensor_dtype else None,
    )


def _labels(labels: Labels, origin: IntArray, serves: IntArray) -> Labels:
    """Return the labels of each op's origin; an added op computes in the phase of its producer."""
    taken, is_added = labels.of(serves.tolist()), origin < 0
    return replace(
        taken,
        role=np.where(is_added, int(Role.COMPUTE), taken.role),
        compound=np.where(is_added, int(Compound.NONE), taken.compound),
    )
