"""Find and run the shell blocks of the documentation, and compare their output with the pages.

Every command stands in a block fenced as `console`. Lines that begin with `$ ` are commands. After
a command comes its output, including standard error. A line that ends in a backslash continues in
the next line. A command must succeed, unless the next one is `echo $?`. The blocks of a page run in
order in one new folder, which contains `examples/`. Blocks of other languages with a `title` are
written to files of this name.

A comment on the line before a block controls how it is run:

    <!-- slow -->             takes more than about five seconds: run only by `make docs-check`
    <!-- shape -->            numbers may differ, as in measured times
    <!-- not run: REASON -->  cannot run here; only its options are checked

and in the first lines of a page:

    <!-- after: PAGE -->      start with the files that the blocks of another page have written
    <!-- in a clone -->       the folder is a copy of the repository, with `pesto` as its package

`pip install` installs into the folder `packages/` of the page, which is on the Python path.

Times in seconds, widths of columns and names of temporary files in the output may always differ.
The clone is shown as `~/pesto`. A line `...` matches any lines. Under `shape`, lines that differ
only in numbers count as one line, also with `...` between them. A command without output in the
page only has to succeed.

    python tests/shell_blocks.py [--update] [PAGE]...      run all blocks, also slow ones
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from warm_python import warm_commands

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
TIME_LIMIT_S = 1800
# Settings of `pip install`: it builds with installed packages, and does not use the network.
INTO_PACKAGES = {
    "PIP_NO_BUILD_ISOLATION": "0",  # for pip, 0 means no isolation
    "PIP_NO_DEPS": "1",
    "PIP_NO_INDEX": "1",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_ROOT_USER_ACTION": "ignore",
}
IN_A_CLONE = ("pesto_cli", "examples", "tests")
FENCE = re.compile(
    r"^(?:<!-- (?P<marks>[^\n]*) -->\n)?"
    r"^```(?P<language>\w*)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
# Printed only until kernels are cached.
COMPILING = re.compile(r"^compiling kernels, once.*\n", re.MULTILINE)
MARKS = re.compile(r"slow|shape|slow, shape|not run: .{10,}")


@dataclass(frozen=True)
class Command:
    """A command, and its output in the page."""

    text: str
    output: str


@dataclass(frozen=True)
class Block:
    """A fenced block. line: the line of its fence, from 1. span: the position of its body."""

    page: Path
    line: int
    span: tuple[int, int]
    language: str
    title: str
    marks: str
    body: str

    @property
    def name(self) -> str:
        """The page and line of the block."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def commands(self) -> list[Command]:
        """The commands of the block; its body begins with a command."""
        found: list[Command] = []
        for line in self.body.splitlines():
            last = found[-1] if found else Command("\\", "")
            if line.startswith("$ "):
                found.append(Command(line[2:], ""))
            elif last.text.endswith("\\") and not last.output:
                found[-1] = replace(last, text=f"{last.text}\n{line}")
            else:
                found[-1] = replace(last, output=f"{last.output}{line}\n")
        return found

    @property
    def is_shell(self) -> bool:
        """Whether the block has shell commands."""
        return self.language == "console"

    @property
    def is_run(self) -> bool:
        """Whether the commands of the block can be run."""
        return self.is_shell and not self.marks.startswith("not run")

    @property
    def is_slow(self) -> bool:
        """Whether the block is only run by `make docs-check`."""
        return "slow" in self.marks.split(", ")


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
    text = page.read_text()
    return [
        Block(
            page,
            text.count("\n", 0, found.start("language")) + 1,
            found.span("body"),
            found["language"],
            found["title"] or "",
            _marks(found["marks"] or ""),
            found["body"],
        )
        for found in FENCE.finditer(text)
    ]


def _marks(comment: str) -> str:
    """Return the comment before a block if it is a mark, otherwise an empty text.

    Raises:
        ValueError: the comment begins with the word of a mark, but is not a mark.
    """
    if MARKS.fullmatch(comment):
        return comment
    if re.match("slow|shape|not run", comment):
        raise ValueError(f"the mark {comment!r} is none of those of tests/shell_blocks.py")
    return ""


@dataclass(frozen=True)
class Ran:
    """A command of a block, with its output and exit code."""

    block: Block
    command: Command
    output: str
    code: int | None
    may_fail: bool

    @property
    def problem(self) -> str:
        """The difference from the page, or an empty text."""
        where = f"{self.block.name}: $ {self.command.text}"
        if self.code is None:
            return f"{where}\ndid not end:\n{self.output}"
        if self.code != 0 and not self.may_fail:
            return f"{where}\nexit code {self.code}:\n{self.output}"
        if not self.command.output or matches(self.command.output, self.output, self.block.marks):
            return ""
        return f"{where}\nthe page shows:\n{self.command.output}\nit printed:\n{self.output}"


def matches(shown: str, printed: str, marks: str = "") -> bool:
    """Whether the output in a page matches the printed output."""
    as_shape = "shape" in marks.split(", ")
    expected = "".join(
        r"(?:.*\n)*?" if line == "..." else re.escape(line) + r"\n"
        for line in _plain(shown, as_shape)
    )
    found = "".join(f"{line}\n" for line in _plain(printed, as_shape))
    return re.fullmatch(expected, found) is not None


