"""Step 1 of an instant, first part: ops end."""

from pesto_cli.evaluation.simulator.heaps import push_ready
from pesto_cli.evaluation.simulator.state import Given, SimulationState, append
from pesto_cli.kernels import step


@step
def end_ops(given: Given, state: SimulationState, now: float) -> None:
    """End ops: make their devices idle, and release consumers on the same device."""
    running, end_us = state.devices.running, state.ops.end_us
    for here in range(len(running)):
        op = running[here]
        if op >= 0 and end_us[op] <= now:
            running[here] = -1
            data_crosses, signals_data = release_consumers(given, state, op, here)
            signals = release_successors(given, state, op, here) or signals_data
            if data_crosses or signals:
                append(state.produced, 2 * op + signals)


@step
def release_consumers(
    given: Given, state: SimulationState, op: int, here: int
) -> tuple[bool, bool]:
    """Release the consumers of an op's outputs on its device.

    Returns:
        Whether data goes to other devices, and whether signals do (for tensors in host memory).
    """
    graph, crosses, signals = given.graph, False, False
    first, last = graph.op_tensors[op], graph.op_tensors[op + 1]
    for entry in range(graph.consumer_offsets[first], graph.consumer_offsets[last]):
        consumer = graph.consumers[entry]
        if given.device[consumer] == here:
            release(given, state, consumer, here)
        elif graph.consumer_on_host[entry]:
            signals = True
        else:
            crosses = True
    return crosses, signals


@step
def release_successors(given: Given, state: SimulationState, op: int, here: int) -> bool:
    """Release an op's control successors on its device; return whether there are others."""
    graph, crosses = given.graph, False
    for entry in range(graph.control_offsets[op], graph.control_offsets[op + 1]):
        successor = graph.control_successors[entry]
        if given.device[successor] == here:
            release(given, state, successor, here)
        else:
            crosses = True
    return crosses


@step
def release(given: Given, state: SimulationState, op: int, here: int) -> None:
    """Count one arrived input of an op; after the last one, the op is ready."""
    state.ops.awaits[op] -= 1
    if state.ops.awaits[op] == 0 and len(given.queue) == 0:
        push_ready(state.ready, here, op)
