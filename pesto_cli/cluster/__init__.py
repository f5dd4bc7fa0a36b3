"""Clusters of real TensorFlow devices: workers or GPUs of this host, or servers elsewhere.

    with connected("local-workers:2") as cluster:
        losses = cluster.call(train, steps=5)      # train(connection, steps) of some module

Sessions run in a separate process, the client. The calling process may already have loaded
TensorFlow or started threads, and then it cannot fork workers.
"""

from pesto_cli.cluster.cluster import Cluster, connected, is_live
from pesto_cli.cluster.connection import Connection
from pesto_cli.cluster.serve import serve

__all__ = ["Cluster", "Connection", "connected", "is_live", "serve"]
