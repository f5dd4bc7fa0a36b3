"""Some hundred inputs that were changed by chance: see `fuzz`."""

import os
import subprocess
import sys
from pathlib import Path

COUNT = 300


def test_every_changed_input_ends_with_its_exit_code_and_a_word(tmp_path: Path) -> None:
    # A process of its own: one that is forked must not have run TensorFlow's threads.
    done = subprocess.run(
        [sys.executable, "-m", "fuzz", "--count", str(COUNT), "--keep", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
        capture_output=True,
        text=True,
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert f"{COUNT} cases" in done.stdout
