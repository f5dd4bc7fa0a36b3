"""CP-SAT in a process of its own.

OR-Tools 9.15 crashes when it solves in a process that imported TensorFlow 2.21 first: both contain
a protobuf library, and some of its symbols are shared in the whole process.
"""

import pickle
import signal
import subprocess
import sys
from dataclasses import replace
from types import FrameType

from pesto_cli.errors import EnvironmentFailedError
from pesto_cli.ilp.search import SolverAnswer, SolverRequest, run_until_stopped

CP_MODEL = "ortools.sat.python.cp_model"
COMMAND = "from pesto_cli.ilp.cpsat_process import main; main()"


def is_needed() -> bool:
    """Return whether TensorFlow was imported before OR-Tools."""
    names = list(sys.modules)  # in the order of import
    if "tensorflow" not in names:
        return False
    return CP_MODEL not in names or names.index("tensorflow") < names.index(CP_MODEL)


def search(request: SolverRequest) -> SolverAnswer:
    """Call `cpsat.search` in a new process; progress is not reported.

    Raises:
        EnvironmentFailedError: the process ended with an error.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C in the terminal must reach only the parent
    )
    pickled = pickle.dumps(replace(request, on_solution=None))
    answer, errors = run_until_stopped(
        lambda: process.communicate(pickled),
        lambda: process.send_signal(signal.SIGINT),
        request.limits,
    )
    if process.returncode != 0 and request.limits.stop.is_set():
        return SolverAnswer()  # the stop came before the process handled signals
    if process.returncode != 0:
        last = errors.decode(errors="replace").strip().splitlines()[-1:] or ["no message"]
        raise EnvironmentFailedError(
            f"the process of CP-SAT ended with exit status {process.returncode}: {last[0]}; "
            "use another solver (pesto solve --solver cbc), or import pesto before TensorFlow."
        )
    found: SolverAnswer = pickle.loads(answer)
    return found


def main() -> None:
    """Read a request from stdin and write the answer to stdout; on SIGINT, the best so far."""
    request: SolverRequest = pickle.load(sys.stdin.buffer)

    def stop(signum: int, frame: FrameType | None) -> None:
        request.limits.stop.set()

    signal.signal(signal.SIGINT, stop)
    from pesto_cli.ilp import cpsat

    pickle.dump(cpsat.search(request), sys.stdout.buffer)
