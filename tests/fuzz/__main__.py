"""Run the cases, and report those that failed."""

import argparse
import itertools
import re
import shlex
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from fuzz import commands
from fuzz.cases import TARGETS, Case
from fuzz.ends import ended_at_random
from fuzz.forked import Ended, all_of
from fuzz.seeds import write_seeds

LIMIT_S, LIMIT_BYTES = 60.0, 2 * 10**9
DOCUMENTED = range(6)
OWN = {".stdout", ".stderr"}


def wrong(case: Case, ended: Ended, left: set[str]) -> str:
    """Return why a case failed; "" if it did not."""
    if ended.stopped:
        return ended.stopped
    if ended.code < 0:
        return f"signal {-ended.code} ended it"
    if ended.code not in DOCUMENTED:
        return f"exit code {ended.code}"
    if "Traceback (most recent call last)" in ended.out + ended.err:
        return "a traceback"
    if ended.code and not ended.err.strip():
        return f"exit code {ended.code} without a message"
    if ended.code > 1 and len(re.findall(r"^Error:", ended.err, re.MULTILINE)) > 1:
        return "two messages"
    if ended.code > 1 and left:
        return f"exit code {ended.code}, but {', '.join(sorted(left))} was written"
    if any(name.startswith(".") for name in left):
        return f"left {', '.join(sorted(left))}"
    return ""


def main() -> int:
    """Run the command line; return exit code 1 if a case failed."""
    parser = argparse.ArgumentParser(prog="python -m fuzz")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--ends", type=int, default=0, help="commands to end at random moments")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="one case, by its number")
    parser.add_argument("--file", default="", help="only files with this in their names")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument(
        "--keep", type=Path, default=Path("build/fuzz"), help="folder for failed cases"
    )
    asked = parser.parse_args()
    if not any(asked.file in target.seed for target in TARGETS):
        parser.error(f"no file has {asked.file!r} in its name")
    cases = (Case(asked.seed, number) for number in itertools.count())
    cases = (case for case in cases if asked.file in case.target.seed)
    some = list(itertools.islice(cases, asked.count))
    if asked.only is not None:
        some = [Case(asked.seed, asked.only)]
    commands.load()
    with tempfile.TemporaryDirectory(prefix="pesto-fuzz-") as work:
        return _run(some, Path(work), asked)


def _run(cases: list[Case], work: Path, asked: argparse.Namespace) -> int:
    began = time.monotonic()
    seeds = work / "seeds"
    seeds.mkdir()
    job = (None, seeds, lambda: write_seeds(seeds))
    ((_, made),) = all_of([job], processes=1, limit_s=300, limit_bytes=LIMIT_BYTES)
    if made.code:
        print(made.err)
        return 1
    print(f"{time.monotonic() - began:.1f} s for the seeds", flush=True)

    def jobs():  # type: ignore[no-untyped-def]
        for case in cases:
            folder = work / str(case.number)
            folder.mkdir()
            case.prepare(seeds, folder)
            yield case, folder, case.run

    codes: Counter[int] = Counter()
    slowest = largest = 0.0
    findings = 0
    running = all_of(jobs(), processes=asked.processes, limit_s=LIMIT_S, limit_bytes=LIMIT_BYTES)
    for case, ended in running:
        folder = work / str(case.number)
        given = {Path(name).parts[0] for name in (case.target.seed, *case.target.others)}
        left = {path.name for path in folder.iterdir()} - OWN - given
        codes[ended.code] += 1
        slowest, largest = max(slowest, ended.took_s), max(largest, ended.peak_bytes)
        if reason := wrong(case, ended, left):
            findings += 1
            kept = asked.keep / f"{case.seed}-{case.number}"
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(folder, kept)
            (kept / "reason.txt").write_text(
                f"{reason}\npesto {shlex.join(case.argv)}\n"
                f"PYTHONPATH=tests python -m fuzz --seed {case.seed} --only {case.number}\n"
            )
            words = ended.err.strip().splitlines()
            print(f"{case.number}: {reason}: pesto {shlex.join(case.argv)}")
            print(*(f"    {line[:200]}" for line in words[-4:]), sep="\n", flush=True)
        elif asked.only is not None:
            print(ended.err, f"exit {ended.code}", sep="\n")
        shutil.rmtree(folder)
    counts = ", ".join(f"{count} x {code}" for code, count in sorted(codes.items()))
    print(
        f"{sum(codes.values())} cases in {time.monotonic() - began:.0f} s, {findings} failed; "
        f"exit codes {counts}; at most {slowest:.1f} s and {largest / 1e6:.0f} MB."
    )
    findings += len(ended_at_random(asked.ends, asked.seed, seeds, work)) if asked.ends else 0
    return int(findings > 0)


if __name__ == "__main__":
    sys.exit(main())
