"""The columns of a problem's graph and machine that kernels read, as named tuples."""

from typing import NamedTuple

import numpy as np

from pesto_cli.data.graph import Adjacency, BoolArray, FloatArray, IntArray
from pesto_cli.data.machine import Machine
from pesto_cli.data.problem import Problem


class KernelGraph(NamedTuple):
    """Ops, tensors and edges, in compressed rows.

    duration_us: `[num_ops, num_devices]`.
    op_tensors: `[num_ops + 1]`, rows of tensors by producer.
    tensor_bytes: `[num_tensors]`.
    consumer_offsets: `[num_tensors + 1]`, rows of `consumers` by tensor.
    consumers: `[num_entries]`, ops.
    consumer_on_host: `[num_entries]`, whether the consumer takes the tensor in host memory.
    control_offsets: `[num_ops + 1]`, rows of `control_successors` by op.
    control_successors: `[num_control_edges]`, ops.
    delay_factor: `[2, num_tensors + num_ops]`, factors of the longest delay of tensors, and of
        signals by op, at the sender and at the receiver; or `[2, 0]`, if all are 1.
    slow_down: `[num_ops, num_devices]`, see `Problem.slow_down`; or `[0, 0]` without contention.
    """

    duration_us: FloatArray
    op_tensors: IntArray
    tensor_bytes: IntArray
    consumer_offsets: IntArray
    consumers: IntArray
    consumer_on_host: BoolArray
    control_offsets: IntArray
    control_successors: IntArray
    delay_factor: FloatArray
    slow_down: FloatArray

    @classmethod
    def of(cls, problem: Problem) -> "KernelGraph":
        """Return the columns of a problem's graph, with the times of its ops."""
        graph = problem.graph
        control = Adjacency.from_edges(
            graph.num_ops, graph.control_edges[:, 0], graph.control_edges[:, 1]
        )
        return cls(
            duration_us=problem.duration_us,
            op_tensors=graph.op_tensors,
            tensor_bytes=graph.tensor_bytes,
            consumer_offsets=graph.consumer_offsets,
            consumers=graph.consumers,
            consumer_on_host=graph.consumer_on_host,
            control_offsets=control.offsets,
            control_successors=control.indices,
            delay_factor=np.ones((2, 0)),
            slow_down=problem.slow_down if problem.machine.has_contention else np.zeros((0, 0)),
        )


class KernelMachine(NamedTuple):
    """Links by (source, destination), `[num_devices, num_devices]`; see `data.machine.Machine`.

    latency_us, us_per_byte, min_us: time of a transfer.
    channel: number of the queue to which a link belongs.
    transfer_overhead_us: `[2, 2, num_devices, num_devices]`; the first axis is sender or receiver,
        the second is constant or per byte.
    has_overheads: whether any endpoint of a transfer has overhead.
    wait_us: longest delay of a transfer by an endpoint that computes.
    has_delays: whether any of them is above 0.
    signal_us: time of a signal between any two devices.
    peer_group: `[num_devices]`, devices with equal numbers are peers: of one kind and host.
    has_contention: whether any op can become slower.
    """

    latency_us: FloatArray
    us_per_byte: FloatArray
    min_us: FloatArray
    channel: IntArray
    transfer_overhead_us: FloatArray
    has_overheads: bool
    wait_us: FloatArray
    has_delays: bool
    signal_us: float
    peer_group: IntArray
    has_contention: bool

    @classmethod
    def of(cls, machine: Machine) -> "KernelMachine":
        """Return the columns of a machine's links."""
        return cls(
            latency_us=machine.latency_us,
            us_per_byte=machine.us_per_byte,
            min_us=machine.min_us,
            channel=machine.channel,
            transfer_overhead_us=machine.transfer_overhead_us,
            has_overheads=bool(machine.transfer_overhead_us.any()),
            wait_us=machine.wait_us,
            has_delays=bool(machine.wait_us.any()),
            signal_us=float(machine.signal_us),
            peer_group=machine.peer_group,
            has_contention=machine.has_contention,
        )


def num_awaited(problem: Problem) -> IntArray:
    """Return the number of tensors and control edges for which each op waits, `[num_ops]`."""
    graph = problem.graph
    data = np.bincount(graph.consumers, minlength=graph.num_ops)
    return data + np.bincount(graph.control_edges[:, 1], minlength=graph.num_ops)
