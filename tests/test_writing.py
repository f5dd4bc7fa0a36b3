"""Tests of writing: destinations, replaced files, and files that must not change."""

import errno
import fcntl
import os
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pesto_cli.errors import BadInputError
from pesto_cli.files import atomic_write
from pesto_cli.files.job_summary import append_summary

PESTO = (sys.executable, "-c", "from pesto_cli.cli import main; main()")
ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
SOMEBODY_ELSE = 12345
SINGLE = ("--strategy", "single")


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_the_mode_of_a_new_file_follows_from_the_umask(tmp_path: Path, mask: int) -> None:
    with umask(mask):
        atomic_write(tmp_path / "new", b"data")
    assert mode_of(tmp_path / "new") == 0o666 & ~mask


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o755, 0o444])
def test_a_replaced_file_keeps_its_mode(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "old"
    path.write_text("old")
    path.chmod(mode)
    atomic_write(path, b"new")
    assert (path.read_bytes(), mode_of(path)) == (b"new", mode)


def test_a_replaced_file_loses_the_set_user_id_bit(tmp_path: Path) -> None:
    path = tmp_path / "old"
    path.write_text("old")
    path.chmod(0o6755)
    atomic_write(path, b"new")
    assert mode_of(path) == 0o755


@ROOT_ONLY
def test_a_replaced_file_keeps_its_owner_and_group(tmp_path: Path) -> None:
    path = tmp_path / "old"
    path.write_text("old")
    os.chown(path, SOMEBODY_ELSE, SOMEBODY_ELSE + 1)
    atomic_write(path, b"new")
    found = path.stat()
    assert (found.st_uid, found.st_gid) == (SOMEBODY_ELSE, SOMEBODY_ELSE + 1)


def test_a_new_group_does_not_get_the_rights_of_the_old_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*args: int) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    path = tmp_path / "old"
    path.write_text("old")
    path.chmod(0o664)
    if os.geteuid() == 0:
        os.chown(path, -1, SOMEBODY_ELSE)
    elif len(others := set(os.getgroups()) - {os.getegid()}):
        os.chown(path, -1, others.pop())
    else:
        pytest.skip("this user is in one group only")
    monkeypatch.setattr(os, "fchown", refused)
    atomic_write(path, b"new")
    assert mode_of(path) == 0o644


def test_attributes_and_access_lists_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "old"
    path.write_text("old")
    try:
        os.setxattr(path, "user.origin", b"a note")
    except OSError:
        pytest.skip("this file system has no attributes")
    if shutil.which("setfacl"):
        subprocess.run(["setfacl", "-m", f"u:{SOMEBODY_ELSE}:r", path], check=True)
    before = {name: os.getxattr(path, name) for name in os.listxattr(path)}
    atomic_write(path, b"new")
    assert {name: os.getxattr(path, name) for name in os.listxattr(path)} == before


def test_other_hard_links_keep_the_old_content(tmp_path: Path) -> None:
    path, other = tmp_path / "old", tmp_path / "other"
    path.write_text("old")
    os.link(path, other)
    atomic_write(path, b"new")
    assert (path.read_text(), other.read_text()) == ("new", "old")


Put = Callable[[Path], None]


def put_link(path: Path) -> None:
    path.symlink_to("target")


def put_pipe(path: Path) -> None:
    os.mkfifo(path, 0o666)


def put_file(path: Path) -> None:
    path.write_text("theirs")


