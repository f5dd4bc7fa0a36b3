"""Run a function in a child process, so that a crash of it is a result, too."""

import json
import subprocess
import sys
from collections.abc import Callable

from pesto_cli.cluster.processes import how_it_ended
from pesto_cli.doctor.check import first_line
from pesto_cli.errors import EnvironmentFailedError

LIMIT_S = 120.0
COMMAND = "from pesto_cli.doctor.child_process import main; main()"


def run_in_child(function: Callable[..., str], *arguments: str) -> str:
    """Run a function of `probes` in a child process and return its result.

    Raises:
        EnvironmentFailedError: it raised an error, crashed, or exceeded LIMIT_S.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-c", COMMAND, function.__name__, *arguments],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise EnvironmentFailedError(f"no result after {LIMIT_S:.0f} s") from None
    if done.returncode != 0:
        raise EnvironmentFailedError(f"its process {how_it_ended(done.returncode)}")
    answer = json.loads(done.stdout.splitlines()[-1])
    if "error" in answer:
        raise EnvironmentFailedError(answer["error"])
    return str(answer["found"])


def main() -> None:
    """Call the function of `probes` that the arguments name; print its result or error as JSON."""
    from pesto_cli.doctor import probes

    name, *arguments = sys.argv[1:]
    try:
        answer = {"found": getattr(probes, name)(*arguments)}
    except Exception as error:
        answer = {"error": first_line(error)}
    print(json.dumps(answer))
