"""Small random problems with prices of parts, on two devices, without TensorFlow."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from pesto_cli.data.graph import OpGraph, Tensor
from pesto_cli.data.inputs import Inputs
from pesto_cli.data.machine import CommModel, Device, Link, Machine
from pesto_cli.data.parts import BytePrice, Parts, PartTimes
from pesto_cli.data.problem import Problem
from pesto_cli.data.specs import Operand, OpSpec
from pesto_cli.files.tensorflow_names import labelled
from pesto_cli.sharding.rules import alternatives

RATIOS = (0.1, 0.25, 0.4, 0.5, 0.5, 0.6, 0.8, 1.0, 1.2)
"""Times of parts, as shares of those of whole ops: parts may gain more than their share."""
LARGE = 32
"""An extent of which a half is a small constant, and the whole is not."""
KINDS = ("Exp", "Neg", "AddV2", "Mul", "Sum", "Sum of axes", "IdentityN", "Loop")
"""Ops to draw; a loop has no rule."""
AXIS = Operand((1,), "int32", (0,), on_host=True)


@dataclass
class Step:
    """A graph that grows op by op.

    inputs: of each op, by slot: the positions of tensors in `tensors`; None for a small constant.
    tensors: (producer, its operand).
    """

    types: list[str] = field(default_factory=list)
    specs: list[OpSpec | None] = field(default_factory=list)
    inputs: list[tuple[int | None, ...]] = field(default_factory=list)
    tensors: list[tuple[int, Operand]] = field(default_factory=list)
    control_edges: list[tuple[int, int]] = field(default_factory=list)

    def add(self, spec: OpSpec, *inputs: int | None, has_rule: bool = True) -> int:
        """Add an op, and return its first tensor; without a rule, the op stays whole."""
        self.types.append(spec.type)
        self.specs.append(spec if has_rule else None)
        self.inputs.append(inputs)
        self.tensors += [(len(self.types) - 1, operand) for operand in spec.outputs]
        return len(self.tensors) - len(spec.outputs)

    def graph(self, groups: Sequence[int | None] | None = None) -> OpGraph:
        """Return the op graph. groups: `[num_ops]`, colocation groups."""
        consumers: list[list[int]] = [[] for _ in self.tensors]
        for op, row in enumerate(self.inputs):
            for tensor in row:
                if tensor is not None and op not in consumers[tensor]:
                    consumers[tensor].append(op)
        graph = OpGraph.build(
            [f"op{index}" for index in range(len(self.types))],
            [
                Tensor(
                    producer,
                    operand.num_bytes,
                    consumers[tensor],
                    shape=() if operand.is_handle else operand.shape,
                    dtype=operand.dtype,
                )
                for tensor, (producer, operand) in enumerate(self.tensors)
            ],
            types=self.types,
            control_edges=self.control_edges,
            colocation_group=groups,
            inputs=Inputs.build(self.inputs),
        )
        return labelled(graph)


def priced_problem(seed: int) -> Problem:
    """Return a random problem of three to five ops; it depends on the seed alone."""
    rng = np.random.default_rng(seed)
    step = random_step(rng, int(rng.integers(3, 5)))
    num_ops, groups = len(step.types), None
    if rng.random() < 0.3:
        groups = [None if rng.random() < 0.5 else 0 for _ in range(num_ops)]
    machine = random_machine(rng)
    problem = priced(step.graph(groups), step.specs, machine, rng)
    permitted = np.ones((num_ops, 2), dtype=np.bool_)
    if groups is None and rng.random() < 0.3:
        permitted[rng.integers(num_ops)] = np.arange(2) == rng.integers(2)
    return problem.constrained(permitted=permitted)


def priced(
    graph: OpGraph,
    specs: Sequence[OpSpec | None],
    machine: Machine,
    rng: np.random.Generator,
    time_us: Sequence[float] | None = None,
) -> Problem:
    """Return the problem of a graph with random prices of parts, and random times without any."""
    kinds = tuple(dict.fromkeys(device.kind for device in machine.devices))
    distinct = tuple(dict.fromkeys(spec for spec in specs if spec is not None))
    numbers = (2,) if rng.random() < 0.7 else (2, 4)
    times = {
        (index, way.name): PartTimes(way.size, rng.choice(RATIOS, (len(kinds), len(numbers))))
        for index, spec in enumerate(distinct)
        for way in alternatives(spec)
        if way.size is not None
    }
    is_free = rng.random() < 0.5
    prices = rng.choice([0.0, 0.25, 1.0], (2, len(kinds))) * (not is_free)
    parts = Parts(
        names=graph.names,
        specs=distinct,
        spec_of=np.array([-1 if spec is None else distinct.index(spec) for spec in specs]),
        numbers=numbers,
        times=times,
        added={},
        fallback=BytePrice(prices[0], prices[1], np.full(len(kinds), 0.0 if is_free else 1e-3)),
    )
    columns = {kind: rng.integers(1, 10, graph.num_ops).astype(float) for kind in kinds}
    if time_us is not None:
        columns = {kind: np.array(time_us, dtype=np.float64) for kind in kinds}
    return Problem.build(graph, columns, machine, parts)


def random_machine(rng: np.random.Generator) -> Machine:
    """Return two devices: equal, of different speeds or kinds, or on two hosts."""
    names, speeds = ["GPU:0", "GPU:1"], [1.0, 1.0]
    form = rng.integers(5)
    if form == 0:
        speeds = [1.0, 2.0]
    elif form == 1:
        names = ["CPU:0", "GPU:0"]
    elif form == 2:
        names = ["host:0/GPU:0", "host:1/GPU:0"]
    overheads = rng.choice([0.0, 0.0, 0.5], 2)
    devices = tuple(
        Device(name, name.rpartition("/")[2][:3], 10**6, speed, overhead)
        for name, speed, overhead in zip(names, speeds, overheads, strict=True)
    )
    comm = CommModel(float(rng.choice([0.0, 0.0, 0.5, 2.0])), float(rng.choice([0.0, 0.01])))
    links = (Link(names[0], names[1], comm), Link(names[1], names[0], comm))
    return Machine(devices, links, signal_us=float(rng.choice([0.0, 0.5])))


def random_step(rng: np.random.Generator, num_ops: int) -> Step:
    """Return a step of vectors of one size, and of sums of these."""
    step, size = Step(), int(rng.choice([2, 4, LARGE]))
    vector = Operand((size,), "float32")
    while len(step.types) < num_ops:
        known = [tensor for tensor, (_, each) in enumerate(step.tensors) if each.dtype == "float32"]
        vectors = [tensor for tensor in known if step.tensors[tensor][1] == vector]
        if not vectors or rng.random() < 0.1:
            add_source(step, vector, rng)
        else:
            add_op(step, vector, int(rng.choice(vectors)), int(rng.choice(known)), rng)
        number = len(step.types) - 1
        if number > 1 and rng.random() < 0.15:
            step.control_edges.append((int(rng.integers(number)), number))
    return step


def add_source(step: Step, vector: Operand, rng: np.random.Generator) -> None:
    """Add an op without inputs; a step of a queue has no rule."""
    kind = str(rng.choice(["Dequeue", "Fill", "Const"]))
    if kind == "Fill":
        dims = Operand((1,), "int32", vector.shape, on_host=True)
        step.add(spec_of("Fill", [dims, Operand((), "float32", 1.0)], [vector]), None, None)
    elif kind == "Const" and vector.shape == (LARGE,):
        step.add(OpSpec("Const", (("dtype", "float32"),), (), (vector,)))
    else:
        step.add(spec_of("Dequeue", [], [vector]), has_rule=False)


def add_op(step: Step, vector: Operand, first: int, second: int, rng: np.random.Generator) -> None:
    """Add an op that takes a vector, and maybe another tensor."""
    other = step.tensors[second][1]
    kind = str(
        rng.choice(["Exp", "Neg", "AddV2", "Mul", "Sum", "Sum of axes", "IdentityN", "Loop"])
    )
    if kind in ("AddV2", "Mul"):
        step.add(spec_of(kind, [vector, other], [vector]), first, second)
    elif kind in ("Sum", "Sum of axes"):
        axes = None
        if kind == "Sum of axes":
            numbers = [Operand((), "int32", value, on_host=True) for value in (0, 1, 1)]
            outputs = [Operand((1,), "int32", on_host=True)]
            axes = step.add(spec_of("Range", numbers, outputs), None, None, None)
        step.add(spec_of("Sum", [vector, AXIS], [Operand((), "float32")]), first, axes)
    elif kind == "IdentityN":
        step.add(spec_of("IdentityN", [vector, other], [vector, other]), first, second)
    else:
        step.add(spec_of(kind, [vector], [vector]), first, has_rule=kind != "Loop")


def spec_of(op_type: str, inputs: Sequence[Operand], outputs: Sequence[Operand]) -> OpSpec:
    """Return the spec of an op without a state."""
    return OpSpec(op_type, (("T", "float32"),), tuple(inputs), tuple(outputs))
