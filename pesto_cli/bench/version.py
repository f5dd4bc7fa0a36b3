"""Which code decides on a run: the modules that make one, and a hash of them."""

import ast
from collections.abc import Iterator
from functools import cache
from importlib.util import resolve_name
from pathlib import Path

import pesto_cli
from pesto_cli.files import sha256

ENTRY = "pesto_cli.bench.runs"


@cache
def pesto_version() -> str:
    """The version, and a hash of the code that decides on the result of a run, comments aside."""
    digest = code_hash(ENTRY, Path(pesto_cli.__file__).parent)
    return f"{pesto_cli.__version__}+{digest[:12]}"


def code_hash(entry: str, package: Path) -> str:
    """SHA-256, in hex, of the module `entry` and of all that it imports of its package."""
    code = import_closure(entry, package)
    return sha256("\n".join(f"{name} {ast.dump(code[name])}" for name in sorted(code)).encode())


def import_closure(entry: str, package: Path) -> dict[str, ast.Module]:
    """The module `entry` and all of its package that it imports, through others too, by full name.

    package: the folder of the package that `entry` begins with. Imports within functions count. The
    `__init__` of a package counts where a name is imported from it, not where it lies on the way to
    a module below: `bench` itself imports every experiment, and a run depends on none.
    """
    found: dict[str, ast.Module] = {}
    waiting = [entry]
    while waiting:
        name = waiting.pop()
        path = _path(name, package)
        if name not in found and path is not None:
            found[name] = ast.parse(path.read_text(encoding="utf-8"))
            inside = name if path.stem == "__init__" else name.rpartition(".")[0]
            waiting.extend(_imported(found[name], inside))
    return found


def _path(name: str, package: Path) -> Path | None:
    """The file of a module; None for what is none of the package, such as a function of it."""
    root, *parts = name.split(".")
    place = package.joinpath(*parts)
    files = (place / "__init__.py", place.with_suffix(".py")) if parts else (place / "__init__.py",)
    return next((path for path in files if root == package.name and path.is_file()), None)


def _imported(code: ast.Module, package: str) -> Iterator[str]:
    """Full names of what the code of a module in `package` imports, be they modules or not."""
    for node in ast.walk(code):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = resolve_name("." * node.level + (node.module or ""), package)
            yield from (module, *(f"{module}.{alias.name}" for alias in node.names))
