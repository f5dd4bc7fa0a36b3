"""The execution model of docs/architecture.md as a simple, slow simulator.

It follows that page and uses only data types of the package, so that it checks both the simulator
and the page. Each rule is one method, which a test overrides to change the rule.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from memory_model import MemoryModel

from pesto_cli.data.machine import Device
from pesto_cli.data.problem import Problem


class StuckError(Exception):
    """No op can start although not all have run, because the ranks contradict the graph."""


class Run(NamedTuple):
    """The result of a run; transfers are sorted (tensor, destination, start, end)."""

    start_us: list[float]
    end_us: list[float]
    rank: list[int]
    transfers: list[tuple[int, int, float, float]]
    peak_bytes: list[int]

    @property
    def makespan_us(self) -> float:
        return max(self.end_us)


@dataclass(eq=False)
class Sending:
    """A transfer of a tensor to one device; start and end are valid after it has queued.

    A signal is a Sending without a link. Its tensor is -1, and `op` is the op that sends it.
    """

    op: int
    tensor: int
    src: int
    dst: int
    made_us: float
    start_us: float = 0.0
    end_us: float = 0.0


class Side(NamedTuple):
    """An endpoint of a transfer that has started on its link while the endpoint was idle."""

    sending: Sending
    is_receiver: bool


class ExecutionModel:
    """One simulation of a problem with a device for each op.

    keys: for each op; an idle device starts its ready op of least key.
    is_replay: whether a device runs its ops strictly in the order of their keys.
    """

    memory_model = MemoryModel
    # The steps of a round of an instant, and the steps after its rounds.
    round_steps = (
        "end_ops",
        "end_transfers",
        "end_waits",
        "start_transfers",
        "dispatch",
    )
    later_steps = ("take_what_waits", "queue")

    def __init__(
        self, problem: Problem, device: Sequence[int], keys: Sequence[float], *, is_replay: bool
    ) -> None:
        self.problem, self.graph, self.machine = problem, problem.graph, problem.machine
        self.device = [int(number) for number in device]
        self.keys, self.is_replay = [float(key) for key in keys], is_replay
        ops, devices = range(problem.num_ops), range(problem.num_devices)
        self.links = {
            (self.machine.index_of[link.src], self.machine.index_of[link.dst]): link
            for link in self.machine.links
        }
        self.now = 0.0
        self.start_us, self.end_us = [0.0 for _ in ops], [0.0 for _ in ops]
        self.num_missing = [self.num_inputs(op) for op in ops]
        self.to_run = [[op for op in ops if self.device[op] == number] for number in devices]
        self.has_run: list[list[int]] = [[] for _ in devices]
        self.running: list[int | None] = [None for _ in devices]
        self.num_others = [0 for _ in ops]
        self.made: list[Sending] = []
        self.on_link: list[Sending] = []
        self.arrived: list[Sending] = []
        self.sent: list[Sending] = []
        self.queued: list[Sending] = []
        self.uncharged: list[Side] = []
        self.free_us: dict[tuple[str, ...], float] = {}

    def run(self) -> Run:
        """Simulate all instants.

        Raises:
            StuckError: some ops never start.
        """
        while True:
            self.pass_instant()
            self.contend()
            coming_us = self.coming_us()
            if not coming_us:
                break
            self.now = min(coming_us)
        if any(self.to_run):
            raise StuckError
        return self.result()

    def coming_us(self) -> list[float]:
        """Return the times of all future events."""
        return [
            *(self.end_us[op] for op in self.running if op is not None),
            *(self.longest_wait_us(sending, sending.made_us) for sending in self.made),
            *(sending.start_us for sending in self.queued),
            *(sending.end_us for sending in self.on_link),
            *(self.longest_wait_us(sending, sending.end_us) for sending in self.arrived),
        ]

    def result(self) -> Run:
        rank = [self.has_run[number].index(op) for op, number in enumerate(self.device)]
        transfers = sorted(
            (s.tensor, s.dst, s.start_us, s.end_us) for s in self.sent if not self.is_signal(s)
        )
        memory = self.memory_model(self.problem, self.device, self.start_us, self.end_us, transfers)
        return Run(self.start_us, self.end_us, rank, transfers, memory.peak_bytes())

    # An instant.

    def pass_instant(self) -> None:
        """Repeat rounds until nothing happens, then the later steps; begin again if one acts."""
        while self.pass_round() or any(getattr(self, step)() for step in self.later_steps):
            pass

    def pass_round(self) -> bool:
        happened = [getattr(self, step)() for step in self.round_steps]
        return any(happened)

    # Ends and arrivals.

    def end_ops(self) -> bool:
        ended = [op for op in self.running if op is not None and self.end_us[op] <= self.now]
        for op in ended:
            src = self.device[op]
            self.running[src] = None
            for after in [*self.signalled(op), *self.data_consumers(op)]:
                self.num_missing[after] -= self.device[after] == src
            for tensor in self.tensors_of(op):
                for dst in self.destinations(tensor):
                    self.made.append(Sending(op, tensor, src, dst, self.now))
            for dst in sorted({self.device[after] for after in self.signalled(op)} - {src}):
                self.made.append(Sending(op, -1, src, dst, self.now))
        return bool(ended)

    def signalled(self, op: int) -> list[int]:
        """Return the consumers of an op's outputs in host memory, and its control successors."""
        uses = [use for tensor in self.tensors_of(op) for use in self.uses_of(tensor)]
        return [consumer for consumer, is_on_host in uses if is_on_host] + self.controlled_by(op)

    def data_consumers(self, op: int) -> list[int]:
        """Return the consumers of an op's outputs that take them on their own device."""
        uses = [use for tensor in self.tensors_of(op) for use in self.uses_of(tensor)]
        return [consumer for consumer, is_on_host in uses if not is_on_host]

    def is_signal(self, sending: Sending) -> bool:
        return sending.tensor < 0

    def destinations(self, tensor: int) -> list[int]:
        """Return the devices to which a tensor is sent."""
        src = self.device[self.graph.tensor_producer[tensor]]
        data_uses = [consumer for consumer, is_on_host in self.uses_of(tensor) if not is_on_host]
        return sorted({self.device[consumer] for consumer in data_uses} - {src})

    def signal_us(self) -> float:
        return self.machine.signal_us

    def end_transfers(self) -> bool:
        """Handle arrivals; receivers that compute delay the tensors."""
        ended = [sending for sending in self.on_link if sending.end_us <= self.now]
        for sending in ended:
            self.on_link.remove(sending)
            self.arrived.append(sending)
        self.take([sending for sending in ended if self.is_idle(sending.dst)])
        return bool(ended)

    def end_waits(self) -> bool:
        return self.take([sending for sending in self.arrived if self.has_waited(sending)])

    def has_waited(self, sending: Sending) -> bool:
        return self.longest_wait_us(sending, sending.end_us) <= self.now

    def take_what_waits(self) -> bool:
        return self.take([sending for sending in self.arrived if self.is_idle(sending.dst)])

    def take(self, taken: list[Sending]) -> bool:
        """Release the consumers of arrived tensors."""
        for sending in taken:
            self.arrived.remove(sending)
            for consumer in self.receivers_of(sending):
                self.num_missing[consumer] -= self.device[consumer] == sending.dst
        return bool(taken)

    def receivers_of(self, sending: Sending) -> list[int]:
        """Return the ops that take a tensor, or that wait for a signal, on any device."""
        if self.is_signal(sending):
            return self.signalled(sending.op)
        uses = self.uses_of(sending.tensor)
        return [consumer for consumer, is_on_host in uses if not is_on_host]

    # Dispatch.

    def dispatch(self) -> bool:
        idle = [number for number in range(self.problem.num_devices) if self.is_idle(number)]
        started = [self.start_next(number) for number in idle]
        return any(started)

    def is_idle(self, number: int) -> bool:
        return self.running[number] is None

    def start_next(self, number: int) -> bool:
        ready = [op for op in self.candidates(number) if self.num_missing[op] == 0]
        for op in ready[:1]:
            self.start(op)
        return bool(ready)

    def candidates(self, number: int) -> list[int]:
        """Return the ops that a device may start when they are ready, best first."""
        in_order = sorted(self.to_run[number], key=self.dispatch_key)
        return in_order[:1] if self.is_replay else in_order

    def dispatch_key(self, op: int) -> tuple[float, ...]:
        return (0, 0, op) if self.is_first(op) else (1, self.keys[op], op)

    def is_first(self, op: int) -> bool:
        """Return whether an op is a feed on the host without predecessors."""
        is_fed = bool(self.problem.is_feed[op]) and self.device[op] == self.machine.host
        return is_fed and self.num_inputs(op) == 0

    def start(self, op: int) -> None:
        number = self.device[op]
        self.to_run[number].remove(op)
        self.has_run[number].append(op)
        self.running[number] = op
        self.start_us[op] = self.now
        self.end_us[op] = self.now + self.duration_us(op)
        if self.duration_us(op) > 0:
            self.end_us[op] += self.late_overhead_us(number)

    def duration_us(self, op: int) -> float:
        if self.is_hosted(op):
            return 0.0
        device = self.machine.devices[self.device[op]]
        time_us = float(self.problem.time_us[op, self.problem.kinds.index(device.kind)])
        return time_us / device.speed + self.overhead_us(op)

    def is_hosted(self, op: int) -> bool:
        """Return whether an op is a feed or fetch on the host."""
        is_of_host = self.problem.is_feed[op] or self.problem.is_fetch[op]
        return bool(is_of_host) and self.device[op] == self.machine.host

    def overhead_us(self, op: int) -> float:
        device = self.machine.devices[self.device[op]]
        return device.op_overhead_us * int(self.graph.num_members[op])

    # Contention.

    def contend(self) -> None:
        """Count the devices that compute beside each op; a change of the number changes its end."""
        for op in [op for op in self.running if op is not None]:
            num_others = self.count_others(self.device[op])
            if num_others != self.num_others[op]:
                self.end_us[op] = self.end_beside(op, num_others)
                self.num_others[op] = num_others

    def count_others(self, number: int) -> int:
        every = range(self.problem.num_devices)
        return sum(self.contends(number, other) and not self.is_idle(other) for other in every)

    def contends(self, number: int, other: int) -> bool:
        """Return whether the ops of a device slow down those of another one."""
        devices = self.machine.devices
        return number != other and self.place(devices[number]) == self.place(devices[other])

    def place(self, device: Device) -> tuple[str, ...]:
        return device.kind, device.host

    def end_beside(self, op: int, num_others: int) -> float:
        """Return when a running op ends if this number of other devices compute from now on."""
        before, after = self.slowness(op, self.num_others[op]), self.slowness(op, num_others)
        return self.now + (self.end_us[op] - self.now) * after / before

    def slowness(self, op: int, num_others: int) -> float:
        return 1 + num_others * self.slow_down(op)

    def slow_down(self, op: int) -> float:
        """Return c, the slow-down of an op by each other device that computes."""
        if self.is_hosted(op):
            return 0.0
        of_type = self.machine.contention.get(self.machine.devices[self.device[op]].kind, {})
        return of_type.get(self.graph.types[op], of_type.get("", 0.0))

    # Links.

    def queue(self) -> bool:
        """Queue the tensors that no sender delays; links are first come, first served."""
        queueing = [sending for sending in self.made if self.leaves(sending)]
        for sending in sorted(queueing, key=self.queue_key):
            self.made.remove(sending)
            self.send(sending)
        self.start_transfers()
        return bool(queueing)

    def send(self, sending: Sending) -> None:
        if self.is_signal(sending):
            sending.start_us, sending.end_us = self.now, self.now + self.signal_us()
        else:
            channel = self.channel(sending)
            sending.start_us = max(self.now, self.free_us.get(channel, 0.0))
            sending.end_us = sending.start_us + self.transfer_us(sending)
            self.free_us[channel] = sending.end_us
        self.on_link.append(sending)
        self.sent.append(sending)
        self.queued.append(sending)

    def start_transfers(self) -> bool:
        """Start queued transfers on their links: add the overhead to ops on their endpoints."""
        starting = [sending for sending in self.queued if sending.start_us <= self.now]
        for sending in sorted(starting, key=self.queue_key):
            self.queued.remove(sending)
            for is_receiver in (False, True):
                self.charge(Side(sending, is_receiver))
        return bool(starting)

    def charge(self, side: Side) -> None:
        op = self.running[self.endpoint(side)]
        if op is not None:
            self.end_us[op] += self.slowed_overhead_us(side, op)
        else:
            self.uncharged.append(side)

    def late_overhead_us(self, number: int) -> float:
        """Return the overhead of an op that starts during transfers that no op was charged for."""
        charged = [side for side in self.uncharged if self.endpoint(side) == number]
        self.uncharged = [side for side in self.uncharged if side not in charged]
        shares_us = (
            self.transfer_overhead_us(side) * self.share_left(side.sending)
            for side in sorted(charged, key=self.side_key)
            if side.sending.end_us > self.now
        )
        return sum(shares_us)

    def share_left(self, sending: Sending) -> float:
        return (sending.end_us - self.now) / (sending.end_us - sending.start_us)

    def side_key(self, side: Side) -> tuple[float, ...]:
        return (*self.queue_key(side.sending), side.is_receiver)

    def endpoint(self, side: Side) -> int:
        return side.sending.dst if side.is_receiver else side.sending.src

    def slowed_overhead_us(self, side: Side, op: int) -> float:
        return self.transfer_overhead_us(side) * self.slowness(op, self.num_others[op])

    def transfer_overhead_us(self, side: Side) -> float:
        if side.is_receiver:
            return self.receiver_overhead_us(side.sending)
        return self.sender_overhead_us(side.sending)

    def leaves(self, sending: Sending) -> bool:
        is_over = self.longest_wait_us(sending, sending.made_us) <= self.now
        return is_over or self.is_idle(sending.src)

    def queue_key(self, sending: Sending) -> tuple[float, ...]:
        """Return the sort key of tensors that queue at the same instant."""
        return sending.made_us, sending.op, self.is_signal(sending), sending.tensor, sending.dst

    def channel(self, sending: Sending) -> tuple[str, ...]:
        link = self.links[sending.src, sending.dst]
        return (link.channel,) if link.channel else (link.src, link.dst)

    def transfer_us(self, sending: Sending) -> float:
        comm = self.links[sending.src, sending.dst].comm
        return max(comm.min_us, comm.latency_us + comm.us_per_byte * self.bytes_of(sending))

    def longest_wait_us(self, sending: Sending, since_us: float) -> float:
        """Return the latest end of the delay by an endpoint that computes."""
        return since_us + self.links[sending.src, sending.dst].comm.wait_us

    def sender_overhead_us(self, sending: Sending) -> float:
        comm = self.links[sending.src, sending.dst].comm
        return comm.sender_us + comm.sender_us_per_byte * self.bytes_of(sending)

    def receiver_overhead_us(self, sending: Sending) -> float:
        comm = self.links[sending.src, sending.dst].comm
        return comm.receiver_us + comm.receiver_us_per_byte * self.bytes_of(sending)

    # The graph.

    def tensors_of(self, op: int) -> list[int]:
        return np.flatnonzero(self.graph.tensor_producer == op).tolist()

    def uses_of(self, tensor: int) -> list[tuple[int, bool]]:
        """Return (consumer, whether it takes the tensor in host memory) for each consumer."""
        rows = slice(*self.graph.consumer_offsets[tensor : tensor + 2])
        uses = zip(self.graph.consumers[rows], self.graph.consumer_on_host[rows], strict=True)
        return [(int(consumer), bool(is_on_host)) for consumer, is_on_host in uses]

    def controlled_by(self, op: int) -> list[int]:
        return [int(after) for before, after in self.graph.control_edges if before == op]

    def num_inputs(self, op: int) -> int:
        """Return the number of tensors and control edges for which an op waits."""
        edges = self.graph.control_edges.reshape(-1, 2)
        return int((self.graph.consumers == op).sum() + (edges[:, 1] == op).sum())

    def bytes_of(self, sending: Sending) -> int:
        return 0 if self.is_signal(sending) else int(self.graph.tensor_bytes[sending.tensor])
