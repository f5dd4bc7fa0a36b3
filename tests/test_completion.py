"""Shell completion: the names and files that a shell offers at TAB."""

import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import click
import pytest
from conftest import Pesto

from pesto_cli import ilp, profile
from pesto_cli.cli import cli
from pesto_cli.cli.choices import SOLVERS, SOURCES, STRATEGIES
from pesto_cli.cli.command_line import TypedWord, typed_words
from pesto_cli.data.graph import OpGraph
from pesto_cli.data.plan import Choice, Plan
from pesto_cli.data.presets import PRESETS
from pesto_cli.data.problem import Problem
from pesto_cli.files import PlacementFile, Profile, write_placement, write_profile
from pesto_cli.files.plan import PlacedParts
from pesto_cli.strategies import STRATEGIES as REGISTERED
from pesto_cli.zoo import MODELS

# Completes a line as bash does at TAB, and prints the offered values.
TAB = """
source {script}
COMP_LINE=$1 COMP_POINT=${{#1}}
_pesto_completion {pesto}
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
PESTO = """#!{python}
import sys
from pesto_cli.cli import main
try:
    main()
finally:
    heavy = sys.modules.keys() & {{"tensorflow", "numba", "ortools", "pulp", "scipy"}}
    print(*heavy, file=open({loaded!r}, "a"))
