"""CBC, as PuLP brings it, on a file.

PuLP's own call says Optimal at a time limit, has no bound, and cannot be stopped; so only the
binary is PuLP's.
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
from pesto_cli.ilp.milp import MipAnswer, MipQuestion
from pesto_cli.ilp.search import POLL_S

# In deterministic mode, branch-and-bound nodes for each unit of work.
NODES_PER_UNIT = 100
# Reading and preprocessing heed no limit: so long after it CBC is interrupted.
OVERDUE_S = 1.0
# After an interrupt CBC finishes what it is at and writes its solution; not if this takes longer.
GRACE_S = 2.0
# The log gives bounds with eight digits.
LOG_PRECISION = 1e-7

_SOLVED = re.compile(r"(?:Optimal|Stopped on \w+) - objective value (\S+)")
_BOUND = re.compile(r"best possible ([-+.\de]+)")


def run(question: MipQuestion) -> MipAnswer:
    """Search until the limits; progress is reported only at the end.

    Raises:
        EnvironmentFailedError: there is no CBC for this platform, or it failed.
    """
    folder = question.model.parent
    solution, log = folder / "solution.txt", folder / "log.txt"
    began = time.monotonic()
    with log.open("w") as output:
        # Its own session: Ctrl-C in the terminal must reach it through us.
        process = subprocess.Popen(
            [_binary(), question.model.name, *_options(question), "-solution", solution.name],
            cwd=folder,
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            stopped = _wait(process, question)
        finally:
            process.kill()
            process.wait()
    in_time = time.monotonic() < began + _time_limit_s(question) and not stopped
    text = log.read_text(errors="replace")
    # Out of time while it reads a start, it may crash; what it cannot read it leaves without one.
    if in_time and (process.returncode != 0 or not solution.exists()):
        raise EnvironmentFailedError(
            f"CBC failed with exit status {process.returncode}: {text.strip()[-200:]!r}; "
            "free memory, or use --solver cpsat."
        )
    return read_answer(solution.read_text() if solution.exists() else "", text, in_time=in_time)


def _binary() -> str:
    bundled = str(pulp.PULP_CBC_CMD.pulp_cbc_path)
    found = bundled if os.access(bundled, os.X_OK) else shutil.which("cbc")
    if found is None:
        raise EnvironmentFailedError(
            "PuLP brings no CBC for this platform and there is no `cbc` on the path; "
            "install it, or use --solver cpsat."
        )
    return os.path.realpath(found)


def _options(question: MipQuestion) -> list[str]:
    limits = question.limits
    options = ["-randomCbcSeed", str(limits.seed % 10**6), "-ratioGap", "0"]
    if question.start is not None:
        start = question.model.parent / "start.txt"
        rows = (f"{row} {name} {x!r} 0" for row, (name, x) in enumerate(question.start.items()))
        start.write_text("Stopped on time - objective value 0\n" + "\n".join(rows) + "\n")
        options += ["-mips", start.name]
    if limits.deterministic:
        options += ["-maxNodes", str(math.ceil(limits.time_limit_s * NODES_PER_UNIT))]
    else:
        options += ["-timeMode", "elapsed", "-sec", f"{limits.time_limit_s:.3f}"]
        options += ["-threads", str(limits.workers)] if limits.workers > 1 else []
    return [*options, "-solve"]


def _time_limit_s(question: MipQuestion) -> float:
    return math.inf if question.limits.deterministic else question.limits.time_limit_s


def _wait(process: subprocess.Popen[bytes], question: MipQuestion) -> bool:
    """Wait for the end; whether it had to be stopped, as was asked or as it is overdue."""
    overdue_at = time.monotonic() + _time_limit_s(question) + OVERDUE_S
    kill_at = math.inf
    while process.poll() is None:
        now = time.monotonic()
        if kill_at == math.inf and (question.limits.stop.is_set() or now > overdue_at):
            process.send_signal(signal.SIGINT)
            kill_at = now + GRACE_S
        if now > kill_at:
            process.kill()
        time.sleep(POLL_S)
    return kill_at < math.inf


def read_answer(solution: str, log: str, *, in_time: bool) -> MipAnswer:
    """The answer in a solution file and a log; `in_time` if neither limit nor stop ended it."""
    verdict, _, rows = solution.partition("\n")
    # Out of time in preprocessing, it says infeasible as well.
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
    # Before it has solved a relaxation it may print anything.
    return MipAnswer(values=values, bound=bound if bound <= objective else 0.0)
