"""TensorFlow's virtual cluster in forks of a process that has loaded it, which takes a second.

As in `virtual_cluster`, each request has a process of its own, which TensorFlow may abort.
"""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PRELOADED = (
    "tensorflow.python.framework.errors_impl",
    "tensorflow.core.protobuf.device_properties_pb2",
    "tensorflow.core.protobuf.meta_graph_pb2",
    "tensorflow.python.grappler.cluster",
    "tensorflow.python.grappler.item",
)


class WarmProcess:
    """A replacement of `subprocess` for `virtual_cluster`; starts the process at the first run."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[str] | None = None

    def run(self, command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
        """Run the request of a command in a fork of the process."""
        *_, program, request, response = command
        if self.process is None:
            self.process = subprocess.Popen(
                [sys.executable, "-P", __file__, program],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=options["env"],
                text=True,
            )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(request, response, sep="\t", file=self.process.stdin, flush=True)
        code = int(self.process.stdout.readline())
        errors = stderr_of(request).read_text(errors="replace")
        return subprocess.CompletedProcess(command, code, "", errors)


@contextmanager
def warm_process() -> Iterator[WarmProcess]:
    """Yield a process that ends with the context."""
    warm = WarmProcess()
    yield warm
    if warm.process is not None:
        warm.process.communicate()


def stderr_of(request: str) -> Path:
    """Return the file of what the fork for a request writes to stderr."""
    return Path(f"{request}.stderr")


def main(program: str) -> None:
    """Load the modules of `program`. Then run each line of stdin in a fork; print its exit code."""
    spec = importlib.util.spec_from_file_location("child_process", program)
    assert spec is not None
    assert spec.loader is not None
    child_process = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(child_process)
    child_process.without_init("tensorflow")
    for name in PRELOADED:
        importlib.import_module(name)
    for line in sys.stdin:
        request, response = line.rstrip("\n").split("\t")
        fork = os.fork()
        if fork == 0:
            os.dup2(os.open(stderr_of(request), os.O_CREAT | os.O_WRONLY), 2)
            child_process.serve(request, response)
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
