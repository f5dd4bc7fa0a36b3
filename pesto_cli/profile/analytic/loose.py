"""Analytic times of ops on their own: each one with inputs that nothing computes."""

from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from typing import Any

from pesto_cli.data.machine import DeviceKind
from pesto_cli.data.specs import Operand, OpSpec
from pesto_cli.graphdef.attributes import attr_value
from pesto_cli.graphdef.spec_nodes import constant_def, node_def
from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.profile.analytic.estimates import EstimateRequest, estimates_us
from pesto_cli.profile.analytic.groups import one_group
from pesto_cli.profile.analytic.kinds import is_free, launched_us

TimesOfSpecs = Mapping[OpSpec, float]


def loose_us(
    wanted: Mapping[str, Collection[OpSpec]], kinds: Mapping[str, DeviceKind]
) -> dict[str, TimesOfSpecs]:
    """Estimate the times of ops with static shapes in us, by device kind.

    wanted: device kind -> distinct specs; the kind must have kernels for them. A call takes the sum
        of the times of the ops of its body. kinds: the descriptions of these kinds.

    Raises:
        EnvironmentFailedError: the process of TensorFlow's virtual cluster died.
    """
    run = {
        name: dict.fromkeys(chain.from_iterable(spec.kernels for spec in specs))
        for name, specs in wanted.items()
    }
    launched = {
        name: [spec for spec in specs if not _is_free(spec, kinds[name])]
        for name, specs in run.items()
    }
    asked = [name for name, specs in launched.items() if specs]
    groups = {spec: one_group(spec) for name in asked for spec in launched[name]}
    estimates = estimates_us(
        [_request([groups[spec][0] for spec in launched[name]], kinds[name]) for name in asked]
    )
    found = {name: dict.fromkeys(specs, kinds[name].no_launch_us) for name, specs in run.items()}
    for name, of_nodes in zip(asked, estimates, strict=True):
        for node, spec in zip(_names(launched[name]), launched[name], strict=True):
            found[name][spec] = launched_us(of_nodes.get(node), kinds[name], groups[spec][1])
    return {
        name: {spec: sum(found[name][each] for each in spec.kernels) for spec in specs}
        for name, specs in wanted.items()
    }


def _is_free(spec: OpSpec, kind: DeviceKind) -> bool:
    on_host = bool(spec.outputs) and all(operand.on_host for operand in spec.outputs)
    return is_free(spec.type, on_host, kind)


def _request(specs: Sequence[OpSpec], kind: DeviceKind) -> EstimateRequest:
    """Return a request for the estimates of ops. In its graph, equal inputs are one node."""
    tf = tensorflow()
    graph_def = tf.compat.v1.GraphDef()
    graph_def.versions.producer = tf.version.GRAPH_DEF_VERSION
    operands = dict.fromkeys(operand for spec in specs for operand in spec.inputs)
    source_of = {operand: f"input_{number}" for number, operand in enumerate(operands)}
    graph_def.node.extend(_input_def(name, operand) for operand, name in source_of.items())
    names = _names(specs)
    for name, spec in zip(names, specs, strict=True):
        graph_def.node.append(node_def(name, spec, [source_of[each] for each in spec.inputs]))
    return EstimateRequest(kind, graph_def, names)


def _names(specs: Sequence[OpSpec]) -> list[str]:
    """Return node names with the op types in them, for the messages of TensorFlow."""
    return [f"{spec.type}_{number}" for number, spec in enumerate(specs)]


def _input_def(name: str, operand: Operand) -> Any:
    if operand.value is not None:
        return constant_def(name, operand)
    # Not a Placeholder: for each of these, the virtual cluster makes a tensor of its full size.
    node = tensorflow().compat.v1.NodeDef(name=name, op="ImmutableConst")
    node.attr["dtype"].CopyFrom(attr_value("type", operand.dtype or "float32"))
    node.attr["shape"].CopyFrom(attr_value("shape", operand.sizes))
    node.attr["memory_region_name"].s = b"none"
    return node
