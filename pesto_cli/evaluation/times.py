"""Times of ops and transfers, as arguments of kernels."""

from typing import NamedTuple

from pesto_cli.data.graph import FloatArray, IntArray
from pesto_cli.data.schedule import Transfers


class Times(NamedTuple):
    """Times in us; transfers are in any order.

    start_us, end_us: `[num_ops]`.
    tensor, dst: `[num_transfers]`, the tensor and its destination device.
    sent_us, arrived_us: `[num_transfers]`, the transfer occupies its link between these times.
    """

    start_us: FloatArray
    end_us: FloatArray
    tensor: IntArray
    dst: IntArray
    sent_us: FloatArray
    arrived_us: FloatArray

    @classmethod
    def of(cls, start_us: FloatArray, end_us: FloatArray, transfers: Transfers) -> "Times":
        """Return the times of a schedule's columns."""
        sent = (transfers.tensor, transfers.dst, transfers.start_us, transfers.end_us)
        return cls(start_us, end_us, *sent)
