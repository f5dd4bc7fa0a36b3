"""Run the CBC binary that comes with PuLP, on a file.

PuLP's own interface is not used: it reports Optimal at a time limit, returns no bound, and cannot
be stopped.
"""

import math
import os
import re
import shutil
import signal
import subprocess
import time

import pulp

from pesto_cli.errors import EnvironmentFailedError
from pesto_cli.ilp.milp import MipAnswer, MipRequest
from pesto_cli.ilp.search import POLL_S

# In deterministic mode, branch-and-bound nodes for each unit of work.
NODES_PER_UNIT = 100
# CBC ignores the time limit while it reads and preprocesses. So CBC is interrupted this many
# seconds after the time limit.
OVERDUE_S = 1.0
# After an interrupt CBC writes its solution. CBC is killed if this takes longer than these seconds.
GRACE_S = 2.0
# The log gives bounds with eight digits.
LOG_PRECISION = 1e-7

_SOLVED = re.compile(r"(?:Optimal|Stopped on \w+) - objective value (\S+)")
_BOUND = re.compile(r"best possible ([-+.\de]+)")


def run(request: MipRequest) -> MipAnswer:
    """Search until the limits; no progress is reported during the search.

    Raises:
        EnvironmentFailedError: there is no CBC for this platform, or CBC failed.
    """
    folder = request.model.parent
    solution, log = folder / "solution.txt", folder / "log.txt"
    began = time.monotonic()
    with log.open("w") as output:
        # In a session of its own, as Ctrl-C in the terminal must not reach CBC directly.
        process = subprocess.Popen(
            [_binary(), request.model.name, *_options(request), "-solution", solution.name],
            cwd=folder,
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            stopped = _wait(process, request)
        finally:
            process.kill()
            process.wait()
    in_time = time.monotonic() < began + _time_limit_s(request) and not stopped
    text = log.read_text(errors="replace")
    # CBC may crash at a time limit while it reads a start. If it cannot read the model, it writes
    # no solution file.
    if in_time and (process.returncode != 0 or not solution.exists()):
        raise EnvironmentFailedError(
            f"CBC failed with exit status {process.returncode}: {text.strip()[-200:]!r}; "
            "free some memory, or use --solver cpsat."
        )
    return read_answer(solution.read_text() if solution.exists() else "", text, in_time=in_time)


def _binary() -> str:
    bundled = str(pulp.PULP_CBC_CMD.pulp_cbc_path)
    found = bundled if os.access(bundled, os.X_OK) else shutil.which("cbc")
    if found is None:
        raise EnvironmentFailedError(
            "PuLP includes no CBC for this platform, and no `cbc` was found on the PATH; "
            "install CBC, or use --solver cpsat."
        )
    return os.path.realpath(found)


def _options(request: MipRequest) -> list[str]:
    limits = request.limits
    options = ["-randomCbcSeed", str(limits.seed % 10**6), "-ratioGap", "0"]
    if request.start is not None:
        start = request.model.parent / "start.txt"
        rows = (f"{row} {name} {x!r} 0" for row, (name, x) in enumerate(request.start.items()))
        start.write_text("Stopped on time - objective value 0\n" + "\n".join(rows) + "\n")
        options += ["-mips", start.name]
    if limits.deterministic:
        options += ["-maxNodes", str(math.ceil(limits.time_limit_s * NODES_PER_UNIT))]
    else:
        options += ["-timeMode", "elapsed", "-sec", f"{limits.time_limit_s:.3f}"]
        options += ["-threads", str(limits.workers)] if limits.workers > 1 else []
    return [*options, "-solve"]


def _time_limit_s(request: MipRequest) -> float:
    return math.inf if request.limits.deterministic else request.limits.time_limit_s


def _wait(process: subprocess.Popen[bytes], request: MipRequest) -> bool:
    """Wait for the end of CBC; return whether it was stopped, on request or because overdue."""
    overdue_at = time.monotonic() + _time_limit_s(request) + OVERDUE_S
    kill_at = math.inf
    while process.poll() is None:
        now = time.monotonic()
        if kill_at == math.inf and (request.limits.stop.is_set() or now > overdue_at):
            process.send_signal(signal.SIGINT)
            kill_at = now + GRACE_S
        if now > kill_at:
            process.kill()
        time.sleep(POLL_S)
    return kill_at < math.inf


def read_answer(solution: str, log: str, *, in_time: bool) -> MipAnswer:
    """Read the answer from the text of a solution file and a log.

    in_time: whether CBC ended by itself, before the time limit and without a stop.
    """
    verdict, _, rows = solution.partition("\n")
    # CBC also reports infeasible when the time ends during preprocessing.
    if "infeasible" in verdict.lower() and in_time:
        return MipAnswer(infeasible=True)
    bounds = [float(bound) for bound in _BOUND.findall(log)]
    bound = bounds[-1] * (1 - LOG_PRECISION) if bounds else 0.0
    solved = _SOLVED.match(verdict)
    if solved is None:
        return MipAnswer(bound=bound)
    objective = float(solved[1])
    if verdict.startswith("Optimal"):
        bound = objective
    columns = (row.split() for row in rows.splitlines())
    values = {name: float(x) for *_, name, x, _ in columns}
    # Before CBC has solved a relaxation, the bound that it prints may be wrong.
    return MipAnswer(values=values, bound=bound if bound <= objective else 0.0)
