"""Variants of the execution model with one changed rule each."""

from collections.abc import Mapping
from typing import Any

from execution_model import ExecutionModel, Sending, Side
from memory_model import Copy, MemoryModel, Span

BEFORE_WAITS = ("end_ops", "end_transfers")

Model = ExecutionModel
Memory = MemoryModel


def time_with(**rules: Any) -> type[ExecutionModel]:
    """Return a model with changed rules of time, by names of methods."""
    return type("Mutant", (ExecutionModel,), rules)


def memory_with(**rules: Any) -> type[ExecutionModel]:
    """Return a model with changed rules of memory."""
    return time_with(memory_model=type("MemoryMutant", (MemoryModel,), rules))


def for_each_consumer(self: Model, tensor: int) -> list[int]:
    src = self.device[self.graph.tensor_producer[tensor]]
    uses = [self.device[consumer] for consumer, on_host in self.uses_of(tensor) if not on_host]
    return [dst for dst in uses if dst != src]


def also_for_host_data(self: Model, tensor: int) -> list[int]:
    src = self.device[self.graph.tensor_producer[tensor]]
    return sorted({self.device[consumer] for consumer, _ in self.uses_of(tensor)} - {src})


class OverheadAtArrival(ExecutionModel):
    """The overhead of a receiver counts when a tensor arrives."""

    def charge(self, side: Side) -> None:
        if not side.is_receiver:
            super().charge(side)

    def end_transfers(self) -> bool:
        for sending in [each for each in self.on_link if each.end_us <= self.now]:
            super().charge(Side(sending, is_receiver=True))
        return super().end_transfers()


class OverheadWhenQueued(ExecutionModel):
    """The overhead of a sender counts when a tensor queues."""

    def charge(self, side: Side) -> None:
        if side.is_receiver:
            super().charge(side)

    def send(self, sending: Sending) -> None:
        super().send(sending)
        super().charge(Side(sending, is_receiver=False))


def comm_of(self: Model, sending: Sending) -> Any:
    return self.links[sending.src, sending.dst].comm


def charge_for_tensors(self: Model, side: Side) -> None:
    if not self.is_signal(side.sending):
        Model.charge(self, side)


def charge_for_each_successor(self: Model, side: Side) -> None:
    dst = side.sending.dst
    count = sum(self.device[op] == dst for op in self.receivers_of(side.sending))
    for _ in range(count if self.is_signal(side.sending) else 1):
        Model.charge(self, side)


class ByEnds(ExecutionModel):
    """A free link sends the tensor that was produced first, even if it queued later."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.waiting: list[Sending] = []

    def queue(self) -> bool:
        happened = super().queue()
        for sending in sorted(self.waiting, key=self.queue_key):
            if self.is_signal(sending) or self.free_us.get(self.channel(sending), 0) <= self.now:
                self.waiting.remove(sending)
                super().send(sending)
                happened = True
        self.start_transfers()
        return happened

    def send(self, sending: Sending) -> None:
        self.waiting.append(sending)


def late_for_zero_time(self: Model, op: int) -> None:
    Model.start(self, op)
    if self.duration_us(op) == 0:
        self.end_us[op] += self.late_overhead_us(self.device[op])


def in_order(self: Model, number: int) -> list[int]:
    return sorted(self.to_run[number], key=self.dispatch_key)


def scaled_overhead(self: Model, op: int) -> float:
    return Model.overhead_us(self, op) / self.machine.devices[self.device[op]].speed


def overhead_once(self: Model, op: int) -> float:
    return self.machine.devices[self.device[op]].op_overhead_us


def is_fed_on_host(self: Model, op: int) -> bool:
    return bool(self.problem.is_feed[op]) and self.device[op] == self.machine.host


def is_fed_at_once(self: Model, op: int) -> bool:
    return bool(self.problem.is_feed[op]) and self.num_inputs(op) == 0


def counted_at_its_start(self: Model, number: int) -> int:
    op = self.running[number]
    if op is None or self.start_us[op] == self.now:
        return Model.count_others(self, number)
    return self.num_others[op]


def count_every_device(self: Model, number: int) -> int:
    return sum(self.contends(number, other) for other in range(self.problem.num_devices))


class CountedBeforeSteps(ExecutionModel):
    """The other devices that compute are counted before the steps of an instant."""

    def pass_instant(self) -> None:
        super().contend()
        super().pass_instant()

    def contend(self) -> None:
        pass


class SlowedAsOthers(ExecutionModel):
    """An op is slowed down by the slow-downs of the ops beside it, not by its own."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.factor = [1.0 for _ in self.num_others]

    def contend(self) -> None:
        running = [op for op in self.running if op is not None]
        for op in running:
            beside = [it for it in running if self.contends(self.device[op], self.device[it])]
            before, after = self.factor[op], 1 + sum(self.slow_down(it) for it in beside)
            self.end_us[op] = self.now + (self.end_us[op] - self.now) * after / before
            self.factor[op] = after

    def slowness(self, op: int, num_others: int) -> float:
        return self.factor[op]


