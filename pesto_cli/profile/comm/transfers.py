"""Time transfers and signals between the devices of a cluster.

For a link a -> b, a session step is a chain of hops (`profile.comm.chains`): a tensor goes from a
to b, and a signal (a control edge) back to a starts the next hop. The same chain with b = a has no
transfers. A chain of signals alone, from a to b and back, gives the delay of one signal:

    signal_us   = (hop_us(signals) - hop_us(signals that stay)) / 2
    transfer_us = hop_us(tensor that goes) - hop_us(tensor that stays) - signal_us

`profile.comm.overhead` measures how much a transfer delays endpoints that compute, and
`profile.comm.waiting` how much endpoints that compute delay a transfer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

import numpy as np

from pesto_cli.cluster import Cluster, Connection
from pesto_cli.data.machine import Link, Machine
from pesto_cli.files import CommFit, LinkKind, link_kinds
from pesto_cli.profile.comm import Sample, fit, fit_overhead
from pesto_cli.profile.comm.chains import Chains, Effort, Hop
from pesto_cli.profile.comm.overhead import TransferOverheads, transfer_overheads
from pesto_cli.profile.comm.waiting import wait_us

# 1 B to 64 MiB.
SIZES = tuple(4**power for power in range(14))
USUAL = Effort()
# Bytes that a chain moves in all, within these limits on its number of hops.
BYTES_OF_A_CHAIN = 2**25
MIN_HOPS, MAX_HOPS = 3, 16
# So large that the latency is negligible; at most the largest size that is timed.
CONGESTION_BYTES = 2**24


@dataclass(frozen=True)
class LinkTimes:
    """Measured times of one link.

    us: bytes of a transfer -> its time. overheads: delays of ops on the endpoints by a transfer.
    wait_us: delay of a transfer by an endpoint that computes. The other fields are as in `CommFit`.
    """

    us: Mapping[int, float]
    signal_us: float
    two_at_once: float
    both_ways: float
    overheads: TransferOverheads = field(default_factory=TransferOverheads)
    wait_us: float = 0.0


@dataclass(frozen=True)
class TimedTransfers:
    """Measured times of one pair of devices by link kind, in both directions if the kinds agree."""

    links: Mapping[LinkKind, Sequence[LinkTimes]]

    @property
    def samples(self) -> list[Sample]:
        """The samples of all link kinds, for `fit`."""
        return [
            Sample(src, dst, num_bytes, us, channel)
            for (src, dst, channel), timed in self.links.items()
            for times in timed
            for num_bytes, us in times.us.items()
        ]

    def fits(self) -> list[CommFit]:
        """Return for each link kind the fitted lines of transfers and overheads, and mean times.

        Raises:
            BadInputError: larger transfers took less time.
        """
        return [_with_the_rest(line, self.links[line.link_kind]) for line in fit(self.samples)]


def timed_transfers(
    cluster: Cluster, sizes: Sequence[int] = SIZES, effort: Effort = USUAL
) -> TimedTransfers:
    """Time transfers and signals on every link kind of a cluster, for `pesto comm`.

    sizes: bytes of the transfers. effort: of each link.

    Raises:
        EnvironmentFailedError: a process of the cluster has ended.
    """
    return TimedTransfers(
        {
            kind: [cluster.call(_time_link, link, sizes, effort) for link in links]
            for kind, links in links_to_time(cluster.machine).items()
        }
    )


def links_to_time(machine: Machine) -> dict[LinkKind, list[Link]]:
    """Return the links that stand for each kind: one, or the two directions between two devices."""
    chosen: dict[LinkKind, list[Link]] = {}
    for link, kind in zip(machine.links, link_kinds(machine), strict=True):
        links = chosen.setdefault(kind, [link])
        if (link.src, link.dst) == (links[0].dst, links[0].src):
            links.append(link)
    return chosen


def _with_the_rest(line: CommFit, times: Sequence[LinkTimes]) -> CommFit:
    sender_us, sender_us_per_byte = fit_overhead(
        overhead for each in times for overhead in each.overheads.sender_us.items()
    )
    receiver_us, receiver_us_per_byte = fit_overhead(
        overhead for each in times for overhead in each.overheads.receiver_us.items()
    )
    comm = replace(
        line.comm,
        sender_us=sender_us,
        sender_us_per_byte=sender_us_per_byte,
        receiver_us=receiver_us,
        receiver_us_per_byte=receiver_us_per_byte,
        wait_us=fmean(each.wait_us for each in times),
    )
    return replace(
        line,
        comm=comm,
        signal_us=fmean(each.signal_us for each in times),
        two_at_once=fmean(each.two_at_once for each in times),
        both_ways=fmean(each.both_ways for each in times),
    )


def _time_link(
    connection: Connection, link: Link, sizes: Sequence[int], effort: Effort
) -> LinkTimes:
    """Measure all times of a link; runs in the client process."""
    src, dst = (connection.device_names[name] for name in (link.src, link.dst))
    chains = Chains(connection, home=src)
    for num_bytes in sizes:
        there = Hop(src, dst, chains.variable(src, num_bytes))
        chains.add(num_bytes, _num_hops(num_bytes), there)
    chains.add("tensor stays", MAX_HOPS, Hop(src, src, chains.variable(src, 1)))
    chains.add("signals", MAX_HOPS, Hop(src, dst))
    chains.add("signals stay", MAX_HOPS, Hop(src, src))
    large = min(CONGESTION_BYTES, max(sizes))
    there = Hop(src, dst, chains.variable(src, large))
    back = Hop(dst, src, chains.variable(dst, large))
    num_hops = _num_hops(large)
    chains.add("one", num_hops, there)
    chains.add("two", num_hops, there, there)
    chains.add("both ways", num_hops, there, back)
    hop_us = chains.hop_us(effort)
    signal_us = max(0.0, hop_us["signals"] - hop_us["signals stay"]) / 2
    fixed_us = hop_us["tensor stays"] + signal_us
    one_us = hop_us["one"] - fixed_us
    us = {size: max(0.0, hop_us[size] - fixed_us) for size in sizes}
    return LinkTimes(
        us,
        signal_us,
        (hop_us["two"] - fixed_us) / one_us,
        (hop_us["both ways"] - fixed_us) / one_us,
        transfer_overheads(connection, src, dst, us, effort),
        wait_us(connection, src, dst, effort),
    )


def _num_hops(num_bytes: int) -> int:
    return int(np.clip(BYTES_OF_A_CHAIN // num_bytes, MIN_HOPS, MAX_HOPS))
