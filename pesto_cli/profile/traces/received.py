"""Parse the labels of TensorFlow's trace rows for tensors that a worker received from another."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

_MIB = 2**20
# Sizes of 0.1 MiB and more have one decimal, as have rates of 1 Gb/s and more. The rate is `inf` or
# `nan` if the measured time is 0.
_FIGURE = r"\d{1,15}(?:\.\d{1,15})?"
_LABEL = re.compile(
    rf"\[(?P<size>{_FIGURE})(?P<mebi>M?)B\] "
    r"(?:\[(?P<rate>[-\w.]+)(?P<giga>[GM])b/s\] )?"
    r"(?:edge_\d+_)?(?P<node>\S+) from (?P<src>\S+) to (?P<dst>\S+)"
)


@dataclass(frozen=True)
class ReceivedLabel:
    """A parsed label: `[0.2MB] [6.9Gb/s] edge_9_dense/MatMul from /job:worker/... to /job:...`.

    node: the node that produces the tensor. src, dst: names of the devices.
    least_bytes, most_bytes: limits of the size, which the label gives rounded.
    bytes_per_us: the rate; None if the label has none or it is not finite.
    """

    node: str
    src: str
    dst: str
    least_bytes: float
    most_bytes: float
    bytes_per_us: float | None

    @classmethod
    def parse(cls, label: str) -> Self | None:
        """Parse a label; return None if it is not that of a received tensor."""
        found = _LABEL.search(label)
        if found is None:
            return None
        unit, error = (_MIB, 0.05) if found["mebi"] else (1, 0.0)
        least, most = ((float(found["size"]) + off) * unit for off in (-error, error))
        rate = found["rate"]
        # 1 Mb/s is 1 / 8 byte a microsecond.
        per_us = (1000 if found["giga"] == "G" else 1) / 8
        is_number = rate is not None and re.fullmatch(_FIGURE, rate) is not None
        bytes_per_us = float(rate) * per_us if is_number else None
        return cls(found["node"], found["src"], found["dst"], least, most, bytes_per_us)

    def num_bytes(self, us: float, output_bytes: Sequence[int]) -> int:
        """Return the size of the tensor in bytes.

        Args:
            us: the time of the transfer.
            output_bytes: the exact sizes of the node's outputs, if the trace has them; the one
                nearest to the label's rounded size is returned.
        """
        estimate = (self.least_bytes + self.most_bytes) / 2
        if self.bytes_per_us is not None:
            estimate = min(max(self.bytes_per_us * us, self.least_bytes), self.most_bytes)
        if self.least_bytes == self.most_bytes:
            return round(estimate)
        return min(output_bytes, key=lambda size: abs(size - estimate), default=round(estimate))
