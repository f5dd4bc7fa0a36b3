"""Faults of the environment give a clear message, the right exit code, and no partial output."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from conftest import Pesto, Write
from without_comforts import COMMANDS, MOUNTS

from pesto_cli.cli import numba_cache
from pesto_cli.data.problem import Problem
from pesto_cli.data.solution import Solution
from pesto_cli.strategies import STRATEGIES, Context

PESTO = (sys.executable, "-c", "from pesto_cli.cli import main; main()")
TESTS = Path(__file__).parent
PLACES = tuple(f"{name}/" for name, _ in MOUNTS)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    """Results of the pipeline without network, home folder, standard input and terminal."""
    folder = tmp_path_factory.mktemp("my mödels 日本")
    own_world = ["unshare", "--map-root-user", "--mount", "--net"]
    if not shutil.which("unshare") or subprocess.run([*own_world, "true"]).returncode:
        pytest.skip("namespaces (unshare --map-root-user --mount --net) are not permitted here")
    environ = {name: value for name, value in os.environ.items() if name != "HOME"}
    environ |= {"LC_ALL": "C", "TERM": "dumb", "COLUMNS": "40"}
    script = str(TESTS / "without_comforts.py")
    subprocess.run([*own_world, sys.executable, script, str(folder)], env=environ, check=True)
    found: dict[str, Any] = json.loads((folder / "outcomes.json").read_text())
    return found


def outcome(bare: Mapping[str, Any], place: str) -> Mapping[str, Any]:
    """Return the result of the command whose output folder refuses writes."""
    if bare["failure"]:
        pytest.skip(f"no file system could be mounted: {bare['failure']}")
    (found,) = [each for each in bare["outcomes"] if any(place in word for word in each["argv"])]
    return dict(found)


def test_the_pipeline_needs_no_network_and_only_files(bare: Mapping[str, Any]) -> None:
    ended = {
        " ".join(each["argv"]): (each["code"], each["err"])
        for each in bare["outcomes"]
        if not any(word.startswith(PLACES) for word in each["argv"])
    }
    assert len(ended) == len(COMMANDS) - len(MOUNTS)
    assert {name: word for name, (code, word) in ended.items() if code} == {}


def test_a_full_disk_is_reported_and_no_file_is_left(bare: Mapping[str, Any]) -> None:
    found = outcome(bare, "full/")
    assert found["code"] == 5
    assert "could not be written: No space left on device; free space" in found["err"]
    assert bare["left"] == []


def test_a_read_only_folder_is_reported_before_the_work(bare: Mapping[str, Any]) -> None:
    found = outcome(bare, "read only/")
    assert found["code"] == 5
    assert "cannot be written: Read-only file system; free space" in found["err"]


def test_a_device_without_space_is_reported(pesto: Pesto, diamond_profile: Path) -> None:
    refused = pesto("solve", diamond_profile, "-o", "/dev/full", "--strategy", "single")
    assert refused.code == 5
    assert "/dev/full could not be written: No space left on device" in refused.err


def test_a_closed_pipe_ends_a_command_without_a_message(diamond_profile: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    argv = ("compare", str(diamond_profile), "--strategies", "single", "--quiet")
    done = subprocess.run([*PESTO, *argv], stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


def test_ctrl_c_ends_a_comparison_with_the_finished_strategies(
    pesto: Pesto, monkeypatch: pytest.MonkeyPatch, diamond_profile: Path
) -> None:
    heft = STRATEGIES["heft"]

    def interrupted(problem: Problem, context: Context) -> Solution:
        os.kill(os.getpid(), signal.SIGINT)
        return heft(problem, context)

    monkeypatch.setattr(STRATEGIES, "builtin", {**STRATEGIES.builtin, "heft": interrupted})
    done = pesto("compare", diamond_profile, "--strategies", "heft,single", "--json", "--quiet")
    assert done.code == 130
    assert [row["strategy"] for row in json.loads(done.out)] == ["heft", "single"]


INTERRUPTED_IN_A_LIBRARY = """
import os
import signal
import time
def interrupt(*_):
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)
class Finalised:
    __del__ = interrupt
try:
    interrupt()
except BaseException as error:
    name = type(error).__name__
"""
# What a library makes of the interrupt: an error that follows from it, or only names it, or not
# even that, or none.
# click ends the line of a Ctrl-C that reaches it.
MADE_OF_IT = (
    ("    raise TypeError('this type cannot be imported') from ValueError('no such type')", ""),
    ("    lost = RuntimeError(f'a C++ error, replaced by {name}')\nraise lost", ""),
    ("    pass\nraise AttributeError('a C++ error')", ""),
    ("    pass\nFinalised()\ntime.sleep(60)", "\n"),
)


@pytest.mark.parametrize(("made", "line_end"), MADE_OF_IT)
def test_an_interrupt_that_a_library_catches_ends_the_command(
    pesto: Pesto, script: Write, tmp_path: Path, made: str, line_end: str
) -> None:
    path = script(INTERRUPTED_IN_A_LIBRARY + made)
    done = pesto("export", path, "--capture", "-o", tmp_path / "step.meta", "--quiet")
    assert (done.code, done.err) == (130, f"{line_end}Interrupted.\n")


def test_the_next_process_removes_files_of_a_killed_process(
    pesto: Pesto, tmp_path: Path, diamond_profile: Path
) -> None:
    placement = tmp_path / "p.json"
    write = (
        "import os\n"
        "from pesto_cli.files import atomic_write\n"
        "os.replace = lambda *args: os._exit(9)\n"  # of the temporary file
        f"atomic_write({str(placement)!r}, b'half')"
    )
    for _ in range(2):
        assert subprocess.run([sys.executable, "-c", write]).returncode == 9
        assert len([path for path in tmp_path.iterdir() if path.name.startswith(".p.json")]) == 1
    assert pesto("solve", diamond_profile, "-o", placement, "--strategy", "single").code == 0
    assert {path.name for path in tmp_path.iterdir()} == {"p.json", diamond_profile.name}


def test_a_read_only_installation_without_a_home_compiles_for_one_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setattr(numba_cache, "_is_writable", lambda folder: False)
    with numba_cache.kernel_cache():
        folder = Path(os.environ["NUMBA_CACHE_DIR"])
        assert folder.is_dir()
    assert not folder.exists()
    assert "NUMBA_CACHE_DIR" not in os.environ  # else later processes compile all kernels there


HALF_BUILT = """
import click
from pesto_cli import cli

class HalfBuilt:
    def __init__(self):
        raise KeyboardInterrupt

    def __del__(self):
        self.options

cli.cli.add_command(click.Command("build", callback=HalfBuilt))
cli.main()
"""


def test_an_interrupt_that_leaves_an_object_half_built_prints_no_traceback() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", HALF_BUILT, "build"], capture_output=True, text=True
    )
    assert (ended.returncode, ended.stderr.strip()) == (130, "Interrupted.")


INTERRUPTED_WHILE_LOADING = """
import sys
from pesto_cli.start import main
class Finder:
    def find_spec(self, name, path, target=None):
        if name == "pesto_cli.cli":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Finder())
main()
"""


def test_ctrl_c_while_modules_are_loaded_prints_no_traceback() -> None:
    argv = (sys.executable, "-c", INTERRUPTED_WHILE_LOADING)
    done = subprocess.run(argv, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "Interrupted.\n")
