"""Control inputs that prevent oneDNN from merging nodes of a placed graph into cycles.

On a CPU, TensorFlow's oneDNN pass replaces a convolution and its BiasAdd by one node if both have
the same control inputs. The same holds for a filter gradient and its BiasAddGrad, and for a Pad and
the convolution of its output. If the execution order puts an op between the two, and only one of
its edges is a data edge (as when a bias is reshaped, or a filter is computed in the step), the
merged node is part of a cycle, and the step fails or never ends. The pass compares
control inputs only, so one that repeats a data input keeps the nodes apart.
"""

from collections.abc import Mapping, Sequence

from pesto_cli.apply.devices import device_type
from pesto_cli.graphdef.nodes import Node

# Ops that the pass may merge with the producer of their first input.
MERGED = frozenset({"BiasAdd", "BiasAddGrad"})
# The pass merges this convolution only with this producer.
MERGED_PAIR = ("Pad", "Conv2D")


def separated(
    nodes: Sequence[Node], device: Mapping[str, str], waits_for: Mapping[str, Sequence[str]]
) -> dict[str, list[str]]:
    """Return control inputs with one more for each node that oneDNN could merge.

    Args:
        nodes: the nodes of the step.
        device: node name -> TensorFlow device.
        waits_for: node name -> names of the nodes that become its control inputs.
    """
    found = {node: [*sources] for node, sources in waits_for.items()}
    for node in nodes:
        if not node.inputs or device_type(device[node.name]) != "CPU":
            continue
        producer = nodes[node.inputs[0][0]]
        is_merged = node.type in MERGED or (producer.type, node.type) == MERGED_PAIR
        if is_merged and device.get(producer.name) == device[node.name]:
            sources = found.setdefault(node.name, [])
            if producer.name not in sources:
                sources.append(producer.name)
    return found
