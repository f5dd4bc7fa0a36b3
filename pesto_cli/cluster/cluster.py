"""Connect to a cluster and call functions on it."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from pesto_cli.cluster.backend import Kind
from pesto_cli.cluster.client_process import ClientProcess
from pesto_cli.cluster.connection import Connection
from pesto_cli.cluster.local_gpus import LocalGpus
from pesto_cli.cluster.local_workers import LocalWorkers
from pesto_cli.cluster.messages import Request
from pesto_cli.cluster.running_cluster import RunningCluster
from pesto_cli.data.machine import Machine
from pesto_cli.data.presets import PRESETS
from pesto_cli.errors import BadInputError, EnvironmentFailedError
from pesto_cli.files import max_input_bytes

P = ParamSpec("P")
T = TypeVar("T")

# To add a kind of cluster, add a file with its class, and the class to this tuple.
KINDS: tuple[type[Kind], ...] = (LocalWorkers, LocalGpus, RunningCluster)


@dataclass(frozen=True)
class Cluster:
    """Real TensorFlow devices, and a client process that runs sessions on them.

    machine: the devices with their memory. The times of its links are nominal, not measured.
    """

    machine: Machine
    _client: ClientProcess = field(repr=False)

    def call(
        self, function: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run `function(connection, ...)` in the client process and return its result.

        The function must be at the top of a module; arguments and result must be picklable. Its
        output goes to stderr.

        Raises:
            PestoError: the function raised it.
            EnvironmentFailedError: the client or a worker has ended, and with it the cluster.
            RuntimeError: the function raised another error; a note has its traceback.
        """
        answer: T = self._client.call(Request(function, args, kwargs, max_input_bytes()))
        return answer


@contextmanager
def connected(
    spec: str, *, open_ports: bool = False, start_limit_s: float = 120.0
) -> Iterator[Cluster]:
    """Start or reach the devices of `local-workers:N`, `local-gpus` or a cluster file.

    All started processes end when the context ends, or when the thread that entered it ends, also
    if that thread is killed.

    Args:
        spec: one of these three, see `is_live`.
        open_ports: start workers in the network of this host instead of an isolated one. Then
            anyone who can reach their ports can run programs as this user.
        start_limit_s: time limit until all devices answer.

    Raises:
        BadInputError: the spec is none of these, or its file contains a mistake.
        EnvironmentFailedError: a server or device does not exist, start or answer.
    """
    client = ClientProcess(_kind(spec, open_ports), start_limit_s)
    try:
        yield Cluster(client.machine, client)
    finally:
        client.end()


def is_live(spec: str) -> bool:
    """Whether a `--machine` names real devices; false for presets and machine files."""
    return any(kind.recognises(spec) for kind in KINDS)


def _kind(spec: str, open_ports: bool) -> Kind:
    if sys.platform != "linux":
        raise EnvironmentFailedError(
            f"machine {spec!r} needs Linux; on other systems use a preset or a machine file."
        )
    for kind in KINDS:
        if kind.recognises(spec):
            return kind.parse(spec, open_ports=open_ports)
    path = Path(spec)
    if spec not in PRESETS and (path.suffix or len(path.parts) > 1 or path.exists()):
        return RunningCluster.parse(spec, open_ports=open_ports)  # raises a fitting error
    found = "is a preset, which only describes devices, and" if spec in PRESETS else "is"
    raise BadInputError(
        f"machine {spec!r} {found} nothing to run on; local-workers:N, local-gpus or the path of a "
        "cluster file (TOML with [cluster]) was expected."
    )
