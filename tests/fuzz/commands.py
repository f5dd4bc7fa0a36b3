"""pesto's command line in a process that has loaded all modules."""

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import loaded

from pesto_cli import api, cli
from pesto_cli.cluster import Connection
from pesto_cli.cluster.cluster import _kind
from pesto_cli.data.machine import Device, Machine
from pesto_cli.profile.analytic import child_process, virtual_cluster


def load() -> None:
    """Load what commands need, and let them fork where they would start a process."""
    loaded.load()
    virtual_cluster.subprocess = _Forks  # type: ignore[attr-defined]
    api.connected = _in_this_process  # type: ignore[assignment]


def run(argv: Sequence[str]) -> None:
    """Run a command line as a shell does; raises SystemExit."""
    sys.argv = ["pesto", *argv]
    cli.main()


class _Forks:
    """A replacement of `subprocess` that forks, so that TensorFlow is not imported again."""

    @staticmethod
    def run(command: Sequence[str], **options: Any) -> Any:
        from pathlib import Path

        from fuzz.forked import all_of

        request, response = command[3:]
        folder = Path(request).parent
        job: tuple[None, Path, Callable[[], None]] = (
            None,
            folder,
            lambda: child_process.serve(request, response),
        )
        ((_, ended),) = all_of([job], processes=1, limit_s=60, limit_bytes=2**31)
        return subprocess.CompletedProcess(command, ended.code, ended.out, ended.err)


class _ThisProcess:
    """A replacement of a cluster: sessions on the CPU of this process."""

    machine = Machine((Device("CPU:0", "CPU", 10**9),), ())

    def call(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        device = "/job:localhost/replica:0/task:0/device:CPU:0"
        return function(Connection("", {"CPU:0": device}), *arguments, **options)


@contextmanager
def _in_this_process(spec: str, *, open_ports: bool = False) -> Iterator[_ThisProcess]:
    _kind(spec, open_ports)  # checks the arguments
    yield _ThisProcess()
