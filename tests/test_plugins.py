"""Packages that add strategies, solvers, cost sources and moves; and broken packages."""

import json
import os
import sys
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Pesto
from installed_packages import install, install_example
from numba import typeof
from placers import PLACERS
from random_problems import random_problem

from pesto_cli import api, doctor, ilp
from pesto_cli.cli.choices import SOLVERS, SOURCES, STRATEGIES
from pesto_cli.data.limits import Limits
from pesto_cli.data.problem import Problem
from pesto_cli.data.result import SolveStatus
from pesto_cli.data.specs import Operand, OpSpec
from pesto_cli.doctor.checks import plug_in_probes
from pesto_cli.errors import BadInputError, EnvironmentFailedError, InfeasibleError
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.files import read_placement, read_profile
from pesto_cli.graphdef.containers import write_meta_graph
from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.ilp.search import SolverAnswer, SolverRequest
from pesto_cli.ilp.timetable import Timetable
from pesto_cli.plugins import GROUPS, PlugIn, Registry, called_with, plug_ins, registry_of
from pesto_cli.refine import moves, refine
from pesto_cli.refine.anneal import Chain
from pesto_cli.refine.families import families_of_nodes
from pesto_cli.refine.moves import MOVES
from pesto_cli.sharding.rules import all_alternatives, alternatives, has_rule

QUICK = ("--time-limit", 1, "--quiet")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which this process and its subprocesses find packages."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), *filter(None, sys.path)]))
    monkeypatch.syspath_prepend(folder)
    return folder


@pytest.fixture
def example(site: Path) -> Path:
    install_example(site)
    return site


def solver_of(site: Path, name: str, text: str) -> str:
    """Make a package with a solver of this name: the function `solve` of this module text."""
    module = name.replace("-", "_")
    install(site, f"by-{name}", "2.0", {"pesto.solvers": {name: f"{module}:solve"}}, {module: text})
    return name


@pytest.fixture
def failing(site: Path) -> str:
    return solver_of(site, "failing", "raise ImportError('no such library')")


def test_every_group_has_its_registry() -> None:
    for group in GROUPS:
        registry = registry_of(PlugIn(group, "", "", ""))
        assert registry.group == group
        assert registry.builtin


def test_the_example_adds_one_of_each(example: Path) -> None:
    assert [each.group for each in plug_ins()] == [*GROUPS]


# Names are shown without loading plug-ins.


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("solve", ["last-device (pesto-example 0.1)", "one-device (pesto-example 0.1)"]),
        ("solve", ["Search moves of other packages: home (pesto-example 0.1)."]),
        ("compare", ["last-device (pesto-example 0.1)", "one-device (pesto-example 0.1)"]),
        ("profile", ["constant (pesto-example 0.1)"]),
        ("run", ["last-device (pesto-example 0.1)"]),
    ],
)
def test_help_names_plug_ins_with_their_package(
    pesto: Pesto,
    example: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    words: list[str],
) -> None:
    monkeypatch.delitem(sys.modules, "pesto_example", raising=False)
    shown = pesto(command, "--help")
    text = "".join(shown.out.split())  # the help text is wrapped at any place
    assert all("".join(word.split()) in text for word in words), shown.out
    assert "pesto_example" not in sys.modules


@pytest.mark.parametrize("choices", [STRATEGIES, SOLVERS, SOURCES], ids=lambda each: each.group)
def test_names_of_plug_ins_are_offered_at_tab(example: Path, choices: Any) -> None:
    added = [each.name for each in plug_ins() if each.group == choices.group]
    assert [name.rstrip(":") for name in choices.names()] == [*choices.builtin, *added]


def test_names_and_membership_load_nothing(site: Path, failing: str, pesto: Pesto) -> None:
    assert failing in ilp.SOLVERS
    assert [*ilp.SOLVERS] == ["cpsat", "cbc", "highs", failing]
    assert len(ilp.SOLVERS) == 4
    assert pesto("solve", "--help").err == ""


# Plug-ins work like built-in objects.


