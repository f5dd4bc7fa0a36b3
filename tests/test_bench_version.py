"""The hash of a run's code changes if and only if code that the run imports changes."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pesto_cli
from pesto_cli.bench.version import ENTRY, code_hash, import_closure

ROOT = Path(pesto_cli.__file__).parent

# A package in which `house.run` imports modules in all possible ways.
SOURCES = {
    "__init__.py": "from house.plot import draw",
    "run.py": "import house.plain\nfrom house.one.inner import f\nfrom house.two import g\n",
    "plain.py": "def f():\n    from . import late\n    return late\n",
    "late.py": "from .deep.deeper import h",
    "deep/__init__.py": "from house.plot import draw",
    "deep/deeper.py": "from ..two.sibling import s\nimport json",
    "one/__init__.py": "from house.plot import draw",
    "one/inner.py": "from house import named",
    "two/__init__.py": "from house.two.re_exported import g",
    "two/re_exported.py": "from house.two import sibling",
    "two/sibling.py": "from house import run",
    "named.py": "",
    "plot.py": "",
    "other.py": "from house import run",
}
OF_RUN = {
    *("house", "house.run", "house.plain", "house.late", "house.deep.deeper", "house.one.inner"),
    *("house.two", "house.two.re_exported", "house.two.sibling", "house.named"),
}


@pytest.fixture
def house(tmp_path: Path) -> Path:
    for name, source in (SOURCES | {"__init__.py": ""}).items():
        path = tmp_path / "house" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    return tmp_path / "house"


def path_of(name: str, package: Path) -> Path:
    place = package.joinpath(*name.split(".")[1:])
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")


def test_all_kinds_of_imports_are_followed(house: Path) -> None:
    assert import_closure("house.run", house).keys() == OF_RUN


def test_imports_of_a_package_count_if_a_name_is_imported_from_it(house: Path) -> None:
    (house / "__init__.py").write_text(SOURCES["__init__.py"])
    assert import_closure("house.run", house).keys() == OF_RUN | {"house.plot"}


@pytest.mark.parametrize("name", sorted(OF_RUN))
def test_a_change_of_any_imported_module_changes_the_hash(house: Path, name: str) -> None:
    before = code_hash("house.run", house)
    path = path_of(name, house)
    path.write_text(f"{path.read_text()}\n# a remark\n")
    assert code_hash("house.run", house) == before
    path.write_text(f"{path.read_text()}\nCHANGED = 1\n")
    assert code_hash("house.run", house) != before


@pytest.mark.parametrize("name", ["house.plot", "house.other", "house.one", "house.deep"])
def test_a_change_of_other_modules_does_not_change_the_hash(house: Path, name: str) -> None:
    before = code_hash("house.run", house)
    path_of(name, house).write_text("CHANGED = 1\n")
    assert code_hash("house.run", house) == before


def test_the_hash_of_a_run_depends_on_result_py_and_not_on_commands(
    tmp_path: Path,
) -> None:
    package = tmp_path / "pesto_cli"
    shutil.copytree(ROOT, package, ignore=shutil.ignore_patterns("__pycache__", "*.nb*"))
    before = code_hash(ENTRY, package)
    assert before == code_hash(ENTRY, ROOT)
    shutil.rmtree(package / "cli")
    shutil.rmtree(package / "apply")
    assert code_hash(ENTRY, package) == before
    (path,) = package.rglob("result.py")
    path.write_text(f"{path.read_text()}\nCHANGED = 1\n")
    assert code_hash(ENTRY, package) != before


LOADED = """
import json, sys, types
import pesto_cli
bare = types.ModuleType("pesto_cli.bench")  # without the imports of bench/__init__.py
bare.__path__ = [f"{pesto_cli.__path__[0]}/bench"]
sys.modules["pesto_cli.bench"] = bare
import pesto_cli.bench.runs
print(json.dumps([name for name in sys.modules if name.partition(".")[0] == "pesto_cli"]))
"""


def test_all_modules_that_python_loads_for_a_run_are_in_the_closure() -> None:
    process = subprocess.run(
        [sys.executable, "-c", LOADED], capture_output=True, text=True, check=True
    )
    loaded = set(json.loads(process.stdout))
    closure = import_closure(ENTRY, ROOT).keys()
    on_the_way = {name.rpartition(".")[0] for name in closure}
    assert len(loaded) > 50
    assert loaded <= closure | on_the_way
