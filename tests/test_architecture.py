"""Imports follow the layers of docs/architecture.md, and TensorFlow is loaded only where needed."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pesto_cli
from pesto_cli.graphdef.tensorflow import _stderr_shown_only_on_failure

ROOT = Path(pesto_cli.__file__).parent

DATA = ["garbage", "printable", "errors", "plugins", "data", "sharding", "files", "diff"]
ALGORITHMS = ["kernels", "bounds", "evaluation", "coarsen", "ilp", "refine"]
TENSORFLOW = ["graphdef", "zoo", "cluster", "apply", "runtime", "profile", "learned"]

# What each package may import; `cli` and `api` may import everything.
MAY_IMPORT = {package: DATA[: index + 1] for index, package in enumerate(DATA)}
MAY_IMPORT |= {package: DATA + ALGORITHMS[: index + 1] for index, package in enumerate(ALGORITHMS)}
MAY_IMPORT |= {
    "start": ["errors", "cli"],
    "graphdef": [*DATA, "graphdef", "zoo"],
    "zoo": [*DATA, "zoo", "graphdef"],
    "cluster": [*DATA, "graphdef", "cluster"],
    "apply": [*DATA, "graphdef", "zoo", "cluster", "apply"],
    "runtime": [*DATA, "graphdef", "cluster", "apply", "runtime"],
    "profile": [*DATA, "graphdef", "zoo", "cluster", "apply", "runtime", "profile"],
    "strategies": [*DATA, *ALGORITHMS, "strategies", "learned"],
    "learned": [*DATA, *ALGORITHMS, "graphdef", "strategies", "learned"],
    "tuning": [*DATA, *ALGORITHMS, "strategies", *TENSORFLOW, "tuning"],
    "report": [*DATA, "evaluation", "report"],
    "doctor": [*DATA, *ALGORITHMS, "graphdef", "cluster", "apply", "doctor"],
    "bench": [*DATA, *ALGORITHMS, "strategies", "learned", "report", "bench"],
}

FILES = sorted(
    path for path in ROOT.rglob("*.py") if path.parent != ROOT or path.stem != "__init__"
)


def package_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported_packages(path: Path) -> set[str]:
    packages = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            modules = [node.module]
            if node.module == "pesto_cli":
                modules = [f"pesto_cli.{name.name}" for name in node.names]
        elif isinstance(node, ast.Import):
            modules = [name.name for name in node.names]
        else:
            continue
        packages |= {name.split(".")[1] for name in modules if name.startswith("pesto_cli.")}
    return packages - {"__version__"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_run_one_way(path: Path) -> None:
    package = package_of(path)
    if package in ("cli", "api"):
        return
    assert package in MAY_IMPORT, f"{package} is a new package: add to this test what it may import"
    assert imported_packages(path) <= set(MAY_IMPORT[package])


def test_only_cli_imports_api_and_nothing_imports_cli() -> None:
    for path in FILES:
        if package_of(path) not in ("cli", "start"):
            assert not imported_packages(path) & {"cli", "api"} or package_of(path) == "api", path


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_tensorflow_is_imported_only_by_its_packages_and_inside_functions(path: Path) -> None:
    tree = ast.parse(path.read_text())

    def names(node: ast.AST) -> list[str]:
        if isinstance(node, ast.Import):
            return [alias.name for alias in node.names]
        return [node.module or ""] if isinstance(node, ast.ImportFrom) else []

    at_top = [name for node in tree.body for name in names(node)]
    anywhere = [name for node in ast.walk(tree) for name in names(node)]
    heavy = ("tensorflow", "keras")
    assert not [name for name in at_top if name.split(".")[0] in heavy]
    if package_of(path) not in TENSORFLOW:
        assert not [name for name in anywhere if name.split(".")[0] in heavy]


LOADED = """
import sys
from pesto_cli.cli import main
for argv in {argvs!r}:
    sys.argv = ["pesto", *argv]
    try:
        main()
    except SystemExit as exit_:
        assert not exit_.code, exit_.code
heavy = sys.modules.keys() & {{"tensorflow", "keras", "numba", "ortools", "pulp"}}
print("LOADED", *heavy, file=sys.stderr)
"""


def loaded_by(*argvs: tuple[str, ...]) -> set[str]:
    """Run commands in a new process, one after the other; return the heavy packages it loaded."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED.format(argvs=argvs)],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stderr.splitlines()[-1].split()[1:])


def test_help_loads_nothing_heavy() -> None:
    assert loaded_by(("--help",), ("solve", "--help")) == set()


@pytest.mark.parametrize("failure", [ImportError, KeyboardInterrupt])
def test_output_of_tensorflow_at_its_start_is_shown_only_if_it_fails(
    capfd: pytest.CaptureFixture[str], failure: type[BaseException]
) -> None:
    @_stderr_shown_only_on_failure()
    def start() -> None:
        os.write(2, b"its words")
        raise failure

    with pytest.raises(failure):
        start()
    assert capfd.readouterr().err == ("its words" if failure is ImportError else "")


def test_solve_compare_simulate_and_coarsen_run_without_tensorflow(
    tmp_path: Path, diamond_profile: Path
) -> None:
    profile, placement = str(diamond_profile), str(tmp_path / "p.placement.json")
    limit = ("--time-limit", "1", "--quiet")
    loaded = loaded_by(
        ("solve", profile, "-o", placement, *limit),
        ("compare", profile, *limit),
        ("simulate", profile, "--placement", placement),
        ("coarsen", profile, "-n", "3", "-o", str(tmp_path / "coarse.json")),
    )
    assert "numba" in loaded
    assert "tensorflow" not in loaded


# Modules that print text; each escapes unprintable characters in names from files.
PRINTING = {
    "start.py",  # that it was interrupted
    "cli/__init__.py",  # an empty text, to flush stdout
    "cli/output.py",  # `echo`
    "cli/checking.py",  # Markdown of `report/sections.py`
    "cli/doctor.py",  # the completion script for a shell
    "doctor/child_process.py",  # JSON
    "report/layouts.py",
    "report/sections.py",
    "report/progress.py",
    "report/run_counter.py",
}


def test_text_is_printed_in_few_places() -> None:
    calls = re.compile(r"\bprint\(|click\.s?echo\(|getLogger\(__name__")
    printing = {str(path.relative_to(ROOT)) for path in FILES if calls.search(path.read_text())}
    assert printing == PRINTING


# Op types and name parts of TensorFlow. Sharding rules are about op types, and so are measured
# efficiencies; `storage.py` recognises by them a graph that is given instead of a profile.
OF_TENSORFLOW = re.compile(
    r"Placeholder|_Retval|_Arg$|VarHandleOp|ResourceApply|gradient_tape|gradients/|_grad\b|update_$"
    r"|^(While|StatelessWhile|If|StatelessIf|Case|PartitionedCall|ReadVariableOp|Const)$"
)
KNOWS_TENSORFLOW = {"files/tensorflow_names.py", "files/storage.py", "data/efficiencies.py"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_only_the_packages_of_tensorflow_use_its_op_types_and_names(path: Path) -> None:
    relative = path.relative_to(ROOT)
    if package_of(path) in TENSORFLOW or str(relative) in KNOWS_TENSORFLOW:
        return
    if relative.is_relative_to("sharding"):
        return
    tree = ast.parse(path.read_text())
    docs = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    known = [
        str(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str | bytes)
        and id(node) not in docs
        and OF_TENSORFLOW.search(str(node.value))
    ]
    assert not known
