"""Some randomly changed inputs; `make fuzz` has more. See `fuzz`."""

import os
import subprocess
import sys
from pathlib import Path

COUNT, ENDS = 60, 6


def test_changed_inputs_and_commands_that_are_killed(tmp_path: Path) -> None:
    # In another process, because a process that is forked must not have run TensorFlow's threads.
    options = ("--count", str(COUNT), "--ends", str(ENDS), "--keep", str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-m", "fuzz", *options],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
        capture_output=True,
        text=True,
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert f"{COUNT} cases" in done.stdout
    assert f"{ENDS} commands ended at random moments" in done.stdout
