"""CP-SAT in a process of its own.

OR-Tools 9.15 crashes as it solves in a process where TensorFlow 2.21 was imported before it: both
bring a protobuf library, and some of its symbols hold for the whole process.
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
    """Whether TensorFlow was imported before OR-Tools; modules are listed in order of import."""
    names = list(sys.modules)
    if "tensorflow" not in names:
        return False
    return CP_MODEL not in names or names.index("tensorflow") < names.index(CP_MODEL)


def search(asked: SolverRequest) -> SolverAnswer:
    """Ask `cpsat.search`; progress is not reported.

    Raises:
        EnvironmentFailedError: the process died.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,  # a Ctrl-C of the terminal is for the parent alone
    )
    question = pickle.dumps(replace(asked, on_solution=None))
    answer, words = run_until_stopped(
        lambda: process.communicate(question),
        lambda: process.send_signal(signal.SIGINT),
        asked.limits,
    )
    if process.returncode != 0 and asked.limits.stop.is_set():
        return SolverAnswer()  # it was asked to stop before it could listen
    if process.returncode != 0:
        last = words.decode(errors="replace").strip().splitlines()[-1:] or ["no last words"]
        raise EnvironmentFailedError(
            f"the process of CP-SAT ended with {process.returncode}: {last[0]}; "
            "use another solver (--solver cbc), or import pesto before TensorFlow."
        )
    found: SolverAnswer = pickle.loads(answer)
    return found


def main() -> None:
    """Answer one question from stdin on stdout; SIGINT asks for the best so far."""
    asked: SolverRequest = pickle.load(sys.stdin.buffer)

    def stop(signum: int, frame: FrameType | None) -> None:
        asked.limits.stop.set()

    signal.signal(signal.SIGINT, stop)
    from pesto_cli.ilp import cpsat

    pickle.dump(cpsat.search(asked), sys.stdout.buffer)
