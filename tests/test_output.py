"""Output of every command: results on stdout, the rest on stderr, with --json and --quiet."""

import json
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from conftest import Pesto

from pesto_cli import api
from pesto_cli.cli import cli
from pesto_cli.data.graph import OpGraph
from pesto_cli.data.presets import PRESETS
from pesto_cli.data.problem import Problem
from pesto_cli.files import Profile, write_profile

# Commands without results: a server, and a script for a shell.
SHOW_NOTHING = {"worker", "completion"}
QUICK = "--time-limit 0.2 --deterministic"
# Fast commands, each with its arguments in a folder of small files.
RUNS = {
    "coarsen": "x.profile.json -n 2 -o coarse.json",
    "solve": f"x.profile.json -o y.placement.json {QUICK}",
    "simulate": "x.profile.json --placement x.placement.json --random-orders 2",
    "compare": f"x.profile.json --strategies single,expert {QUICK}",
    "explain": "x.profile.json x.placement.json",
    "explain op": "x.profile.json x.placement.json b",
    "explain pattern": "x.profile.json x.placement.json *",
    "diff": "x.placement.json x.placement.json",
    "comm": "--from x.csv -o x.comm.json",
}
# These print their result even with --quiet.
QUIET_WITH_RESULT = {"compare", "explain", "explain op", "explain pattern"}


def commands(group: click.Group = cli, above: str = "") -> Iterator[tuple[str, click.Command]]:
    """Yield all commands by name; those of a group as `bench paper`."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, f"{above}{name} ")
        else:
            yield f"{above}{name}", command


COMMANDS = dict(commands())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_json_and_quiet(name: str) -> None:
    command = COMMANDS[name]
    flags = {
        option: param.is_flag
        for param in command.params
        if isinstance(param, click.Option)
        for option in param.opts
    }
    if name in SHOW_NOTHING:
        assert not {"--json", "--quiet"} & flags.keys()
    else:
        assert flags["--json"]
        assert flags["--quiet"]
    assert command.help


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder with the files of RUNS."""
    monkeypatch.chdir(tmp_path)
    graph = OpGraph.build(["a", "b"], control_edges=[(0, 1)])
    profile = Profile(Problem.build(graph, {"GPU": [10.0, 20.0]}, PRESETS["v100x2-nvlink"]))
    write_profile(Path("x.profile.json"), profile)
    placed = api.placement(profile, api.solve(profile, "single"))
    api.write_placement(Path("x.placement.json"), placed)
    rows = [f"GPU,GPU,{size},{10 + size / 1000}" for size in (1, 1000, 50_000, 10**6)]
    Path("x.csv").write_text("\n".join(["src_kind,dst_kind,bytes,us", *rows]))
    return tmp_path


@pytest.mark.parametrize("name", RUNS)
def test_json_is_all_of_stdout_and_quiet_leaves_stderr_empty(
    pesto: Pesto, folder: Path, name: str
) -> None:
    argv = (name.split()[0], *RUNS[name].split())
    plain = pesto(*argv)
    assert plain.code == 0, plain.err
    assert plain.out.strip()
    as_json = pesto(*argv, "--json", "--quiet")
    json.loads(as_json.out)
    assert as_json.err == ""
    quiet = pesto(*argv, "--quiet")
    assert quiet.err == ""
    assert bool(quiet.out.strip()) == (name in QUIET_WITH_RESULT)
    # There are no control codes for a terminal.
    assert not {"\r", "\x1b"} & set(plain.out + plain.err + as_json.out + quiet.out)


def test_a_graph_is_exported_placed_and_checked_in_json(pesto: Pesto, folder: Path) -> None:
    def printed(*argv: str) -> dict[str, object]:
        outcome = pesto(*argv, "--json")
        assert (outcome.code, outcome.err) == (0, "")
        found: dict[str, object] = json.loads(outcome.out)
        return found

    exported = printed("export", "zoo:RNNLM-tiny", "-o", "r.meta")
    assert exported["output"] == "r.meta"
    assert exported["fetches"] == ["train_op", "loss/mean:0"]
    printed("profile", "r.meta", "-m", "v100x2-nvlink", "-o", "r.profile.json")
    printed("solve", "r.profile.json", "-o", "r.placement.json", "--strategy", "expert")
    applied = printed("apply", "r.meta", "r.placement.json", "-o", "placed.meta")
    assert 0 < int(str(applied["num_nodes_placed"])) <= int(str(exported["num_nodes"]))
    assert int(str(applied["num_control_edges"])) > 0
