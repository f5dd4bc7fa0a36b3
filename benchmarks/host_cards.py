"""Transfers at the same time through the network cards of three hosts.

    python -m benchmarks.hosts --mbit 400,400,400 -- python -m benchmarks.host_cards CLUSTER

If a network card is one channel, two transfers out of it take twice as long as one, even to two
different hosts. The model has no channel for transfers into a card; the table shows their effect.
"""

import sys

from pesto_cli import api as pesto
from pesto_cli.cluster import Connection
from pesto_cli.profile.comm.chains import Chains, Effort, Hop

NUM_BYTES, NUM_HOPS, EFFORT = 2**20, 8, Effort(10)


def hop_us(connection: Connection) -> dict[int | str, float]:
    """Return the times of hops with 1 MiB from one or two of the first three devices."""
    one, two, three = list(connection.device_names.values())[:3]
    chains = Chains(connection, home=one)
    out = chains.variable(one, NUM_BYTES)
    other = chains.variable(one, NUM_BYTES)
    back, late = (chains.variable(device, NUM_BYTES) for device in (two, three))
    chains.add("one transfer", NUM_HOPS, Hop(one, two, out))
    chains.add("two to one host", NUM_HOPS, Hop(one, two, out), Hop(one, two, other))
    chains.add("two out of one card", NUM_HOPS, Hop(one, two, out), Hop(one, three, other))
    chains.add("two into one card", NUM_HOPS, Hop(two, one, back), Hop(three, one, late))
    chains.add("one in, one out", NUM_HOPS, Hop(one, two, out), Hop(three, one, late))
    return chains.hop_us(EFFORT)


def main(spec: str) -> None:
    """Print the times."""
    with pesto.connected(spec) as cluster:
        found = cluster.call(hop_us)
    print("| transfers of 1 MiB | ms | times one |\n|---|--:|--:|")
    for name, us in found.items():
        print(f"| {name} | {us / 1e3:.1f} | {us / found['one transfer']:.2f} |")


if __name__ == "__main__":
    from benchmarks import host_cards  # the client process imports `hop_us` by this name

    host_cards.main(sys.argv[1])
