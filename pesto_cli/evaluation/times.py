"""When ops run and tensors are sent, as kernels take it."""

from typing import NamedTuple

from pesto_cli.data.graph import FloatArray, IntArray
from pesto_cli.data.schedule import Transfers


class Times(NamedTuple):
    """In us; ops by number, transfers in any order.

    start_us, end_us: `[num_ops]`.
    tensor, dst: `[num_transfers]`, what is sent to which device.
    sent_us, arrived_us: `[num_transfers]`, when a transfer holds its link.
    """

    start_us: FloatArray
    end_us: FloatArray
    tensor: IntArray
    dst: IntArray
    sent_us: FloatArray
    arrived_us: FloatArray

    @classmethod
    def of(cls, start_us: FloatArray, end_us: FloatArray, transfers: Transfers) -> "Times":
        """Of the columns of a schedule."""
        sent = (transfers.tensor, transfers.dst, transfers.start_us, transfers.end_us)
        return cls(start_us, end_us, *sent)
