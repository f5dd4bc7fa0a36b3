"""What devices hold over a run as docs/architecture.md states it; plain and slow.

Each rule is a method of its own, as in `execution_model`.
"""

from collections.abc import Sequence

import numpy as np

from pesto_cli.data.problem import Problem

Copy = tuple[int, int]
Span = tuple[float, float]


class MemoryModel:
    """The copies of tensors that a run makes: one at home and one at each destination.

    transfers: (tensor, destination, start, end).
    """

    def __init__(
        self,
        problem: Problem,
        device: Sequence[int],
        start_us: Sequence[float],
        end_us: Sequence[float],
        transfers: Sequence[tuple[int, int, float, float]],
    ) -> None:
        self.problem, self.graph, self.device = problem, problem.graph, device
        self.start_us, self.end_us, self.transfers = start_us, end_us, transfers

    def peak_bytes(self) -> list[int]:
        """`[num_devices]`: the most that each holds at once; it is reached as a copy begins."""
        span_of = self.spans()
        bytes_of = {copy: self.bytes_of(copy, span_of) for copy in span_of}
        return [
            self.resident_bytes(number)
            + max(
                sum(
                    bytes_of[copy]
                    for copy, span in span_of.items()
                    if copy[1] == number and self.holds(span, now)
                )
                for now in [0.0, *(start_us for start_us, _ in span_of.values())]
            )
            for number in range(self.problem.num_devices)
        ]

    def resident_bytes(self, number: int) -> int:
        return sum(
            int(self.graph.resident_bytes[op])
            for op in range(self.problem.num_ops)
            if self.device[op] == number
        )

    def holds(self, span: Span, now: float) -> bool:
        """Whether a copy takes memory at an instant: no longer at the one at which it ends."""
        start_us, end_us = span
        return start_us <= now < end_us

    def spans(self) -> dict[Copy, Span]:
        """From when to when every copy is held, with what aliases it."""
        span_of = {
            (tensor, self.home(tensor)): self.home_span(tensor)
            for tensor in range(self.graph.num_tensors)
        }
        for tensor, dst, start_us, end_us in self.transfers:
            span_of[tensor, dst] = self.received_span(tensor, dst, start_us, end_us)
        self.keep_aliased(span_of)
        return span_of

    def keep_aliased(self, span_of: dict[Copy, Span]) -> None:
        """Hold what is aliased as long as its aliases, and these as long as theirs."""
        for op in reversed(self.graph.topological_order):
            for tensor in np.flatnonzero(self.graph.tensor_producer == op):
                source = self.aliased(tensor)
                if source in span_of:
                    start_us, end_us = span_of[source]
                    span_of[source] = start_us, max(end_us, span_of[tensor, self.home(tensor)][1])

    def home_span(self, tensor: int) -> Span:
        producer = self.graph.tensor_producer[tensor]
        outgoing = [end_us for sent, _, _, end_us in self.transfers if sent == tensor]
        uses = self.uses_us(tensor, self.home(tensor))
        return self.start_us[producer], max([self.end_us[producer], *uses, *outgoing])

    def received_span(self, tensor: int, dst: int, start_us: float, end_us: float) -> Span:
        return start_us, max([end_us, *self.uses_us(tensor, dst)])

    def uses_us(self, tensor: int, number: int) -> list[float]:
        """When the consumers of a tensor on a device end."""
        rows = slice(*self.graph.consumer_offsets[tensor : tensor + 2])
        return [self.end_us[op] for op in self.graph.consumers[rows] if self.device[op] == number]

    def bytes_of(self, copy: Copy, span_of: dict[Copy, Span]) -> int:
        """What a copy takes: an alias, of a variable or of a copy at home, takes nothing there."""
        tensor, number = copy
        is_alias = self.is_variable(tensor) or self.aliased(tensor) in span_of
        is_free = number == self.home(tensor) and is_alias
        return 0 if is_free else int(self.graph.tensor_bytes[tensor])

    def is_variable(self, tensor: int) -> bool:
        producer = self.graph.tensor_producer[tensor]
        return bool(self.graph.alias_of[producer] == producer)

    def aliased(self, tensor: int) -> Copy | None:
        """The copy in whose memory a tensor lies: the first tensor that its op takes of another."""
        graph, op = self.graph, self.graph.tensor_producer[tensor]
        for source in np.flatnonzero(graph.tensor_producer == graph.alias_of[op]):
            if op in graph.consumers_of(source):
                return int(source), self.home(tensor)
        return None

    def home(self, tensor: int) -> int:
        return int(self.device[self.graph.tensor_producer[tensor]])