class LateOverheadUnslowed(ExecutionModel):
    """The overhead of an op that starts during a transfer is added after the op is slowed down."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.late: list[tuple[int, float]] = []

    def late_overhead_us(self, number: int) -> float:
        op = self.running[number]
        if op is not None:
            self.late.append((op, super().late_overhead_us(number)))
        return 0.0

    def contend(self) -> None:
        super().contend()
        for op, late_us in self.late:
            self.end_us[op] += late_us
        self.late = []


def stretched_as_a_whole(self: Model, op: int, num_others: int) -> float:
    before, after = self.slowness(op, self.num_others[op]), self.slowness(op, num_others)
    end_us = self.start_us[op] + (self.end_us[op] - self.start_us[op]) * after / before
    return max(self.now, end_us)


def as_the_op_before(self: Model, op: int) -> None:
    Model.start(self, op)
    for before in self.has_run[self.device[op]][-2:-1]:
        self.num_others[op] = self.num_others[before]


def slow_downs_of(self: Model, op: int) -> Mapping[str, float]:
    if self.is_hosted(op):
        return {}
    return self.machine.contention.get(self.machine.devices[self.device[op]].kind, {})


def of_any_kind(self: Model, op: int) -> float:
    tables = [] if self.is_hosted(op) else self.machine.contention.values()
    return max((table.get(self.graph.types[op], table.get("", 0.0)) for table in tables), default=0)


def until_its_op_ends(self: Memory, tensor: int) -> Span:
    producer = self.graph.tensor_producer[tensor]
    return self.start_us[producer], self.end_us[producer]


def without_transfers(self: Memory, tensor: int) -> Span:
    producer = self.graph.tensor_producer[tensor]
    uses = self.uses_us(tensor, self.home(tensor))
    return self.start_us[producer], max([self.end_us[producer], *uses])


def from_its_ops_end(self: Memory, tensor: int) -> Span:
    producer = self.graph.tensor_producer[tensor]
    return self.end_us[producer], Memory.home_span(self, tensor)[1]


def from_arrival(self: Memory, tensor: int, dst: int, start_us: float, end_us: float) -> Span:
    return end_us, max([end_us, *self.uses_us(tensor, dst)])


def until_arrival(self: Memory, tensor: int, dst: int, start_us: float, end_us: float) -> Span:
    return start_us, end_us


def data_uses_us(self: Memory, tensor: int, number: int) -> list[float]:
    rows = range(*self.graph.consumer_offsets[tensor : tensor + 2])
    return [
        self.end_us[self.graph.consumers[row]]
        for row in rows
        if self.device[self.graph.consumers[row]] == number
        and (number == self.home(tensor) or not self.graph.consumer_on_host[row])
    ]


def last_aliased(self: Memory, tensor: int) -> Copy | None:
    graph, op = self.graph, self.graph.tensor_producer[tensor]
    sources = [
        source
        for source in range(graph.num_tensors)
        if graph.tensor_producer[source] == graph.alias_of[op] and op in graph.consumers_of(source)
    ]
    return (sources[-1], self.home(tensor)) if sources else None


def alias_uses_memory(self: Memory, copy: Copy, span_of: dict[Copy, Span]) -> int:
    return int(self.graph.tensor_bytes[copy[0]]) * (not self.is_variable(copy[0]))


def alias_is_free_everywhere(self: Memory, copy: Copy, span_of: dict[Copy, Span]) -> int:
    is_alias = self.is_variable(copy[0]) or self.aliased(copy[0]) in span_of
    return 0 if is_alias else int(self.graph.tensor_bytes[copy[0]])


MUTANTS: dict[str, type[ExecutionModel]] = {
    # Tensors.
    "a tensor is sent once for each consumer": time_with(destinations=for_each_consumer),
    "host data takes a link": time_with(destinations=also_for_host_data),
    "signals take no time": time_with(signal_us=lambda self: 0.0),
    "the least time is added to a transfer's time": time_with(
        transfer_us=lambda self, sending: (
            Model.transfer_us(self, sending) + comm_of(self, sending).min_us
        )
    ),
    # Signals.
    "senders delay no signals": time_with(
        leaves=lambda self, sending: self.is_signal(sending) or Model.leaves(self, sending)
    ),
    "receivers delay no signals": time_with(
        has_waited=lambda self, sending: self.is_signal(sending) or Model.has_waited(self, sending)
    ),
    "signals have no overhead": time_with(charge=charge_for_tensors),
    "each successor gets a signal of its own": time_with(charge=charge_for_each_successor),
    # Links.
    "links share no queue": time_with(
        channel=lambda self, sending: (str(sending.src), str(sending.dst))
    ),
    "tensors of an instant queue by index": time_with(
        queue_key=lambda self, sending: (sending.tensor, sending.dst)
    ),
    "tensors of one op end queue in reverse": time_with(
        queue_key=lambda self, sending: (sending.made_us, -sending.tensor, sending.dst)
    ),
    "destinations come before tensor indices": time_with(
        queue_key=lambda self, sending: (sending.made_us, sending.dst, sending.tensor)
    ),
    "destinations queue in reverse": time_with(
        queue_key=lambda self, sending: (sending.made_us, sending.tensor, -sending.dst)
    ),
    "a link sends first what was produced first": ByEnds,
    # Overhead of transfers at their endpoints.
    "the overhead of the sender counts when the tensor queues": OverheadWhenQueued,
    "the overhead of the receiver counts at the arrival": OverheadAtArrival,
    "an op that starts during a transfer has no overhead": time_with(
        late_overhead_us=lambda self, number: 0.0
    ),
    "an op that starts during a transfer has the whole overhead": time_with(
        share_left=lambda self, sending: 1.0
    ),
    "an op of no time has overhead": time_with(start=late_for_zero_time),
    "the sender has no overhead": time_with(sender_overhead_us=lambda self, sending: 0.0),
    "the receiver has no overhead": time_with(receiver_overhead_us=lambda self, sending: 0.0),
    "the sender has no overhead by size": time_with(
        sender_overhead_us=lambda self, sending: comm_of(self, sending).sender_us
    ),
    "the receiver has no overhead by size": time_with(
        receiver_overhead_us=lambda self, sending: comm_of(self, sending).receiver_us
    ),
    # Delays by endpoints.
    "senders delay nothing": time_with(leaves=lambda self, sending: True),
    "receivers delay nothing": time_with(has_waited=lambda self, sending: True),
    "idle senders delay tensors": time_with(
        leaves=lambda self, sending: self.longest_wait_us(sending, sending.made_us) <= self.now
    ),
    "receivers that become idle delay tensors": time_with(take_what_waits=lambda self: False),
    "delays by idle receivers end before dispatch": time_with(
        round_steps=(
            "end_ops",
            "end_transfers",
            "take_what_waits",
            "end_waits",
            "start_transfers",
            "dispatch",
        )
    ),
    "tensors queue before delays by idle receivers end": time_with(
        later_steps=("queue", "take_what_waits")
    ),
    "delays end after dispatch": time_with(
        round_steps=(*BEFORE_WAITS, "start_transfers", "dispatch", "end_waits")
    ),
    # Rounds.
    "tensors queue before dispatch": time_with(
        round_steps=(*BEFORE_WAITS, "end_waits", "start_transfers", "queue", "dispatch")
    ),
    "tensors queue in the round": time_with(round_steps=(*Model.round_steps, "queue")),
    "transfers end before ops": time_with(
        round_steps=(
            "end_transfers",
            "end_waits",
            "start_transfers",
            "end_ops",
            "dispatch",
        )
    ),
    "transfers end after dispatch": time_with(
        round_steps=(
            "end_ops",
            "dispatch",
            "end_transfers",
            "end_waits",
            "start_transfers",
        )
    ),
    # Ops.
    "a replay skips ops that are not ready": time_with(candidates=in_order),
    "a list waits for the op of highest priority": time_with(
        candidates=lambda self, number: in_order(self, number)[:1]
    ),
    "ties of dispatch go to the highest index": time_with(
        dispatch_key=lambda self, op: (
            Model.dispatch_key(self, op) if self.is_first(op) else (1, self.keys[op], -op)
        )
    ),
    "feeds go by priority": time_with(is_first=lambda self, op: False),
    "feeds with predecessors go first": time_with(is_first=is_fed_on_host),
    "feeds go first on every device": time_with(is_first=is_fed_at_once),
    "the first feeds go by priority": time_with(
        dispatch_key=lambda self, op: (not self.is_first(op), self.keys[op], op)
    ),
    "overhead depends on speed": time_with(overhead_us=scaled_overhead),
    "overhead counts once for all members": time_with(overhead_us=overhead_once),
    # Contention.
    "ops do not slow each other down": time_with(contend=lambda self: None),
    "ops on other hosts slow an op down": time_with(place=lambda self, device: (device.kind,)),
    "ops on devices of other kinds slow an op down": time_with(
        place=lambda self, device: (device.host,)
    ),
    "several ops slow an op down as one does": time_with(
        count_others=lambda self, number: min(Model.count_others(self, number), 1)
    ),
    "an op slows itself down": time_with(
        count_others=lambda self, number: Model.count_others(self, number) + 1
    ),
    "idle devices slow an op down": time_with(count_others=count_every_device),
    "slow-downs multiply": time_with(
        slowness=lambda self, op, num_others: (1 + self.slow_down(op)) ** num_others
    ),
    "the ops beside an op are counted only when it starts": time_with(
        count_others=counted_at_its_start
    ),
    "the ops beside an op are counted before the steps": CountedBeforeSteps,
    "the time that has passed is slowed down too": time_with(end_beside=stretched_as_a_whole),
    "an op starts with the count of the op before it": time_with(start=as_the_op_before),
    "an op is slowed down as the ops beside it are": SlowedAsOthers,
    "slow-downs do not depend on types": time_with(
        slow_down=lambda self, op: slow_downs_of(self, op).get("", 0.0)
    ),
    "types that are not named are not slowed down": time_with(
        slow_down=lambda self, op: slow_downs_of(self, op).get(self.graph.types[op], 0.0)
    ),
    "slow-downs do not depend on device kinds": time_with(slow_down=of_any_kind),
    "feeds and fetches are slowed down nowhere": time_with(
        slow_down=lambda self, op: (
            0.0
            if self.problem.is_feed[op] or self.problem.is_fetch[op]
            else Model.slow_down(self, op)
        )
    ),
    "overhead is not slowed down": time_with(
        slowed_overhead_us=lambda self, side, op: self.transfer_overhead_us(side)
    ),
    "overhead of an op that starts during a transfer is not slowed down": LateOverheadUnslowed,
    # Memory.
    "an output is freed when its op ends": memory_with(home_span=until_its_op_ends),
    "an output is freed before it is sent": memory_with(home_span=without_transfers),
    "an output is held when its op ends": memory_with(home_span=from_its_ops_end),
    "a received copy is held from its arrival": memory_with(received_span=from_arrival),
    "a received copy is freed at its arrival": memory_with(received_span=until_arrival),
    "host data does not extend a received copy": memory_with(uses_us=data_uses_us),
    "a copy is held at the instant of its end": memory_with(
        holds=lambda self, span, now: span[0] <= now <= span[1]
    ),
    "a copy that ends as it begins is held": memory_with(
        holds=lambda self, span, now: span[0] <= now < span[1] or span == (now, now)
    ),
    "an alias uses memory": memory_with(bytes_of=alias_uses_memory),
    "a received alias uses no memory": memory_with(bytes_of=alias_is_free_everywhere),
    "an alias is of the last tensor": memory_with(aliased=last_aliased),
    "an alias does not extend its source": memory_with(keep_aliased=lambda self, span_of: None),
    "variables' outputs use memory": memory_with(is_variable=lambda self, tensor: False),
}