def test_a_strategy_is_solved_and_compared_by_name(
    pesto: Pesto, example: Path, diamond_profile: Path, tmp_path: Path
) -> None:
    placement = tmp_path / "p.placement.json"
    options = ("--strategy", "last-device", *QUICK)
    assert pesto("solve", diamond_profile, "-o", placement, *options).code == 0
    placed = read_placement(placement)
    assert {placed.devices[device] for device in placed.device} == {"GPU:1"}
    assert placed.provenance["parameters"] == {"is_last": True, "seed": 0}
    rows = json.loads(pesto("compare", diamond_profile, "--json", *QUICK).out)
    assert [row["strategy"] for row in rows] == [*PLACERS, "last-device"]


def test_a_solver_is_chosen_by_name(
    pesto: Pesto, example: Path, diamond: Problem, diamond_profile: Path, tmp_path: Path
) -> None:
    found = ilp.solve_ilp(diamond, Limits(), solver="one-device")
    assert (found.status, found.objective_us) == (SolveStatus.FEASIBLE, 22)
    placement = tmp_path / "p.placement.json"
    options = ("--solver", "one-device", *QUICK)
    assert pesto("solve", diamond_profile, "-o", placement, *options).code == 0
    assert read_placement(placement).provenance["parameters"]["solver"] == "one-device"


def test_a_cost_source_gets_its_argument(pesto: Pesto, example: Path, tmp_path: Path) -> None:
    tf1 = tensorflow().compat.v1
    with tf1.Graph().as_default() as graph:
        product = tf1.matmul(tf1.ones([8, 8]), tf1.ones([8, 8]), name="product")
        meta = tf1.train.export_meta_graph(graph=graph)
    meta.collection_def["train_op"].node_list.value[:] = [product.name]
    write_meta_graph(tmp_path / "g.meta", meta)
    profile = tmp_path / "g.profile.json"
    options = ("-m", "v100x2-nvlink", "-o", profile, "--source", "constant:5")
    done = pesto("profile", tmp_path / "g.meta", *options)
    assert done.code == 0
    read = read_profile(profile)
    assert read.provenance["notes"] == ["every op takes 5 us."]
    times = dict(zip(read.problem.graph.names, read.problem.min_duration_us, strict=True))
    assert times["product"] == 5
    assert read.provenance["source"] == "constant:5"
    refused = pesto("profile", tmp_path / "g.meta", *options[:-1], "constant:much")
    assert refused.code == 5
    assert "cost source 'constant' of pesto-example 0.1 (pesto_example:constant) failed: " in (
        refused.err
    )
    assert "ValueError: could not convert string to float: 'much'" in refused.err


def test_a_search_move_takes_part_in_every_search(
    pesto: Pesto, example: Path, diamond_profile: Path, tmp_path: Path
) -> None:
    solve = ("solve", diamond_profile, "-o", tmp_path / "p.json", "--time-limit", 1)
    done = pesto(*solve)
    assert done.code == 0
    assert "compiling search moves of other packages: home ..." in done.err
    assert "search move" not in pesto(*solve, "--quiet").err


@pytest.mark.parametrize(
    ("propose", "words"),
    [
        ("njit(lambda neighbourhood, state, random, change: state.nothing)", "attribute 'nothing'"),
        ("njit(lambda neighbourhood: None)", "4 argument types given, but function takes 1"),
        ("print", "builtins.print cannot be compiled; fix it or"),
        ("3", "it is not a function of numba.njit"),
    ],
)
def test_a_search_move_that_cannot_be_compiled_is_left_out(
    pesto: Pesto,
    site: Path,
    diamond_profile: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    propose: str,
    words: str,
) -> None:
    imports = "from numba import njit\nfrom pesto_cli.refine.moves import Move\n"
    module = f"move_{len(propose)}"
    modules = {module: f"{imports}M = Move({propose}, 1)"}
    install(site, f"by-{module}", "1", {"pesto.moves": {"m": f"{module}:M"}}, modules)
    assert MOVES.usable() == MOVES.builtin
    (warning,) = caplog.messages
    assert warning.startswith(f"left out: search move 'm' of by-{module} 1 ({module}:M) cannot be ")
    assert words in warning
    assert pesto("solve", diamond_profile, "-o", tmp_path / "p.json", *QUICK).code == 0


def test_moves_are_compiled_for_the_types_that_searches_use() -> None:
    problem = random_problem(1, 14)
    chain = Chain(Simulator(problem), families_of_nodes(problem), (0,), MOVES.builtin)
    known = (chain._neighbourhood, chain._state, chain._random, chain._change)
    assert [*map(typeof, known)] == [*map(typeof, moves._arguments())]


