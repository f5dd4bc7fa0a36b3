"""What is timed on a link: the transfers for which its time limit is long enough.

The more a network or a host is slow, the fewer hops and sizes are timed, and the smaller is the
largest tensor. So the times of a link keep to their limit.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pesto_cli.apply import session_config
from pesto_cli.cluster import Connection
from pesto_cli.profile.comm.chains import MIN_TURNS, NUM_WARM_UP, Chains, Hop
from pesto_cli.profile.comm.products import timed_us

# Bytes that a chain moves in all, within these limits on its number of hops.
BYTES_OF_A_CHAIN = 2**25
MIN_HOPS, MAX_HOPS = 3, 16
# So large that the latency is negligible; at most the largest size that is timed.
CONGESTION_BYTES = 2**24
# Sizes whose transfers are tried first. No larger one is tried after one that takes longer than
# LONG of the limit.
TRIED, LONG = (1, 2**16, 2**20), 0.02
# The share of the limit for the fewest turns; the rest is for the first estimate and the sessions.
FEWEST_TURNS = 0.7
# However short the limit is, the largest size is at least LEAST_BYTES. Number of hops, and one of
# how many sizes is timed, for shorter and shorter limits.
LEAST_BYTES = 2**18
FORMS = ((MAX_HOPS, 1), (MAX_HOPS, 3), (MAX_HOPS // 2, 3), (MIN_HOPS, 3))


@dataclass(frozen=True)
class Speed:
    """A first estimate of a link: a hop takes `hop_us + us_per_byte * bytes`."""

    hop_us: float
    us_per_byte: float


@dataclass(frozen=True)
class Scope:
    """The chains that are timed on a link.

    sizes: bytes of tensors, in ascending order. most_hops: largest number of hops of a chain.
    """

    sizes: Sequence[int]
    most_hops: int = MAX_HOPS

    @property
    def large(self) -> int:
        """The bytes of tensors that are sent at the same time."""
        return max((size for size in self.sizes if size <= CONGESTION_BYTES), default=self.sizes[0])

    def num_hops(self, num_bytes: int) -> int:
        """Return the number of hops of a chain of tensors of this size."""
        return int(np.clip(BYTES_OF_A_CHAIN // num_bytes, MIN_HOPS, self.most_hops))

    def turn_us(self, speed: Speed) -> float:
        """Return about how long all chains take once, in us; each has a chain of one hop beside it.

        Besides the sizes, there are a chain of signals, and two of pairs of large tensors.
        """
        moved = [(size, self.num_hops(size)) for size in self.sizes]
        moved += [(0, self.most_hops), *2 * [(2 * self.large, self.num_hops(self.large))]]
        return sum(
            (1 + num_hops) * (speed.hop_us + speed.us_per_byte * num_bytes)
            for num_bytes, num_hops in moved
        )


def speed(connection: Connection, src: str, dst: str, limit_s: float) -> Speed:
    """Estimate how fast a link is, from the fastest of three transfers of each tried size."""
    chains = Chains(connection, home=src)
    for num_bytes in TRIED:
        chains.add(num_bytes, 1, Hop(src, dst, chains.variable(src, num_bytes)))
    found: dict[int, float] = {}
    with connection.session(chains.graph, session_config()) as session:
        session.run(chains.assignments)
        for num_bytes in TRIED:
            step = session.make_callable(chains.ends[num_bytes, 1])
            found[num_bytes] = min(timed_us(step) for _ in range(3))
            if found[num_bytes] > LONG * limit_s * 1e6:
                break
    largest = max(found)
    rest_us = max(0.0, found[largest] - found[TRIED[0]])
    return Speed(found[TRIED[0]], rest_us / largest)


def affordable(sizes: Sequence[int], speed: Speed, limit_s: float) -> Scope:
    """Return the largest scope whose fewest turns fit into a limit.

    First there are fewer sizes, then fewer hops, and then the largest size is left out.
    """
    turn_us = FEWEST_TURNS * limit_s * 1e6 / (NUM_WARM_UP + MIN_TURNS)
    tried = [
        Scope(sizes[: count + 1][::-one_of][::-1], most_hops)
        for count in range(len(sizes) - 1, -1, -1)
        for most_hops, one_of in FORMS
        if sizes[count] >= LEAST_BYTES or count == len(sizes) - 1
    ]
    return next((scope for scope in tried if scope.turn_us(speed) <= turn_us), tried[-1])