"""

Tab = Callable[[str], list[str]]


@pytest.fixture
def tab(pesto: Pesto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tab:
    """A function that completes a line in bash with the script of `pesto completion bash`."""
    script, program, loaded = (tmp_path / name for name in ("script.sh", "pesto", "loaded"))
    script.write_text(pesto("completion", "bash").out)
    program.write_text(PESTO.format(python=sys.executable, loaded=str(loaded)))
    program.chmod(0o755)
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)

    def complete(line: str) -> list[str]:
        text = TAB.format(script=script, pesto=program)
        path = os.pathsep.join((str(tmp_path), os.environ["PATH"]))
        done = subprocess.run(
            ["bash", "--norc", "-c", text, "bash", line],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PATH": path},
        )
        assert done.stderr == ""
        assert set(loaded.read_text()) <= {"\n"}  # no heavy package was loaded
        return done.stdout.split("\n")[:-1]

    return complete


def test_commands_options_and_names_are_offered(tab: Tab) -> None:
    assert tab("pesto so") == ["solve"]
    assert tab("pesto solve x --solver ") == [*SOLVERS.builtin]
    assert tab("pesto compare x --strategies single,m-") == [
        "single,m-topo",
        "single,m-etf",
        "single,m-sct",
    ]
    # For bash `zoo:` is a word, and it replaces only the text after it.
    assert tab("pesto export zoo:RNN") == [
        "RNNLM-2-2048",
        "RNNLM-4-2048",
        "RNNLM-16-1024",
        "RNNLM-tiny",
    ]


def test_models_of_the_zoo_and_their_arguments_are_offered(tab: Tab) -> None:
    assert set(tab("pesto export zoo:")) == {*MODELS}
    # For bash `@` and `=` end a word, too.
    keys = ["batch=", "steps=", "vocabulary=", "learning_rate=", "scale=", "seed="]
    assert tab("pesto place zoo:RNNLM-2-2048@") == keys
    assert tab("pesto export zoo:rnnlm-tiny@l") == ["layers=", "learning_rate="]
    assert tab("pesto export zoo:RNNLM-2-2048@batch=8,steps=2,s") == [
        "2,scale=",
        "2,seed=",
    ]
    assert tab("pesto export zoo:RNNLM-2-2048@bath=8,") == [""]
    assert tab("pesto export zoo:RNN@") == [""]
    assert tab("pesto place zoo:RNNLM-tiny@batch=8,steps=2 -m a100x8") == ["a100x8-nvswitch"]


def test_files_are_offered_by_their_endings(tab: Tab) -> None:
    for name in ("a.profile.json", "a.placement.json", "a b.toml", "a.meta"):
        Path(name).touch()
    Path("app").mkdir()
    assert tab("pesto solve a") == ["a.profile.json", "app/"]
    assert tab("pesto simulate a.profile.json --placement ") == ["a.placement.json", "app/"]
    assert tab("pesto profile a.meta -m a") == ["a100x8-nvswitch", "a\\ b.toml", "app/"]
    assert tab("pesto solve ../work/a") == ["../work/a.profile.json", "../work/app/"]
    # If nothing matches, bash offers files itself.
    assert tab("pesto solve app/") == [""]


def test_ops_of_the_profile_are_offered_scope_by_scope(tab: Tab, diamond_profile: Path) -> None:
    assert tab(f"pesto explain {diamond_profile} p.json ") == ["a", "b", "c", "d"]


def test_parts_of_ops_are_offered_too(tab: Tab, diamond_profile: Path) -> None:
    parts = ["b.part_0", "b.part_1"]
    placed = PlacementFile(
        devices=["GPU:0"],
        names=[*"acd", *parts],
        device=[0] * 5,
        rank=[*range(5)],
        fingerprint=[],
        provenance={},
        predicted={},
        plan=Plan({"b": Choice("batch local", (1, 1))}),  # its warning is not shown
        parts=PlacedParts([*"abcd"], [0, 2, 3, 1, 1], [-1, -1, -1, 0, 1]),
    )
    write_placement("p.json", placed)
    known = ["a", "b", *parts, "c", "d"]
    assert tab(f"pesto explain {diamond_profile} p.json ") == known
    assert tab(f"pesto explain {diamond_profile} p.json b.") == [*parts]


def test_offered_names_are_those_of_the_registries() -> None:
    assert tuple(REGISTERED.builtin) == STRATEGIES.builtin
    assert tuple(ilp.SOLVERS.builtin) == SOLVERS.builtin
    assert tuple(profile.SOURCES.builtin) == SOURCES.builtin
    assert {*SOURCES.with_argument} < {*SOURCES.builtin}


@pytest.mark.parametrize(("shell", "word"), [("zsh", "compdef"), ("fish", "--command pesto")])
def test_zsh_and_fish_have_a_script_too(pesto: Pesto, shell: str, word: str) -> None:
    printed = pesto("completion", shell)
    assert printed.code == 0
    assert word in printed.out
    assert "_PESTO_COMPLETE" in printed.out


def test_every_option_is_described() -> None:
    """Zsh lists options without a description separately."""
    undescribed = [
        (name, param.name)
        for name, command in each_command(cli)
        for param in command.params
        if isinstance(param, click.Option) and not param.help
    ]
    assert undescribed == []


def each_command(group: click.Group) -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        yield name, command
        if isinstance(command, click.Group):
            yield from each_command(command)


def test_fish_splits_a_line_only_once(pesto: Pesto) -> None:
    script = pesto("completion", "fish").out
    assert 'string split -m 1 "," -- $completion' in script


@pytest.mark.skipif(shutil.which("fish") is None, reason="there is no fish")
def test_fish_keeps_commas_in_values_and_descriptions(tab: Tab, pesto: Pesto) -> None:
    Path("pesto.fish").write_text(pesto("completion", "fish").out)

    def complete(line: str) -> list[str]:
        text = f"source pesto.fish; complete -C'{line}'"
        env = {**os.environ, "PATH": os.pathsep.join(("..", os.environ["PATH"])), "HOME": "."}
        done = subprocess.run(["fish", "-c", text], capture_output=True, text=True, env=env)
        return done.stdout.splitlines()

    assert complete("pesto compare x --strategies single,me") == ["single,metis"]
    assert (
        "--constraints\tConstraints (TOML): pin, forbid, together, headroom, split, whole."
        in complete("pesto solve --")
    )


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_commands_of_the_help_work_in_an_empty_home(
    tab: Tab, pesto: Pesto, shell: str, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    lines = pesto("completion", "--help").out.split(f"{shell}:")[1].splitlines()[:2]
    commands = [line.strip() for line in lines if "fpath" not in line]
    env = {"HOME": str(home), "PATH": os.pathsep.join((str(tmp_path), os.environ["PATH"]))}
    env["PYTHONPATH"] = os.pathsep.join(sys.path)
    subprocess.run(["sh", "-ec", "\n".join(commands)], check=True, env=env)
    (written,) = (path for path in home.rglob("*pesto*") if path.is_file())
    assert written.read_text() == pesto("completion", shell).out


def test_every_command_is_described(tab: Tab) -> None:
    assert set(tab("pesto ")) == set(cli.commands)


# Names with special characters; each begins with a different letter.
NAMES = (
    "x$(touch${IFS}PWNED)`touch PWNED`",
    "s p  a'c\"e\\n%s\\",
    "z;touch PWNED;>PWNED&#*[o]?{a,b}~<|",
    "c:o=l@o:n $HOME ünï",
    "!history!!",
)
# Completes as pesto does; as a command, it records its arguments.
RECORDER = """#!/bin/sh
[ -n "$_PESTO_COMPLETE" ] && exec {python} ./program.py
printf '%s\\0' "$@" 'end of the command' >> record
"""
SHELLS = {
    "bash": (("bash", "--norc", "--noprofile", "-i"), ". ./script"),
    "zsh": (("zsh", "-f", "-i"), "autoload -Uz compinit; compinit -u -d dump; . ./script"),
    "fish": (("fish", "--no-config", "-i"), "source script"),
}
# The limit for all lines of a shell; a shell that hangs is ended.
DEADLINE_S = 300
END = "end of the command\0"


def typed_into(shell: str, lines: Sequence[str], folder: Path) -> list[list[str]]:
    """Return the arguments of the commands that a shell runs when lines with TAB are typed."""
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell}")
    record = folder / "record"
    record.touch()
    (folder / "pesto").write_text(RECORDER.format(python=sys.executable))
    (folder / "pesto").chmod(0o755)
    (folder / "program.py").write_text(
        "import sys; sys.argv[0] = 'pesto'; from pesto_cli.cli import main; main()"
    )
    argv, begin = SHELLS[shell]
    path = os.pathsep.join((str(folder), os.environ["PATH"]))
    environ = {**os.environ, "PATH": path, "HOME": str(folder), "LC_ALL": "C.UTF-8"}
    environ |= {"TERM": "xterm", "PYTHONPATH": os.pathsep.join(sys.path)}
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(folder)
        os.execvpe(argv[0], argv, environ)
    shown, until = b"", time.monotonic() + DEADLINE_S
    try:
        os.write(terminal, f"{begin}\n".encode())
        for count, line in enumerate(lines, 1):
            os.write(terminal, line.encode() + b"\t\n")
            while record.read_text().count(END) < count:
                assert time.monotonic() < until, shown.decode(errors="replace")
                if select.select([terminal], [], [], 0.05)[0]:
                    shown += os.read(terminal, 65536)
    finally:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        os.close(terminal)
    return [command.split("\0")[:-1] for command in record.read_text().split(END)[:-1]]


def write_ops(path: Path, names: Sequence[str]) -> None:
    problem = Problem.build(
        OpGraph.build([*names]), {"GPU": [1.0] * len(names)}, PRESETS["v100x2-nvlink"]
    )
    write_profile(path, Profile(problem))


@pytest.mark.parametrize("shell", SHELLS)
def test_a_completed_name_is_quoted_so_that_it_reaches_pesto_unchanged(
    pesto: Pesto, tmp_path: Path, shell: str
) -> None:
    write_ops(tmp_path / "x.profile.json", NAMES)
    (tmp_path / "script").write_text(pesto("completion", shell).out)
    typed = [
        (f"pesto explain x.profile.json p.json {quote}{name[0]}", name)
        for name in NAMES
        for quote in ("", "'", '"')[: 1 if name[0] in "!c" else 3]
    ]
    found = typed_into(shell, [line for line, _ in typed], tmp_path)
    assert [argv[3] for argv in found] == [name for _, name in typed]
    assert not (tmp_path / "PWNED").exists()


@pytest.mark.parametrize("shell", SHELLS)
def test_names_that_a_shell_could_misread_are_not_offered(
    pesto: Pesto, tmp_path: Path, shell: str
) -> None:
    names = ("a\nplain,b", "c\td", "e\x1b[2J", "f\u202eg", "--json", "only")
    write_ops(tmp_path / "x.profile.json", names)
    (tmp_path / "script").write_text(pesto("completion", shell).out)
    before = "pesto explain x.profile.json p.json "
    found = typed_into(shell, [before, f"{before}a", f"{before}-- --"], tmp_path)
    assert found == [
        ["explain", "x.profile.json", "p.json", "only"],
        ["explain", "x.profile.json", "p.json", "a"],
        ["explain", "x.profile.json", "p.json", "--", "--json"],
    ]


@pytest.mark.parametrize(
    ("line", "word", "value", "completed"),
    [
        ("a sp", TypedWord("sp"), "sp ace", r"sp\ ace"),
        (r"a sp\ ", TypedWord("sp "), "sp ace", r"sp\ ace"),
        ("a  ", TypedWord(""), "sp ace", r"sp\ ace"),
        ("a zoo:R", TypedWord("zoo:R", num_kept=4), "zoo:R N", r"R\ N"),
        ('a "zoo:R', TypedWord("zoo:R", '"'), "zoo:R`N", r"zoo:R\`N"),
        ("a b:'c", TypedWord("b:c", "'", num_kept=2), "b:c'd", r"c'\''d"),
        ("""a "s"'p'""", TypedWord("sp"), "sp ace", r"sp\ ace"),
        ("a ~/x", TypedWord("~/x", has_tilde=True), "~/x y", r"~/x\ y"),
        (r"a \~", TypedWord("~"), "~root", r"\~root"),
        ('a "x!', TypedWord("x!", '"'), "x!!", """x"'!'""'!'\""""),
        ("a x\\", TypedWord("x"), "x$(y)", r"x\$\(y\)"),
    ],
)
def test_bash_inserts_text_with_the_quotes_of_the_word(
    line: str, word: TypedWord, value: str, completed: str
) -> None:
    before, found = typed_words(line, ":")
    assert (before, found) == (["a"], word)
    assert found.completed(value) == completed
