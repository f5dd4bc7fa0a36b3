"""TensorFlow devices that exist: workers on this host, its GPUs, or a cluster that runs already.

    with connected("local-workers:2") as cluster:
        losses = cluster.call(train, steps=5)      # train(connection, steps) of some module

Sessions run in a process of their own, the client: this one may have TensorFlow loaded, and
threads.
"""

from pesto_cli.cluster.cluster import Cluster, connected, is_live
from pesto_cli.cluster.connection import Connection
from pesto_cli.cluster.serve import serve

__all__ = ["Cluster", "Connection", "connected", "is_live", "serve"]
