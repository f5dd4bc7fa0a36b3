"""The execution model with one rule changed at a time."""

from typing import Any

from execution_model import ExecutionModel, Sending
from memory_model import Copy, MemoryModel, Span

Model = ExecutionModel
Memory = MemoryModel


def time_with(**rules: Any) -> type[ExecutionModel]:
    """A model with other rules of time, by name of their methods."""
    return type("Mutant", (ExecutionModel,), rules)


def memory_with(**rules: Any) -> type[ExecutionModel]:
    """A model with other rules of memory."""
    return time_with(memory_model=type("MemoryMutant", (MemoryModel,), rules))


def for_each_consumer(self: Model, tensor: int) -> list[int]:
    src = self.device[self.graph.tensor_producer[tensor]]
    uses = [self.device[consumer] for consumer, on_host in self.uses_of(tensor) if not on_host]
    return [dst for dst in uses if dst != src]


def also_for_host_data(self: Model, tensor: int) -> list[int]:
    src = self.device[self.graph.tensor_producer[tensor]]
    return sorted({self.device[consumer] for consumer, _ in self.uses_of(tensor)} - {src})


def lost_when_taken(self: Model, taken: list[Sending]) -> bool:
    for sending in taken:
        self.lose(sending.dst, Model.receiver_loss_us(self, sending))
    return Model.take(self, taken)


def comm_of(self: Model, sending: Sending) -> Any:
    return self.links[sending.src, sending.dst].comm