@ROOT_ONLY
@pytest.mark.parametrize(
    ("put", "mode", "is_refused"),
    [
        (put_link, 0o1777, True),
        (put_link, 0o777, True),
        (put_link, 0o775, True),
        (put_link, 0o755, False),
        (put_pipe, 0o1777, True),
        (put_file, 0o1777, True),
        (put_file, 0o777, False),
    ],
)
def test_files_of_another_user_in_a_shared_folder_are_not_written_to(
    tmp_path: Path, put: Put, mode: int, is_refused: bool
) -> None:
    target, path = tmp_path / "target", tmp_path / "out"
    target.write_text("mine")
    put(path)
    os.lchown(path, SOMEBODY_ELSE, SOMEBODY_ELSE)
    tmp_path.chmod(mode)
    through = tmp_path / "through"
    through.symlink_to("out")  # the user's own link to it
    for name in (path, through):
        if is_refused:
            with pytest.raises(BadInputError, match=r"out is a (link|file) of another user"):
                atomic_write(name, b"new")
            with pytest.raises(BadInputError, match=r"out is a (link|file) of another user"):
                append_summary(name, "new")
        else:
            atomic_write(name, b"new")
    assert target.read_text() == ("mine" if is_refused or put is put_file else "new")


@ROOT_ONLY
def test_a_command_refuses_the_link_of_another_user_before_the_work(
    tmp_path: Path, diamond_profile: Path
) -> None:
    link = tmp_path / "out.json"
    link.symlink_to(diamond_profile)
    os.lchown(link, SOMEBODY_ELSE, SOMEBODY_ELSE)
    tmp_path.chmod(0o1777)
    argv = ("solve", str(diamond_profile), "-o", str(link), *SINGLE)
    done = subprocess.run([*PESTO, *argv], capture_output=True, text=True)
    assert done.returncode == 2
    assert "is a link of another user" in done.stderr