def _plain(text: str, as_shape: bool) -> list[str]:
    """Return lines without the parts that may differ."""
    text = re.sub(r"─+", "─", text)
    text = re.sub(r"\b\d+(\.\d+)? s\b", "TIME", text)
    text = re.sub(r"/tmp/tmp[.\w]+", "TEMPORARY", text)
    if as_shape:
        text = re.sub(r"^ *TIME .* gap .*$", "PROGRESS", text, flags=re.MULTILINE)
        text = re.sub(r"[-+]?(0x1\.[0-9a-f]+p[-+]\d+|\d[\d,.]*(e[-+]?\d+)?)", "#", text)
        text = re.sub(r"\b[um]s\b", "us", text)
    lines = [" ".join(line.split()) for line in text.strip("\n").splitlines()]
    return _collapse(lines) if as_shape else lines


def _collapse(lines: list[str]) -> list[str]:
    """Return lines with equal neighbours as one line, also where `...` stands between them."""
    kept: list[str] = []
    for line in lines:
        if kept[-2:] == [line, "..."]:
            kept.pop()
        elif kept[-1:] != [line]:
            kept.append(line)
    return kept


class Runner:
    """Runs pages, each once and in its own folder."""

    def __init__(self, commands: Path, home: Path, *, slow: bool) -> None:
        """commands: a folder for PATH. home: for the pages' folders. slow: run slow blocks too."""
        self._commands, self._home, self._slow = commands, home, slow
        self._done: dict[Path, list[Ran]] = {}

    def run(self, page: Path) -> list[Ran]:
        """Run every command of a page that can be run."""
        if page not in self._done:
            self._done[page] = list(self._run(page, self._folder(page)))
        return self._done[page]

    def _folder(self, page: Path) -> Path:
        """Create the folder in which the blocks of a page run."""
        folder = self._home / page.relative_to(ROOT)
        if before := re.search(r"^<!-- after: (\S+) -->$", page.read_text(), re.MULTILINE):
            self.run(DOCS / before[1])
            shutil.copytree(self._home / "docs" / before[1], folder, symlinks=True)
            (folder / "examples").unlink()
        folder.mkdir(parents=True, exist_ok=True)
        if _in_a_clone(page):
            for name in IN_A_CLONE:
                shutil.copytree(ROOT / name, folder / name)
        else:
            (folder / "examples").symlink_to(ROOT / "examples")
        return folder

    def _run(self, page: Path, folder: Path) -> Iterator[Ran]:
        for block in blocks(page):
            if block.title:
                (folder / block.title).parent.mkdir(parents=True, exist_ok=True)
                (folder / block.title).write_text(block.body)
            elif block.is_run and (self._slow or not block.is_slow):
                yield from self._run_block(block, folder)

    def _run_block(self, block: Block, folder: Path) -> Iterator[Ran]:
        """Run the commands of a block in one shell, so that `$?` refers to the command before."""
        commands = block.commands
        script = "\n".join(
            f"{command.text}\nstatus=$?; printf '\\036%s\\036' $status; (exit $status)"
            for command in commands
        )
        environment = {
            **{name: os.environ[name] for name in ("HOME", "LANG") if name in os.environ},
            "PATH": f"{self._commands}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "COLUMNS": "100",
            **INTO_PACKAGES,
            "PIP_TARGET": str(folder / "packages"),
            "PYTHONPATH": f"{'.:' if _in_a_clone(block.page) else ''}{folder / 'packages'}",
        }
        shell = subprocess.Popen(
            ["bash", "-c", script],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            printed, _ = shell.communicate(timeout=TIME_LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(shell.pid, signal.SIGKILL)
            printed, _ = shell.communicate()
        printed = printed.replace(str(folder), ".").replace(str(ROOT), "~/pesto")
        parts = [*printed.split("\036"), *([""] * 2 * len(commands))]
        for index, command in enumerate(commands):
            output, code = COMPILING.sub("", parts[2 * index]), parts[2 * index + 1]
            following = commands[index + 1].text if index + 1 < len(commands) else ""
            may_fail = following == "echo $?"
            yield Ran(block, command, output, int(code) if code else None, may_fail)


def _in_a_clone(page: Path) -> bool:
    return "<!-- in a clone -->" in page.read_text()


def update(page: Path, done: list[Ran]) -> None:
    """Write new outputs into a page where they differ, except those of failed commands."""
    text = page.read_text()
    for block in reversed(blocks(page)):
        ran = [each for each in done if each.block.line == block.line]
        if any(each.problem for each in ran):
            body = "".join(f"$ {each.command.text}\n{shown_next(each)}" for each in ran)
            body = re.sub(r"\n\n+$", "\n", body)
            text = text[: block.span[0]] + body + text[block.span[1] :]
    page.write_text(text)


def shown_next(ran: Ran) -> str:
    """Return the output of a command for the page."""
    is_new = ran.problem and (ran.code == 0 or ran.may_fail)
    return ran.output.strip("\n") + "\n\n" if is_new else ran.command.output


def main() -> int:
    """Run whole pages, and print the differences."""
    updating = "--update" in sys.argv
    pages = [Path(name).resolve() for name in sys.argv[1:] if name != "--update"] or PAGES
    num_problems = num_commands = 0
    with warm_commands() as commands, tempfile.TemporaryDirectory() as home:
        runner = Runner(commands, Path(home), slow=True)
        for page in pages:
            done = runner.run(page)
            problems = [each.problem for each in done if each.problem]
            num_commands, num_problems = num_commands + len(done), num_problems + len(problems)
            print(
                f"{page.relative_to(ROOT)}: {len(done)} commands", *problems, sep="\n", flush=True
            )
            if updating:
                update(page, done)
    skipped = [each for page in pages for each in blocks(page) if each.is_shell and not each.is_run]
    for block in skipped:
        print(f"{block.name}: {block.marks}")
    print(f"{num_commands} commands run, {num_problems} differ from the pages")
    return 1 if num_problems else 0


if __name__ == "__main__":
    sys.exit(main())