def test_a_search_move_that_fails_ends_the_search_and_is_named(
    site: Path, diamond: Problem
) -> None:
    text = """
from numba import njit
from pesto_cli.refine.moves import Move

@njit
def broken(neighbourhood, state, random, change):
    raise ValueError("no such unit")

MOVE = Move(broken, weight=1e6)
"""
    install(site, "by-m", "1", {"pesto.moves": {"m": "by_m:MOVE"}}, {"by_m": text})
    simulator, limits = Simulator(diamond), Limits(time_limit_s=1, workers=1, deterministic=True)
    start = simulator.list_schedule(np.ones(diamond.num_ops, dtype=np.int64), np.zeros(4))
    words = r"a search move failed: ValueError: no such unit \(by_m.py, line 7\)"
    with pytest.raises(EnvironmentFailedError, match=words):
        refine(simulator, [start], limits)


SCALE = OpSpec("Example>Scale", (), (Operand((6, 2), "float32"),), (Operand((6, 2), "float32"),))


def test_a_sharding_rule_splits_the_ops_of_its_type(example: Path) -> None:
    all_alternatives.cache_clear()
    assert [(each.name, each.size) for each in alternatives(SCALE)] == [
        ("rows", 6),
        ("replicated", None),
    ]
    assert has_rule("Example>Scale")


def test_a_sharding_rule_that_fails_is_named(site: Path) -> None:
    rules = {"Example>Scale": "by_r:wrong", "Example>None": "by_r:nothing"}
    text = "def wrong(spec): return 1 / 0\ndef nothing(spec): return [None]"
    install(site, "by-r", "1", {"pesto.rules": rules}, {"by_r": text})
    all_alternatives.cache_clear()
    words = r"rule 'Example>Scale' of by-r 1 \(by_r:wrong\) failed: ZeroDivisionError"
    with pytest.raises(EnvironmentFailedError, match=words):
        alternatives(SCALE)
    with pytest.raises(EnvironmentFailedError, match="returned a NoneType; a Alternative was"):
        alternatives(replace(SCALE, type="Example>None"))


@pytest.mark.parametrize(
    ("alternatives_of_rule", "message"),
    [
        ("way('rows', 6, (Split(0),) * 2)", "'rows' has 2 layouts of inputs; the op has 1 inputs"),
        ("way('rows', 6, (Split(2),))", r"'rows' splits axis 2 of a shape \[6, 2\]"),
        ("way('rows', 4, (Split(0),))", "a size of 4, and splits an axis of 6, which is not a"),
        ("way('rows', 6, (Split(0),), lambda *_: 7)", "returned a int; a Program was expected"),
        ("way(5, 6, (Split(0),))", "different texts were expected"),
        ("way('rows', 6, (Split(0),)), way('rows', 2, (WHOLE,))", "different texts were expected"),
    ],
)
def test_alternatives_that_do_not_fit_the_op_are_refused(
    site: Path, alternatives_of_rule: str, message: str
) -> None:
    module = site.parent.name  # another one in each case
    text = f"""
from pesto_cli.sharding.alternative import Alternative
from pesto_cli.sharding.layouts import Split, WHOLE

def way(name, size, inputs, program=Alternative.program):
    return Alternative(name, size, inputs, (Split(0),), program=program)

def rule(spec):
    return [{alternatives_of_rule}]
"""
    rules = {"Example>Scale": f"{module}:rule"}
    install(site, "by-r", "1", {"pesto.rules": rules}, {module: text})
    all_alternatives.cache_clear()
    with pytest.raises(EnvironmentFailedError, match=message):
        alternatives(SCALE)


