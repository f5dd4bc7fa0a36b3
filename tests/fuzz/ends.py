"""Commands that are ended at random moments: their output must be complete or absent."""

import os
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from fuzz import commands
from fuzz.forked import Ended, all_of
from pesto_cli import api

OUT = "out.meta"
SOLVE = ("solve", "profile.json", "-o", OUT, "--time-limit", "1", "-n", "50", "--quiet")
COMMANDS = (
    (*SOLVE, "--workers", "1"),
    ("apply", "graph.meta", "placement.json", "-o", OUT),
    ("export", "graph.meta", "-o", OUT),
    ("profile", "graph.meta", "-m", "v100x2-nvlink", "-o", OUT, "--source", "csv:costs.csv"),
)
READERS: dict[str, Callable[[Path], object]] = {
    "solve": api.read_placement,
    "apply": api.read_meta_graph,
    "export": api.read_meta_graph,
    "profile": api.read_profile,
}
# Exit codes of a command that ended before the signal, or by the signal.
CODES = {signal.SIGKILL: (0, -9), signal.SIGINT: (0, 130), signal.SIGTERM: (0, -15, 143)}
NEEDED = ("profile.json", "graph.meta", "placement.json", "costs.csv")
OLD = b"what was there before"
TEMPORARY = f".{OUT}."


def ended_at_random(count: int, seed: int, seeds: Path, work: Path) -> list[str]:
    """Send signals to commands, one after the other in one folder; return the failures."""
    rng, wrong = random.Random(f"ends {seed}"), []
    folder = work / "ends"
    folder.mkdir()
    for name in NEEDED:
        shutil.copyfile(seeds / name, folder / name)
    took_s = {argv: _run(folder, argv, None, 0.0).took_s for argv in COMMANDS}
    found: Counter[str] = Counter()
    for number in range(count):
        argv = COMMANDS[number % len(COMMANDS)]
        sent = rng.choice((*[signal.SIGKILL] * 3, signal.SIGINT, signal.SIGTERM))
        output = folder / OUT
        output.unlink(missing_ok=True)
        if rng.random() < 0.5:
            output.write_bytes(OLD)
        ended = _run(folder, argv, sent, rng.uniform(0, 1.1) * took_s[argv])
        state, problem = _state(argv[0], output, ended, sent)
        found[f"{argv[0]} {state}"] += 1
        # The next command that writes the same file removes a temporary file.
        left = [path for path in folder.iterdir() if path.name.startswith(TEMPORARY)]
        if len(left) > 1:
            problem = f"{len(left)} temporary files are left"
        if problem:
            wrong.append(f"end {number} (seed {seed}): {' '.join(argv)}: {problem}")
            print(wrong[-1], *ended.err.splitlines()[-5:], sep="\n    ", flush=True)
    counts = ", ".join(f"{number} x {state}" for state, number in sorted(found.items()))
    print(f"{count} commands ended at random moments, {len(wrong)} failed: {counts}.")
    return wrong


def _run(folder: Path, argv: tuple[str, ...], sent: signal.Signals | None, after_s: float) -> Ended:
    """Run a command and send it a signal after some time."""

    def run() -> None:
        if sent is not None:
            target = os.pidfd_open(os.getpid())
            if os.fork() == 0:
                time.sleep(after_s)
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(target, sent)
                os._exit(0)
        commands.run(argv)

    ((_, ended),) = all_of([(None, folder, run)], processes=1, limit_s=60, limit_bytes=2 * 10**9)
    return ended


def _state(verb: str, output: Path, ended: Ended, sent: signal.Signals) -> tuple[str, str]:
    """Return the state of the output, and the failure, or ""."""
    if ended.code not in CODES[sent]:
        return "failed", f"exit code {ended.code} after {sent.name}"
    if "Traceback" in ended.err:
        return "failed", "a traceback"
    if not output.exists():
        return "wrote none", "" if ended.code else "no output, and exit code 0"
    if output.read_bytes() == OLD:
        return "kept the old one", "" if ended.code else "the old output, and exit code 0"
    try:
        READERS[verb](output)
    except Exception as error:
        return "failed", f"half an output: {error}"
    return "wrote it completely", ""
