"""The memory rules of docs/architecture.md as simple, slow code.

Each rule is one method, as in `execution_model`.
"""

from collections.abc import Sequence

import numpy as np

from pesto_cli.data.problem import Problem

Copy = tuple[int, int]
Span = tuple[float, float]


class MemoryModel:
    """The copies of tensors in a run: one on the producer's device, one at each destination.

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
        """Return the peak of each device, `[num_devices]`; it occurs at the begin of a copy."""
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
        """Return whether a copy uses memory at an instant; the end of its span is excluded."""
        start_us, end_us = span
        return start_us <= now < end_us

    def spans(self) -> dict[Copy, Span]:
        """Return the span in which every copy is held, including the use of its aliases."""
        span_of = {
            (tensor, self.home(tensor)): self.home_span(tensor)
            for tensor in range(self.graph.num_tensors)
        }
        for tensor, dst, start_us, end_us in self.transfers:
            span_of[tensor, dst] = self.received_span(tensor, dst, start_us, end_us)
        self.keep_aliased(span_of)
        return span_of

    def keep_aliased(self, span_of: dict[Copy, Span]) -> None:
        """Extend the spans of aliased copies until the ends of their aliases, transitively."""
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
        """Return the ends of the consumers of a tensor on a device."""
        rows = slice(*self.graph.consumer_offsets[tensor : tensor + 2])
        return [self.end_us[op] for op in self.graph.consumers[rows] if self.device[op] == number]

    def bytes_of(self, copy: Copy, span_of: dict[Copy, Span]) -> int:
        """Return the bytes of a copy: 0 for an alias of a variable or of a copy on its device."""
        tensor, number = copy
        is_alias = self.is_variable(tensor) or self.aliased(tensor) in span_of
        is_free = number == self.home(tensor) and is_alias
        return 0 if is_free else int(self.graph.tensor_bytes[tensor])

    def is_variable(self, tensor: int) -> bool:
        producer = self.graph.tensor_producer[tensor]
        return bool(self.graph.alias_of[producer] == producer)

    def aliased(self, tensor: int) -> Copy | None:
        """Return the copy whose memory holds a tensor: of the first input from the aliased op."""
        graph, op = self.graph, self.graph.tensor_producer[tensor]
        for source in np.flatnonzero(graph.tensor_producer == graph.alias_of[op]):
            if op in graph.consumers_of(source):
                return int(source), self.home(tensor)
        return None

    def home(self, tensor: int) -> int:
        return int(self.device[self.graph.tensor_producer[tensor]])
