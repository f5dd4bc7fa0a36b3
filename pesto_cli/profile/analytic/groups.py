"""Convolutions with groups, which are estimated one group at a time.

TensorFlow's estimate knows no groups: it counts a product of each result with all channels of the
images, not with those of its group. One group is a convolution without groups, and has its share of
the bytes. So the estimate of a convolution with g groups is g times that of one of them.
"""

from collections.abc import Iterator
from typing import Any

from pesto_cli.data.specs import Operand, OpSpec
from pesto_cli.graphdef.attributes import plain_attributes
from pesto_cli.graphdef.read import StepGraph
from pesto_cli.graphdef.signature import OpDefs
from pesto_cli.graphdef.sizes import shapes_inferred
from pesto_cli.profile.analytic.unfolding import Unfolded
from pesto_cli.sharding.alternative import part_spec
from pesto_cli.sharding.rules import alternatives

# The input with the sizes of the output, if there is one.
_SIZES = {"Conv2D": None, "Conv2DBackpropInput": 0, "Conv2DBackpropFilter": 1}


def one_group(spec: OpSpec) -> tuple[OpSpec, int]:
    """Return one group of a convolution, and their number; of another op, itself and 1."""
    for way in alternatives(spec) if spec.type in _SIZES else ():
        if way.name == "groups" and way.size is not None:
            return part_spec(spec, way, 1), way.size
    return spec, 1


def with_groups(unfolded: Unfolded, step: StepGraph) -> dict[int, OpSpec]:
    """Return the specs of the convolutions with groups, by index in the nodes of `unfolded`.

    step: the step before functions were inlined.
    """
    found = dict(_convolutions(unfolded, step))
    return {index: spec for index, spec in found.items() if one_group(spec)[1] > 1}


def _convolutions(unfolded: Unfolded, step: StepGraph) -> Iterator[tuple[int, OpSpec]]:
    """Yield the specs of convolutions with static shapes."""
    places = [index for index, node in enumerate(unfolded.nodes) if node.type in _SIZES]
    of_step = {node.name: index for index, node in enumerate(step.wiring.nodes)}
    op_defs = OpDefs(unfolded.graph_def.library)
    inlined = [index for index in places if unfolded.nodes[index].name not in of_step]
    graph = shapes_inferred(unfolded.graph_def, unfolded.nodes) if inlined else None
    for index in places:
        node = unfolded.nodes[index]
        if node.name in of_step:
            inputs, outputs = _in_step(step, of_step[node.name])
        else:
            inputs, outputs = _in_graph(graph, node.name)
        sizes = _SIZES[node.type]
        if sizes is not None and outputs[0].is_static:
            inputs[sizes] = Operand(inputs[sizes].shape, inputs[sizes].dtype, outputs[0].sizes)
        attributes = plain_attributes(node.proto, op_defs.of(node.proto))
        spec = OpSpec(node.type, attributes, tuple(inputs), tuple(outputs))
        if spec.is_static:
            yield index, spec


def _in_step(step: StepGraph, index: int) -> tuple[list[Operand], list[Operand]]:
    inputs = [step.sizes[source][output] for source, output in step.wiring.nodes[index].inputs]
    return (
        [Operand(size.shape, size.dtype) for size in inputs],
        [Operand(size.shape, size.dtype) for size in step.sizes[index]],
    )


def _in_graph(graph: Any, name: str) -> tuple[list[Operand], list[Operand]]:
    def operand(tensor: Any) -> Operand:
        shape = None if tensor.shape.rank is None else tuple(tensor.shape.as_list())
        return Operand(shape, tensor.dtype.base_dtype.name)

    operation = graph.get_operation_by_name(name)
    return [*map(operand, operation.inputs)], [*map(operand, operation.outputs)]
