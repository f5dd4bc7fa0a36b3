"""Reads of reference variables that see a later write.

The output of a reference variable is the variable's memory. TensorFlow stores the output of an
Identity on the variable (`w/read`) in the same memory. So a node that takes such an output after a
write of the variable sees the new value. An example is the moving average of a weight after the
weight's update. This holds only if the node is whole and on the variable's device: a copy for
another device, or a part of it, may be made before the write.
"""

from pesto_cli.graphdef.memory import REFERENCE_VARIABLES, forwarded_input
from pesto_cli.graphdef.wiring import Wiring


def late_reads(wiring: Wiring) -> dict[int, int]:
    """Return the nodes that take a variable's memory from before a write, and run after the write.

    The nodes between them and the variable are among them. The result is {node: variable}.
    """
    if not any(node.type in REFERENCE_VARIABLES for node in wiring.nodes):
        return {}
    variable_of, passed_on = dict[int, int](), dict[int, int]()
    bit, writes = dict[int, int](), dict[int, int]()
    for index in wiring.order:
        node = wiring.nodes[index]
        if node.type in REFERENCE_VARIABLES:
            variable_of[index] = index
            bit[index] = 1 << len(bit)
            continue
        slot = forwarded_input(node, wiring.op_defs)
        if slot is not None and slot < len(node.inputs) and node.inputs[slot][0] in variable_of:
            passed_on[index] = node.inputs[slot][0]
            variable_of[index] = variable_of[passed_on[index]]
        for argument, (source, _) in zip(wiring.signature(index).inputs, node.inputs, strict=True):
            if argument.is_ref and source in variable_of:
                writes[index] = writes.get(index, 0) | bit[variable_of[source]]
    if not writes:
        return {}
    before, found = wiring.before(writes), dict[int, int]()
    for index, node in enumerate(wiring.nodes):
        for source, _ in node.inputs:
            variable = variable_of.get(source)
            seen = before[source] | writes.get(source, 0)
            if variable is None or not before[index] & ~seen & bit[variable]:
                continue
            found[index] = variable
            while source != variable:
                found[source] = variable
                source = passed_on[source]
    return found
