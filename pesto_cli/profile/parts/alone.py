"""Time ops on their own on a real device, each with inputs that are made right before it.

Control edges chain the ops of a step, so that one runs at a time and only its own operands are in
memory:

    Fill ─> op 1 ──control──> Fill ─> op 2 ──control──> ...

The time of an op is the minimum over traced steps. Whole steps are profiled by medians, but here
times are divided by each other, and a disturbance of one of the two would change the ratio. This
module runs in the client process.
"""

import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from pesto_cli.apply import session_config
from pesto_cli.cluster import Connection
from pesto_cli.data.graph import FloatArray
from pesto_cli.data.specs import Operand, OpSpec
from pesto_cli.errors import BadInputError, EnvironmentFailedError
from pesto_cli.graphdef.failures import reason
from pesto_cli.graphdef.spec_nodes import constant_def, node_def
from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.profile.traces import step_stats
from pesto_cli.runtime.repetitions import repetitions

NUM_STEPS, FEWEST_STEPS, NUM_WARM_UP = 10, 3, 2
BATCH = 64
"""Ops of a step. Steps with many more ops take long to build."""
FILLED = 0.5
"""The elements of floating-point inputs. Those of integers are 0, a valid index of any axis."""


def timed_alone(
    connection: Connection, device: str, specs: Sequence[OpSpec], limit_s: float = math.inf
) -> FloatArray:
    """`[num_specs]`: the time of each op in us; NaN if it fails alone.

    device: pesto's name of the device. The shapes of all inputs must be static. limit_s: no more
        steps begin after so many seconds, except for the fewest of each op.

    Raises:
        EnvironmentFailedError: a process of the cluster has ended.
    """
    us: list[float] = []
    began_s = time.monotonic()
    for start in range(0, len(specs), BATCH):
        batch = specs[start : start + BATCH]
        share = (start + len(batch)) / len(specs)
        us += _timed(connection, device, batch, began_s + share * limit_s)
    return np.array(us)


def _timed(
    connection: Connection, device: str, specs: Sequence[OpSpec], deadline_s: float
) -> list[float]:
    """Time ops in one step; if it fails, halve it until the ops that fail are alone."""
    errors = tensorflow().errors
    try:
        return _least_us(connection, device, specs, deadline_s)
    except (errors.UnavailableError, errors.AbortedError, errors.CancelledError) as error:
        raise EnvironmentFailedError(
            f"the devices could not run parts of ops: {reason(error)}"
        ) from error
    except (errors.OpError, BadInputError, TypeError, ValueError):  # The last two: of the import.
        if len(specs) == 1:
            return [np.nan]
        half = len(specs) // 2
        return [
            us
            for part in (specs[:half], specs[half:])
            for us in _timed(connection, device, part, deadline_s)
        ]


def _least_us(
    connection: Connection, device: str, specs: Sequence[OpSpec], deadline_s: float
) -> list[float]:
    tf = tensorflow()
    tf1 = tf.compat.v1
    with tf.Graph().as_default() as graph:
        tf1.import_graph_def(_chained(specs, connection.device_names[device]), name="")
        last = graph.get_operation_by_name(_name(len(specs) - 1, specs[-1]))
    options = tf1.RunOptions(trace_level=tf1.RunOptions.FULL_TRACE)
    traced = []
    with connection.session(graph, session_config()) as session:
        for _ in range(NUM_WARM_UP):
            session.run(last)
        for _ in repetitions(NUM_STEPS, FEWEST_STEPS, deadline_s):
            metadata = tf1.RunMetadata()
            session.run(last, options=options, run_metadata=metadata)
            traced.append(metadata.step_stats)
    us = {node: column.min() for (node, _), column in step_stats.measured(traced).us.items()}
    return [float(us.get(_name(number, spec), np.nan)) for number, spec in enumerate(specs)]


def _chained(specs: Sequence[OpSpec], device: str) -> Any:
    """Return a GraphDef with the chain of ops on a device."""
    tf = tensorflow()
    graph_def = tf.compat.v1.GraphDef()
    graph_def.versions.producer = tf.version.GRAPH_DEF_VERSION
    before: list[str] = []
    for number, spec in enumerate(specs):
        name = _name(number, spec)
        sources = [f"{name}/input_{slot}" for slot in range(len(spec.inputs))]
        for source, operand in zip(sources, spec.inputs, strict=True):
            graph_def.node.extend(_input_defs(source, operand, before))
        graph_def.node.append(node_def(name, spec, sources, before))
        before = [name]
    for node in graph_def.node:
        node.device = device
    return graph_def


def _name(number: int, spec: OpSpec) -> str:
    return f"{spec.type}_{number}"


def _input_defs(name: str, operand: Operand, before: Sequence[str]) -> list[Any]:
    """Return nodes that make a tensor, once the nodes `before` have ended."""
    if operand.value is not None:
        return [constant_def(name, operand)]
    dtype = tensorflow().dtypes.as_dtype(operand.dtype or "float32")
    element = FILLED if dtype.is_floating or dtype.is_complex else "" if dtype == "string" else 0
    sizes = operand.sizes
    shape = Operand((len(sizes),), "int32", sizes)
    fill = OpSpec("Fill", (("T", dtype.name), ("index_type", "int32")), (), ())
    return [
        constant_def(f"{name}/shape", shape),
        constant_def(f"{name}/element", Operand((), dtype.name, element)),
        node_def(name, fill, [f"{name}/shape", f"{name}/element"], before),
    ]
