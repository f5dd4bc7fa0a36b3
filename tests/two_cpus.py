"""A machine of two CPU devices in this process, to test code for clusters without a cluster."""

import pickle
from typing import Any

from pesto_cli.cluster import Cluster, Connection
from pesto_cli.data.machine import CommModel, Device, Link, Machine
from pesto_cli.graphdef.tensorflow import tensorflow

NAMES = ("CPU:0", "CPU:1")
FULL = {name: f"/job:localhost/replica:0/task:0/device:{name}" for name in NAMES}


class TwoCpus(Connection):
    """Opens sessions with two CPU devices in this process."""

    def session(self, graph: Any, config: Any = None) -> Any:
        own = tensorflow().compat.v1.ConfigProto()
        if config is not None:
            own.CopyFrom(config)
        own.device_count["CPU"] = 2
        own.inter_op_parallelism_threads = 4
        own.intra_op_parallelism_threads = 1
        return tensorflow().compat.v1.Session("", graph=graph, config=own)


class InThisProcess:
    """Runs a request as a client process would, after pickling and unpickling it."""

    def __init__(self) -> None:
        self._connection = TwoCpus("", FULL)

    def call(self, request: Any) -> Any:
        there = pickle.loads(pickle.dumps(request))
        answer = there.function(self._connection, *there.args, **there.kwargs)
        return pickle.loads(pickle.dumps(answer))


def two_cpus(memory_bytes: int = 2**40) -> Cluster:
    comm = CommModel(latency_us=1.0, us_per_byte=1e-3)
    machine = Machine(
        tuple(Device(name, "CPU", memory_bytes) for name in NAMES),
        (Link(*NAMES, comm), Link(*NAMES[::-1], comm)),
    )
    return Cluster(machine, InThisProcess())  # type: ignore[arg-type]