def test_doctor_lists_plug_ins_with_their_package(
    pesto: Pesto, example: Path, failing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = import_module("pesto_cli.doctor.checks")
    monkeypatch.setattr(checks, "_probes", plug_in_probes)  # the other probes take long
    monkeypatch.setattr(doctor, "checks", cache(doctor.checks))
    done = pesto("doctor", "--json")
    assert done.code == 0
    rows = {row["name"]: row for row in json.loads(done.out)}
    for name in ("strategy last-device", "solver one-device", "cost source constant"):
        assert (rows[name]["verdict"], rows[name]["found"]) == ("ok", "pesto-example 0.1")
    broken = rows["solver failing"]
    assert broken["verdict"] == "warn"
    assert broken["found"] == (
        "by-failing 2.0: cannot be loaded: ImportError: no such library (failing.py, line 1)"
    )
    assert broken["remedy"] == "update by-failing, or pip uninstall by-failing"
    assert "by-failing 2.0: cannot be loaded" in pesto("doctor").out


# A broken plug-in is an error only where it is used.


def test_a_broken_plug_in_breaks_only_its_own_use(
    pesto: Pesto, failing: str, diamond_profile: Path, tmp_path: Path
) -> None:
    solve = ("solve", diamond_profile, "-o", tmp_path / "p.json", *QUICK)
    assert pesto(*solve) == (0, "", "")
    refused = pesto(*solve, "--solver", failing)
    assert refused.code == 5
    assert refused.err == (
        "Error: solver 'failing' of by-failing 2.0 (failing:solve) cannot be loaded: ImportError: "
        "no such library (failing.py, line 1); update the package, or uninstall it.\n"
    )


def test_comparing_all_strategies_leaves_out_a_broken_one(
    pesto: Pesto, site: Path, diamond_profile: Path, caplog: pytest.LogCaptureFixture
) -> None:
    install(site, "by-x", "3", {"pesto.strategies": {"x": "nowhere:x"}})
    assert api.STRATEGIES.usable() == api.STRATEGIES.builtin
    (warning,) = caplog.messages
    assert warning.startswith("left out: strategy 'x' of by-x 3 (nowhere:x) cannot be loaded: Mod")
    profile = read_profile(diamond_profile)
    assert len(api.compare(profile, time_limit_s=0.1).results) == len(PLACERS)
    assert pesto("compare", diamond_profile, "--strategies", "single,x").code == 5


KINDS: list[tuple[str, str]] = [
    ("solve = 3", "a int was found, an object that is called with (request) was expected"),
    ("class solve: pass", "a class was found, an object that is called with (request)"),
    ("def solve(): pass", "too many positional arguments; an object that is called with (request)"),
    ("def solve(a, b): pass", "missing a required argument: 'b'"),
    ("", "AttributeError: module 'kind_0' has no attribute 'solve'"),
    ("import sys; sys.exit(7)", "SystemExit: 7"),
    ("1 +", "SyntaxError: invalid syntax"),
]


@pytest.mark.parametrize(("text", "words"), KINDS, ids=[text for text, _ in KINDS])
def test_an_object_that_is_no_solver_is_refused(site: Path, text: str, words: str) -> None:
    number = KINDS.index((text, words))
    name = solver_of(site, f"kind-{number}", text)
    with pytest.raises(EnvironmentFailedError) as refused:
        ilp.SOLVERS.find(name)
    assert words.replace("kind_0", f"kind_{number}") in str(refused.value)
    assert f"solver '{name}' of by-{name} 2.0 (kind_{number}:solve)" in str(refused.value)
    assert ilp.SOLVERS.usable() == ilp.SOLVERS.builtin


def misplaced(request: SolverRequest) -> SolverAnswer:
    num_ops = request.formulation.problem.num_ops
    return SolverAnswer(
        times=Timetable([7] * num_ops, [0.0] * num_ops, [1.0] * num_ops, [], [], [])
    )


def refusing(request: SolverRequest) -> SolverAnswer:
    raise InfeasibleError("no solution for the licence of this machine.")


@pytest.mark.parametrize(
    ("solve", "kind", "words"),
    [
        (lambda request: 1 / 0, EnvironmentFailedError, "failed: ZeroDivisionError: division by z"),
        (lambda request: None, EnvironmentFailedError, "returned a NoneType; a SolverAnswer was"),
        (misplaced, EnvironmentFailedError, "it puts op 'a' on device 7, where it may not run"),
        (refusing, InfeasibleError, "solver 'x' of by-x 1: no solution for the licence"),
    ],
    ids=["raises", "answers nothing", "places ops elsewhere", "refuses"],
)
def test_errors_during_a_call_of_a_plug_in_name_it(
    site: Path, diamond: Problem, solve: Any, kind: type[Exception], words: str
) -> None:
    install(site, "by-x", "1", {"pesto.solvers": {"x": "x:solve"}}, {"x": ""})
    sys.modules["x"] = type(sys)("x")
    sys.modules["x"].solve = solve  # type: ignore[attr-defined]
    ilp.SOLVERS._loaded.clear()
    with pytest.raises(kind, match="solver 'x' of by-x 1") as raised:
        ilp.solve_ilp(diamond, Limits(), solver="x")
    assert words in str(raised.value)
    del sys.modules["x"]


def test_errors_of_built_in_objects_are_unchanged() -> None:
    def solve(request: object) -> None:
        raise ZeroDivisionError

    registry = Registry("pesto.solvers", {"own": solve}, called_with("request"))
    with pytest.raises(ZeroDivisionError), registry.at_work("own") as found:
        found(None)


# Names that exist already.


def test_a_built_in_object_takes_precedence_over_a_plug_in(
    pesto: Pesto, site: Path, caplog: pytest.LogCaptureFixture, diamond_profile: Path
) -> None:
    install(site, "by-y", "1.5", {"pesto.solvers": {"cbc": "nowhere:solve"}})
    assert [*ilp.SOLVERS] == ["cpsat", "cbc", "highs"]
    assert [*SOLVERS.names()] == ["cpsat", "cbc", "highs"]
    assert ilp.SOLVERS.find("cbc") is ilp.SOLVERS.builtin["cbc"]
    ilp.SOLVERS.find("cbc")
    warning = "solver 'cbc' of by-y 1.5 is not used, because pesto has a solver of this name."
    assert [record.getMessage() for record in caplog.records] == [warning]
    (probe,) = plug_in_probes()
    assert probe().found == "by-y 1.5: has the name of pesto's own solver, which is used"


def test_of_two_packages_with_one_name_neither_is_used(site: Path) -> None:
    for package in ("by-z", "also-by-z"):
        install(site, package, "1", {"pesto.solvers": {"z": "z:solve"}}, {"z": "solve = print"})
    with pytest.raises(
        EnvironmentFailedError, match=r"solver 'z' of .*by-z 1 .* has the same name"
    ):
        ilp.SOLVERS.find("z")
    assert "z" not in SOLVERS.names()
    found = {probe().found for probe in plug_in_probes()}
    assert found == {
        "by-z 1: has the same name as that of also-by-z 1",
        "also-by-z 1: has the same name as that of by-z 1",
    }


def test_of_two_versions_the_first_on_the_path_counts(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version, folder in (("1", tmp_path / "older"), ("2", tmp_path / "newer")):
        install(folder, "by_twice", version, {"pesto.solvers": {"twice": "twice:solve"}})
        monkeypatch.syspath_prepend(folder)
    assert [each.package for each in plug_ins()] == ["by_twice 2"]


@pytest.mark.parametrize(
    ("group", "entry", "words"),
    [
        ("pesto.solver", {"s": "s:s"}, "is in group 'pesto.solver'; one of pesto.strategies, "),
        ("pesto.solvers", {"a,b": "s:s"}, "has a name that cannot be typed"),
        ("pesto.solvers", {"\x1b[31m": "s:s"}, "has a name that cannot be typed"),
        ("pesto.solvers", {"s": "one two"}, "refers to nothing; module:object was expected"),
        ("pesto.solvers]\nno line of such a file\n[x", {}, "cannot be read: "),
    ],
)
def test_wrong_metadata_is_reported_by_doctor_only(
    site: Path, pesto: Pesto, group: str, entry: dict[str, str], words: str
) -> None:
    install(site, "by-odd", "1", {group: entry})
    assert not SOLVERS.plug_ins()
    (probe,) = plug_in_probes()
    assert probe().verdict == "warn"
    assert probe().found.startswith("by-odd 1: ")
    assert words in probe().found
    assert pesto("solve", "--help").code == 0


def test_an_unknown_name_is_refused_with_all_names(example: Path) -> None:
    with pytest.raises(BadInputError, match="one of cpsat, cbc, highs, one-device was expected"):
        ilp.SOLVERS.find("one-devise")
    with pytest.raises(KeyError):
        ilp.SOLVERS["one-devise"]
