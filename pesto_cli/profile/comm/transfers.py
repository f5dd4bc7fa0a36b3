"""Time transfers and signals between the devices of a cluster.

For a link a -> b, a session step is a chain of hops (`profile.comm.chains`): a tensor goes from a
to b, and a signal (a control edge) back to a starts the next hop. The same chain with b = a has no
transfers. A chain of signals alone, from a to b and back, gives the delay of one signal:

    signal_us   = (hop_us(signals) - hop_us(signals that stay)) / 2
    transfer_us = hop_us(tensor that goes) - hop_us(tensor that stays) - signal_us

A transfer that takes less time than a signal, or than a smaller tensor, is noise. It counts as a
signal, or as the mean of both.

`profile.comm.overhead` measures how much a transfer delays endpoints that compute, and
`profile.comm.waiting` how much endpoints that compute delay a transfer. `profile.comm.scope`
decides which sizes are timed.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

import numpy as np

from pesto_cli.cluster import Cluster, Connection
from pesto_cli.data.machine import Link, Machine
from pesto_cli.files import CommFit, LinkKind, link_kinds
from pesto_cli.profile.comm import Sample, fit, fit_overhead
from pesto_cli.profile.comm.chains import LIMIT_S, Chains, Effort, Hop
from pesto_cli.profile.comm.overhead import TransferOverheads, transfer_overheads
from pesto_cli.profile.comm.scope import affordable, speed
from pesto_cli.profile.comm.waiting import wait_us

# 1 B to 64 MiB.
SIZES = tuple(4**power for power in range(14))
USUAL = Effort()
# If a link has less than this share of the usual time, overheads and waits are measured on one of
# several alike links. They depend more on the hosts than on the network.
ONE_FOR_ALL = 0.25


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


Computing = tuple[TransferOverheads, float]
"""What endpoints that compute add to a transfer: `overheads` and `wait_us` of `LinkTimes`."""


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

    sizes: bytes of the transfers; those for which the effort is too short are left out.
    effort: of each link.

    Raises:
        EnvironmentFailedError: a process of the cluster has ended.
    """
    chosen = links_to_time(cluster.machine)
    links = [link for each in chosen.values() for link in each]
    alike = {link: _ends(cluster.machine, link, effort) for link in links}
    longer = replace(effort, share=effort.share * len(links) / len(set(alike.values())))
    computing: dict[Hashable, Computing] = {}
    times: dict[Link, LinkTimes] = {}
    for link, ends in alike.items():
        alone = cluster.call(_time_link, link, sizes, effort)
        if ends not in computing:
            computing[ends] = cluster.call(_time_computing, link, alone.us, longer)
        overheads, wait = computing[ends]
        times[link] = replace(alone, overheads=overheads, wait_us=wait)
    return TimedTransfers({kind: [times[link] for link in each] for kind, each in chosen.items()})


def _ends(machine: Machine, link: Link, effort: Effort) -> Hashable:
    """Return a value that is equal for links whose endpoints are alike, if time is short."""
    if effort.share >= ONE_FOR_ALL:
        return link
    ends = [device for device in machine.devices if device.name in (link.src, link.dst)]
    ends.sort(key=lambda device: device.name == link.dst)
    return tuple(device.kind for device in ends), ends[0].host == ends[1].host


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
    """Measure the times of a link whose endpoints do not compute; runs in the client process."""
    src, dst = (connection.device_names[name] for name in (link.src, link.dst))
    limit_s = effort.share * LIMIT_S
    scope = affordable(sizes, speed(connection, src, dst, limit_s), limit_s)
    chains = Chains(connection, home=src)
    for num_bytes in scope.sizes:
        there = Hop(src, dst, chains.variable(src, num_bytes))
        chains.add(num_bytes, scope.num_hops(num_bytes), there)
    chains.add("tensor stays", scope.most_hops, Hop(src, src, chains.variable(src, 1)))
    chains.add("signals", scope.most_hops, Hop(src, dst))
    chains.add("signals stay", scope.most_hops, Hop(src, src))
    there = Hop(src, dst, chains.variable(src, scope.large))
    back = Hop(dst, src, chains.variable(dst, scope.large))
    num_hops = scope.num_hops(scope.large)
    chains.add("two", num_hops, there, there)
    chains.add("both ways", num_hops, there, back)
    hop_us = chains.hop_us(effort)
    signal_us = max(0.0, hop_us["signals"] - hop_us["signals stay"]) / 2
    fixed_us = hop_us["tensor stays"] + signal_us
    one_us = hop_us[scope.large] - fixed_us
    return LinkTimes(
        _without_noise({size: hop_us[size] - fixed_us for size in scope.sizes}, signal_us),
        signal_us,
        (hop_us["two"] - fixed_us) / one_us,
        (hop_us["both ways"] - fixed_us) / one_us,
    )


def _without_noise(us: Mapping[int, float], signal_us: float) -> dict[int, float]:
    """Return the nearest times that do not fall with the size and are at least that of a signal.

    us: bytes -> time, by ascending bytes. Small wrong times would decide a fit of relative errors.
    """
    from scipy.optimize import isotonic_regression

    rising = isotonic_regression(np.maximum(list(us.values()), 0.0)).x
    return dict(zip(us, np.maximum(rising, signal_us).tolist(), strict=True))


def _time_computing(
    connection: Connection, link: Link, us: Mapping[int, float], effort: Effort
) -> Computing:
    """Measure the overheads and the wait of a link; runs in the client process.

    us: bytes of a transfer -> its time, while the endpoints do not compute.
    """
    src, dst = (connection.device_names[name] for name in (link.src, link.dst))
    overheads = transfer_overheads(connection, src, dst, us, effort)
    return overheads, wait_us(connection, src, dst, effort)
