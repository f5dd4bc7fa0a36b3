"""Runs functions in forks, with limits on time and memory."""

import faulthandler
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

POLL_S = 0.02
# Time for a process to print its stack.
LAST_WORDS_S = 2.0
ESCAPED = 99

Job = TypeVar("Job")


@dataclass(frozen=True)
class Ended:
    """The end of a fork.

    code: exit code; if negative, the number of the signal that ended it. took_s: wall-clock time.
    peak_bytes: peak memory of the fork or of one of its subprocesses.
    stopped: why this module stopped it; "" if it ended by itself.
    """

    code: int
    took_s: float
    peak_bytes: int
    stopped: str
    out: str
    err: str


@dataclass
class _Running:
    pid: int
    folder: Path
    began: float
    peak_bytes: int = 0
    stopped: str = ""


def all_of(
    jobs: Iterable[tuple[Job, Path, Callable[[], None]]],
    *,
    processes: int,
    limit_s: float,
    limit_bytes: int,
) -> Iterator[tuple[Job, Ended]]:
    """Run functions in their folders, several at a time; yield each when it ends.

    The output of a function is in `.stdout` and `.stderr` of its folder.
    """
    waiting, running = iter(jobs), dict[int, tuple[Job, _Running]]()
    is_over = False
    while running or not is_over:
        while not is_over and len(running) < processes:
            following = next(waiting, None)
            if following is None:
                is_over = True
            else:
                job, folder, function = following
                child = _start(folder, function)
                running[child.pid] = (job, child)
        for pid, (job, child) in list(running.items()):
            ended = _ended(child, limit_s, limit_bytes)
            if ended is not None:
                del running[pid]
                yield job, ended
        time.sleep(POLL_S)


def _start(folder: Path, function: Callable[[], None]) -> _Running:
    sys.stdout.flush()
    sys.stderr.flush()
    began = time.monotonic()
    pid = os.fork()
    if pid:
        return _Running(pid, folder, began)
    code = ESCAPED
    try:
        os.setsid()
        os.chdir(folder)
        for descriptor, name in ((1, ".stdout"), (2, ".stderr")):
            file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
            os.dup2(file, descriptor)
        faulthandler.enable()  # prints the line at which a library aborts or is too slow
        function()
        code = 0
    except SystemExit as exit_:
        code = exit_.code if isinstance(exit_.code, int) else 0 if exit_.code is None else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _ended(child: _Running, limit_s: float, limit_bytes: int) -> Ended | None:
    pid, status, used = os.wait4(child.pid, os.WNOHANG)
    took_s = time.monotonic() - child.began
    if pid:
        peak_bytes = max(child.peak_bytes, used.ru_maxrss * 1024)
        words = [(child.folder / name).read_text(errors="replace") for name in _OUTPUTS]
        code = os.waitstatus_to_exitcode(status)
        return Ended(code, took_s, peak_bytes, child.stopped, words[0], words[1])
    child.peak_bytes = max(child.peak_bytes, _resident_bytes(child.pid))
    if took_s > limit_s:
        child.stopped = f"it took longer than {limit_s:.0f} s"
        os.kill(child.pid, signal.SIGABRT)
    elif child.peak_bytes > limit_bytes:
        child.stopped = f"it took more than {limit_bytes:,} bytes of memory"
        os.kill(child.pid, signal.SIGABRT)
    if child.stopped and took_s > limit_s + LAST_WORDS_S:
        os.killpg(child.pid, signal.SIGKILL)
    return None


_OUTPUTS = (".stdout", ".stderr")


def _resident_bytes(pid: int) -> int:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0
    return pages * resource.getpagesize()
