"""Longest paths and transfer times of a placed graph, without queueing."""

import numpy as np

from pesto_cli.data.graph import FloatArray, IntArray
from pesto_cli.evaluation.simulator.columns import KernelGraph, KernelMachine
from pesto_cli.kernels import kernel


@kernel
def transfer_us(machine: KernelMachine, src: int, dst: int, num_bytes: int) -> float:
    """Return the time in us for which a transfer occupies its link."""
    least_us: float = machine.min_us[src, dst]
    sent_us: float = machine.latency_us[src, dst] + machine.us_per_byte[src, dst] * num_bytes
    return max(least_us, sent_us)


@kernel
def longest_tails(
    order: IntArray,
    duration_us: FloatArray,
    graph: KernelGraph,
    machine: KernelMachine,
    device: IntArray,
) -> FloatArray:
    """Return the longest path in us from each op's start to the end of the graph, `[num_ops]`."""
    offsets, consumers, on_host = graph.consumer_offsets, graph.consumers, graph.consumer_on_host
    after, after_offsets = graph.control_successors, graph.control_offsets
    op_tensors, tensor_bytes, tail = graph.op_tensors, graph.tensor_bytes, np.zeros(len(order))
    for op in order[::-1]:
        here, longest = device[op], 0.0
        for tensor in range(op_tensors[op], op_tensors[op + 1]):
            for entry in range(offsets[tensor], offsets[tensor + 1]):
                where = device[consumers[entry]]
                delay = 0.0
                if where != here and on_host[entry]:
                    delay = machine.signal_us
                elif where != here:
                    delay = transfer_us(machine, here, where, tensor_bytes[tensor])
                longest = max(longest, delay + tail[consumers[entry]])
        for entry in range(after_offsets[op], after_offsets[op + 1]):
            delay = 0.0 if device[after[entry]] == here else machine.signal_us
            longest = max(longest, delay + tail[after[entry]])
        tail[op] = duration_us[op] + longest
    return tail


@kernel
def transfers_us(graph: KernelGraph, machine: KernelMachine, device: IntArray) -> float:
    """Return the sum in us of the times of all transfers of a placement."""
    offsets, consumers, on_host = graph.consumer_offsets, graph.consumers, graph.consumer_on_host
    op_tensors, tensor_bytes = graph.op_tensors, graph.tensor_bytes
    last_sent = np.full(len(machine.channel), -1, np.int64)  # to each device
    total = 0.0
    for op in range(len(device)):
        here = device[op]
        for tensor in range(op_tensors[op], op_tensors[op + 1]):
            for entry in range(offsets[tensor], offsets[tensor + 1]):
                where = device[consumers[entry]]
                if where == here or on_host[entry] or last_sent[where] == tensor:
                    continue
                last_sent[where] = tensor
                total += transfer_us(machine, here, where, tensor_bytes[tensor])
    return total
