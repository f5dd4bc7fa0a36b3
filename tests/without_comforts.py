"""Run pesto's commands in a poor environment; `test_faults` runs this script.

    unshare -rmn python without_comforts.py FOLDER

The new network namespace has no network. The new mount namespace allows to mount a full file system
and a read-only one. Standard input is closed, the terminal is narrow and dumb, stdout only accepts
ASCII, and there is no home directory. The outcome of every command is written to
FOLDER/outcomes.json.
"""

import io
import json
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from pesto_cli.cli import main

MODEL, PROFILE = "ein Modell.meta", "größe 大.profile.json"
PLAN, PLACED = "plan ü.placement.json", "gesetzt è.meta"
COMMANDS = (
    ("export", "zoo:RNNLM-tiny", "-o", MODEL),
    ("profile", MODEL, "-m", "v100x2-nvlink", "-o", PROFILE),
    ("solve", PROFILE, "-o", PLAN, "--strategy", "expert"),
    ("simulate", PROFILE, "--placement", PLAN, "--trace", "spur ñ.json"),
    ("compare", PROFILE, "--strategies", "single,expert"),
    ("coarsen", PROFILE, "-n", "20", "-o", "grob ß.json.gz"),
    ("apply", MODEL, PLAN, "-o", PLACED),
    ("check", MODEL, PLAN, "--profile", PROFILE),
    ("diff", PLAN, PLAN, "--profile", PROFILE),
    ("explain", PROFILE, PLAN),
    ("report", PROFILE, PLAN, "-o", "bericht é.html"),
    ("export", PLACED, "-o", "full/x.meta"),
    ("solve", PROFILE, "-o", "read only/x.json", "--strategy", "single"),
)
MOUNTS = (("full", "size=16k"), ("read only", "ro"))


def run(argv: tuple[str, ...]) -> dict[str, object]:
    """Run a command; return its exit code and its output on stdout and stderr."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "ascii", errors=e) for e in ("strict", "replace"))
    sys.argv, code = ["pesto", *argv], 0
    try:
        with redirect_stdout(out), redirect_stderr(err):
            main()
    except SystemExit as exit_:
        code = int(exit_.code or 0)
    texts = (stream.detach().getvalue().decode() for stream in (out, err))
    return {"argv": argv, "code": code, **dict(zip(("out", "err"), texts, strict=True))}


def mounted() -> str:
    """Mount the file systems; return the error message if that fails, else an empty string."""
    for name, option in MOUNTS:
        Path(name).mkdir()
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", option, "none", name],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )
        if done.returncode:
            return done.stderr.strip()
    return ""


if __name__ == "__main__":
    os.chdir(sys.argv[1])
    os.close(0)
    failure = mounted()
    outcomes = [run(argv) for argv in COMMANDS]
    left = [str(path) for name, _ in MOUNTS for path in Path(name).iterdir()]
    Path("outcomes.json").write_text(
        json.dumps({"failure": failure, "outcomes": outcomes, "left": left})
    )