class ByEnds(ExecutionModel):
    """A free link takes the tensor that was made first, even if it queued later."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.queued: list[Sending] = []

    def queue(self) -> bool:
        happened = super().queue()
        for sending in sorted(self.queued, key=self.link_key):
            if self.free_us.get(self.channel(sending), 0.0) <= self.now:
                self.queued.remove(sending)
                self.start_transfer(sending)
                happened = True
        return happened

    def send(self, sending: Sending) -> None:
        self.queued.append(sending)

    def link_key(self, sending: Sending) -> tuple[float, ...]:
        return self.queue_key(sending)

    def start_transfer(self, sending: Sending) -> None:
        super().send(sending)


class LosesAtStart(ByEnds):
    """A sender loses when a transfer starts, not when it queues."""

    def link_key(self, sending: Sending) -> tuple[float, ...]:
        return ()

    def sender_loss_us(self, sending: Sending) -> float:
        return 0.0

    def start_transfer(self, sending: Sending) -> None:
        self.lose(sending.src, Model.sender_loss_us(self, sending))
        super().start_transfer(sending)


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


def takes_what_it_aliases(self: Memory, copy: Copy, span_of: dict[Copy, Span]) -> int:
    return int(self.graph.tensor_bytes[copy[0]]) * (not self.is_variable(copy[0]))


def alias_is_free_everywhere(self: Memory, copy: Copy, span_of: dict[Copy, Span]) -> int:
    is_alias = self.is_variable(copy[0]) or self.aliased(copy[0]) in span_of
    return 0 if is_alias else int(self.graph.tensor_bytes[copy[0]])


MUTANTS: dict[str, type[ExecutionModel]] = {
    # Tensors.
    "a tensor is sent once for each consumer": time_with(destinations=for_each_consumer),
    "host data takes a link": time_with(destinations=also_for_host_data),
    "signals take no time": time_with(signal_us=lambda self: 0.0),
    "a transfer takes its least time and what it takes": time_with(
        transfer_us=lambda self, sending: (
            Model.transfer_us(self, sending) + comm_of(self, sending).min_us
        )
    ),
    # Links.
    "links share no queue": time_with(
        channel=lambda self, sending: (str(sending.src), str(sending.dst))
    ),
    "tensors of an instant queue by number": time_with(
        queue_key=lambda self, sending: (sending.tensor, sending.dst)
    ),
    "tensors of an end queue backwards": time_with(
        queue_key=lambda self, sending: (sending.made_us, -sending.tensor, sending.dst)
    ),
    "destinations come before numbers": time_with(
        queue_key=lambda self, sending: (sending.made_us, sending.dst, sending.tensor)
    ),
    "destinations queue backwards": time_with(
        queue_key=lambda self, sending: (sending.made_us, sending.tensor, -sending.dst)
    ),
    "a link takes what was made first": ByEnds,
    # What both ends lose.
    "the sender loses when the transfer starts": LosesAtStart,
    "the sender loses nothing": time_with(sender_loss_us=lambda self, sending: 0.0),
    "the receiver loses nothing": time_with(receiver_loss_us=lambda self, sending: 0.0),
    "the sender loses nothing by size": time_with(
        sender_loss_us=lambda self, sending: comm_of(self, sending).sender_us
    ),
    "the receiver loses nothing by size": time_with(
        receiver_loss_us=lambda self, sending: comm_of(self, sending).receiver_us
    ),
    "the receiver loses when it takes the tensor": time_with(
        receiver_loss_us=lambda self, sending: 0.0, take=lost_when_taken
    ),
    # How long they keep tensors waiting.
    "senders keep nothing waiting": time_with(leaves=lambda self, sending: True),
    "receivers keep nothing waiting": time_with(has_waited=lambda self, sending: True),
    "idle senders keep tensors waiting": time_with(
        leaves=lambda self, sending: self.longest_wait_us(sending, sending.made_us) <= self.now
    ),
    "receivers that become idle keep tensors waiting": time_with(
        take_what_waits=lambda self: False
    ),
    "idle receivers take tensors before dispatch": time_with(
        round_steps=(
            "end_ops",
            "end_signals",
            "end_transfers",
            "take_what_waits",
            "end_waits",
            "dispatch",
        )
    ),
    "idle receivers take tensors in the round": time_with(
        round_steps=(*Model.round_steps, "take_what_waits")
    ),
    "tensors queue before idle receivers take them": time_with(
        later_steps=("queue", "take_what_waits")
    ),
    "waits end after dispatch": time_with(
        round_steps=("end_ops", "end_signals", "end_transfers", "dispatch", "end_waits")
    ),
    # Rounds.
    "tensors queue before dispatch": time_with(
        round_steps=("end_ops", "end_signals", "end_transfers", "end_waits", "queue", "dispatch")
    ),
    "tensors queue in the round": time_with(round_steps=(*Model.round_steps, "queue")),
    "transfers end before ops": time_with(
        round_steps=("end_transfers", "end_waits", "end_ops", "end_signals", "dispatch")
    ),
    "transfers end after dispatch": time_with(
        round_steps=("end_ops", "end_signals", "dispatch", "end_transfers", "end_waits")
    ),
    "signals of no time arrive a round later": time_with(
        round_steps=("end_signals", "end_ops", "end_transfers", "end_waits", "dispatch")
    ),
    # Ops.
    "a replay passes over ops that are not ready": time_with(candidates=in_order),
    "a list waits for the op of highest priority": time_with(
        candidates=lambda self, number: in_order(self, number)[:1]
    ),
    "ties of dispatch go to the highest index": time_with(
        dispatch_key=lambda self, op: (
            Model.dispatch_key(self, op) if self.is_first(op) else (1, self.keys[op], -op)
        )
    ),
    "feeds go by priority": time_with(is_first=lambda self, op: False),
    "feeds that wait for others go first": time_with(is_first=is_fed_on_host),
    "feeds go first on every device": time_with(is_first=is_fed_at_once),
    "feeds that go first do so by priority": time_with(
        dispatch_key=lambda self, op: (not self.is_first(op), self.keys[op], op)
    ),
    "overhead depends on speed": time_with(overhead_us=scaled_overhead),
    "overhead counts once for all members": time_with(overhead_us=overhead_once),
    # Memory.
    "an output is freed when its op ends": memory_with(home_span=until_its_op_ends),
    "an output is freed before it is sent": memory_with(home_span=without_transfers),
    "an output is held when its op ends": memory_with(home_span=from_its_ops_end),
    "a received copy is held from its arrival": memory_with(received_span=from_arrival),
    "a received copy is freed at its arrival": memory_with(received_span=until_arrival),
    "host data does not keep a received copy": memory_with(uses_us=data_uses_us),
    "what ends is held at that instant": memory_with(
        holds=lambda self, span, now: span[0] <= now <= span[1]
    ),
    "what ends as it begins is held": memory_with(
        holds=lambda self, span, now: span[0] <= now < span[1] or span == (now, now)
    ),
    "an alias takes memory": memory_with(bytes_of=takes_what_it_aliases),
    "an alias takes none where it is received": memory_with(bytes_of=alias_is_free_everywhere),
    "an alias is of the last tensor": memory_with(aliased=last_aliased),
    "an alias keeps nothing": memory_with(keep_aliased=lambda self, span_of: None),
    "variables' outputs take memory": memory_with(is_variable=lambda self, tensor: False),
}