def test_a_circle_of_links_is_refused(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.symlink_to(two)
    two.symlink_to(one)
    with pytest.raises(BadInputError, match="leads in a circle"):
        atomic_write(one, b"new")


def test_a_link_to_a_missing_file_is_followed(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder/file")
    atomic_write(tmp_path / "link", b"new")
    assert (tmp_path / "folder" / "file").read_bytes() == b"new"


def temporaries(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.name.startswith(".out.")]


# Prints a line before the file is renamed, and waits for input before it continues.
WRITER = """
import os, sys
from pesto_cli.files import atomic_write
replace = os.replace
def wait(*args):
    print("ready", flush=True)
    if sys.stdin.readline():
        replace(*args)
    os._exit(9)
os.replace = wait
atomic_write(sys.argv[1], b"theirs")
"""
IN_ITS_OWN_NUMBERS = ["unshare", "--map-root-user", "--pid", "--fork", "--kill-child"]


@pytest.mark.parametrize("apart", [[], IN_ITS_OWN_NUMBERS], ids=["here", "other process numbers"])
def test_a_temporary_file_is_removed_only_after_its_writer_is_killed(
    tmp_path: Path, apart: list[str]
) -> None:
    if apart and (
        not shutil.which("unshare")
        or subprocess.run([*apart, "true"], capture_output=True).returncode
    ):
        pytest.skip("namespaces (unshare --map-root-user --pid) are not permitted here")
    path = tmp_path / "out"
    argv = [*apart, sys.executable, "-c", WRITER, str(path)]
    for ends_well in (True, False):
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            assert writer.stdin is not None
            assert writer.stdout.readline() == b"ready\n"
            atomic_write(path, b"mine")
            assert len(temporaries(tmp_path)) == 1
            if ends_well:
                writer.stdin.write(b"go on\n")
                writer.stdin.flush()
                assert writer.wait() == 9
            else:
                writer.kill()
        assert path.read_bytes() == (b"theirs" if ends_well else b"mine")
    # The process may outlive `unshare` by a moment.
    while temporaries(tmp_path):
        atomic_write(path, b"mine")


def test_temporary_files_are_not_removed_without_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(*args: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    path = tmp_path / "out"
    with monkeypatch.context() as without_end:
        without_end.setattr(os, "replace", lambda *args: 1 / 0)
        without_end.setattr(os, "unlink", lambda path: None)
        with pytest.raises(ZeroDivisionError):
            atomic_write(path, b"never whole")
    (left,) = temporaries(tmp_path)
    with monkeypatch.context() as without_locks:
        without_locks.setattr(fcntl, "flock", unsupported)
        atomic_write(path, b"new")
    assert temporaries(tmp_path) == [left]
    atomic_write(path, b"new")
    assert temporaries(tmp_path) == []


def test_files_with_similar_names_are_not_removed(tmp_path: Path) -> None:
    host = os.uname().nodename[:25]
    for name in (f".out.{host}.backup", f".out.{host}.1234.tmp", ".out.tmp"):
        (tmp_path / name).touch()
    atomic_write(tmp_path / "out", b"new")
    assert len(temporaries(tmp_path)) == 3


def test_writers_of_one_file_do_not_disturb_each_other(tmp_path: Path) -> None:
    """Each writer removes old files while the others are between two of their steps."""
    failures: list[BaseException] = []

    def write(letter: bytes) -> None:
        try:
            for _ in range(100):
                atomic_write(tmp_path / "out", letter * 1000)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=write, args=(letter,)) for letter in (b"a", b"b", b"c")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert (tmp_path / "out").read_bytes() in (b"a" * 1000, b"b" * 1000, b"c" * 1000)
    assert temporaries(tmp_path) == []


def shell(command: str, profile: Path) -> subprocess.CompletedProcess[str]:
    """Run a line of bash in the folder of a profile; $PESTO is `pesto`, $PROFILE its name."""
    program = profile.parent / "pesto"
    program.write_text(f"#!{sys.executable}\nfrom pesto_cli.cli import main; main()\n")
    program.chmod(0o755)
    environ = {**os.environ, "PESTO": str(program), "PROFILE": profile.name}
    return subprocess.run(
        ["bash", "-c", command], cwd=profile.parent, env=environ, capture_output=True, text=True
    )


FORM = '"format": "pesto-placement"'


def test_standard_output_has_only_the_data(diamond_profile: Path) -> None:
    done = shell("$PESTO solve $PROFILE -o /dev/stdout --strategy single | cat", diamond_profile)
    assert done.stdout.startswith("{\n" + FORM)
    assert done.stdout.endswith("}\n")
    assert "single" in done.stderr  # the table
    assert "strategy" in done.stderr


def test_standard_output_may_be_a_file_that_is_appended_to(diamond_profile: Path) -> None:
    command = "echo first > f; $PESTO solve $PROFILE -o /dev/stdout --strategy single >> f; cat f"
    assert shell(command, diamond_profile).stdout.startswith("first\n{\n" + FORM)


def test_json_and_the_data_cannot_both_go_to_standard_output(diamond_profile: Path) -> None:
    command = "$PESTO solve $PROFILE -o /dev/stdout --strategy single --json"
    done = shell(command, diamond_profile)
    assert (done.returncode, done.stdout) == (2, "")
    assert "JSON is printed there too; choose another path" in done.stderr


def test_a_descriptor_and_a_process_substitution_are_written_to(diamond_profile: Path) -> None:
    command = "$PESTO solve $PROFILE -o /dev/fd/3 --strategy single --json 3> f; cat f"
    done = shell(command, diamond_profile)
    assert '"strategy": "single"' in done.stdout
    assert FORM in done.stdout
    command = "$PESTO solve $PROFILE -o >(cat > f) --strategy single; wait $!; cat f"
    assert FORM in shell(command, diamond_profile).stdout


@pytest.mark.parametrize(
    ("redirection", "word"), [("7<&-", "is not open"), ("7< $PROFILE", "open for reading only")]
)
def test_a_descriptor_that_cannot_be_written_to_is_refused(
    diamond_profile: Path, redirection: str, word: str
) -> None:
    command = f"$PESTO solve $PROFILE -o /dev/fd/7 --strategy single {redirection}"
    done = shell(command, diamond_profile)
    assert done.returncode == 2
    assert word in done.stderr


def test_a_closed_output_pipe_ends_a_command_without_a_message(
    diamond_profile: Path,
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    argv = ("solve", str(diamond_profile), "-o", "/dev/stdout", *SINGLE, "--quiet")
    done = subprocess.run([*PESTO, *argv], stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")
