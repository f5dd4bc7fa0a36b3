"""The connection to a cluster: the session target and the names of the devices."""

import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pesto_cli.cluster.cluster_file import split
from pesto_cli.cluster.workers import free_ports
from pesto_cli.graphdef.tensorflow import tensorflow

CLIENT_JOB = "client"
"""The job of the client process, when it is itself a task of the cluster."""


@dataclass(frozen=True)
class Connection:
    """A cluster in its client process; functions that `Cluster.call` runs get it first.

    target: target of sessions: `""` for this process, or an address (`grpc://127.0.0.1:2345`).
    device_names: pesto's name of each device of the machine (`worker:0/CPU:0`) -> TensorFlow's full
        name, as in `session.list_devices()` and in step stats
        (`/job:worker/replica:0/task:0/device:CPU:0`).
    tasks: job -> the address of each of its tasks; empty if the devices are of this process.
    kept: what a call keeps for later calls, such as an open session.
    """

    target: str
    device_names: Mapping[str, str]
    tasks: Mapping[str, Sequence[str]] = field(default_factory=dict)
    kept: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def connect_eagerly(self) -> None:
        """Let ops outside of sessions use the devices, too.

        TensorFlow connects to the tasks when this process executes its first such op. The call of
        an op returns after a task has executed it.
        """
        if not self.tasks:
            return
        # By default, a call returns earlier. Then a function may read a variable before an
        # assignment that the program has made, such as the reset of a metric.
        os.environ["TF_ENABLE_EAGER_CLIENT_STREAMING_ENQUEUE"] = "false"
        from tensorflow.python.eager import context

        tf = tensorflow()
        own = f"{_address_towards(self.tasks)}:{free_ports(1)[0]}"
        cluster = tf.train.ClusterSpec({**self.tasks, CLIENT_JOB: [own]}).as_cluster_def()
        context.context().set_server_def(
            tf.train.ServerDef(cluster=cluster, job_name=CLIENT_JOB, task_index=0, protocol="grpc")
        )

    @contextmanager
    def session(self, graph: Any, config: Any = None) -> Iterator[Any]:
        """Open a `tf.compat.v1.Session` on the cluster; it is the default session in the context.

        The session has its own variables, which end with it. `config` is a ConfigProto, which is
        not changed.
        """
        tf = tensorflow()
        own = tf.compat.v1.ConfigProto()
        if config is not None:
            own.CopyFrom(config)
        own.isolate_session_state = True
        own.gpu_options.allow_growth = True
        session = tf.compat.v1.Session(self.target, graph=graph, config=own)
        errors = tf.errors
        try:
            with graph.as_default(), session.as_default():
                yield session
        except (errors.UnavailableError, errors.AbortedError, errors.CancelledError):
            raise  # A task may be gone, and closing the session would wait 30 s for it.
        except BaseException:
            session.close()
            raise
        session.close()


def _address_towards(tasks: Mapping[str, Sequence[str]]) -> str:
    """Return the address of this host in the network of the tasks."""
    first = next(address for addresses in tasks.values() for address in addresses)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(split(first))  # sends nothing
        address: str = probe.getsockname()[0]
        return address
