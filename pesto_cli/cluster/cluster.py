"""A cluster as its user sees it: a machine, and calls that run on it."""

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
from pesto_cli.data.machine import PRESETS, Machine
from pesto_cli.errors import BadInputError, EnvironmentFailedError
from pesto_cli.files import max_input_bytes

P = ParamSpec("P")
T = TypeVar("T")

# Each knows the specs that it stands for. A kind more is a file with a class more.
KINDS: tuple[type[Kind], ...] = (LocalWorkers, LocalGpus, RunningCluster)


@dataclass(frozen=True)
class Cluster:
    """TensorFlow devices that exist, and a process of their own that runs sessions on them.

    machine: the devices with their memory; links are nominal until `pesto comm` has timed them.
    """

    machine: Machine
    _client: ClientProcess = field(repr=False)

    def call(
        self, function: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run `function(connection, ...)` in the client process and return what it returns.

        The function is one of a module; arguments and result can be pickled. What it prints goes
        to stderr.

        Raises:
            PestoError: what the function raised, as it stands.
            EnvironmentFailedError: the client or a worker has ended; the cluster is gone.
            RuntimeError: the function raised something else; a note has its traceback.
        """
        answer: T = self._client.call(Request(function, args, kwargs, max_input_bytes()))
        return answer


@contextmanager
def connected(
    spec: str, *, open_ports: bool = False, start_limit_s: float = 120.0
) -> Iterator[Cluster]:
    """Start or reach the devices of `local-workers:N`, `local-gpus` or a cluster file.

    Whatever was started ends with the context, and with the thread that entered it, however these
    end.

    Args:
        spec: what `is_live` accepts.
        open_ports: start workers in the network of this host, not in one of their own: whoever
            reaches their ports can run programs as this user.
        start_limit_s: for everything to be up.

    Raises:
        BadInputError: the spec is none of these, or its file is not as it should be.
        EnvironmentFailedError: something does not start or answer, or does not exist.
    """
    client = ClientProcess(_kind(spec, open_ports), start_limit_s)
    try:
        yield Cluster(client.machine, client)
    finally:
        client.end()


def is_live(spec: str) -> bool:
    """Whether a `--machine` is devices to run on, not a preset or the description of some."""
    return any(kind.recognises(spec) for kind in KINDS)


def _kind(spec: str, open_ports: bool) -> Kind:
    if sys.platform != "linux":
        raise EnvironmentFailedError(
            f"machine {spec!r} runs on Linux only; elsewhere plan for a preset or a machine file."
        )
    for kind in KINDS:
        if kind.recognises(spec):
            return kind.parse(spec, open_ports=open_ports)
    path = Path(spec)
    if spec not in PRESETS and (path.suffix or len(path.parts) > 1 or path.exists()):
        return RunningCluster.parse(spec, open_ports=open_ports)  # which says what it lacks
    found = "is a preset, which describes devices, and" if spec in PRESETS else "is"
    raise BadInputError(
        f"machine {spec!r} {found} nothing to run on; local-workers:N, local-gpus or the path of a "
        "cluster file (TOML with [cluster]) was expected."
    )
