"""Hash the code that decides the result of a run, so that cached runs of other code are unused."""

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
    """Return the version of pesto and a hash of the code of a run; comments do not count."""
    digest = code_hash(ENTRY, Path(pesto_cli.__file__).parent)
    return f"{pesto_cli.__version__}+{digest[:12]}"


def code_hash(entry: str, package: Path) -> str:
    """Return the SHA-256, in hex, of `entry` and all modules of its package that it imports."""
    code = import_closure(entry, package)
    return sha256("\n".join(f"{name} {ast.dump(code[name])}" for name in sorted(code)).encode())


def import_closure(entry: str, package: Path) -> dict[str, ast.Module]:
    """Return full name -> parsed code of `entry` and of all modules that it imports transitively.

    package: the folder of the package of `entry`; modules of other packages are left out. Imports
    within functions count. The `__init__` of a package counts only if a name is imported from it,
    not if a module below it is imported: `bench/__init__.py` imports every experiment, but a run
    depends on none of them.
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
    """Return the file of a module; None if the package has no such module."""
    root, *parts = name.split(".")
    place = package.joinpath(*parts)
    files = (place / "__init__.py", place.with_suffix(".py")) if parts else (place / "__init__.py",)
    return next((path for path in files if root == package.name and path.is_file()), None)


def _imported(code: ast.Module, package: str) -> Iterator[str]:
    """Yield the full names that the code of a module in `package` imports, modules and others."""
    for node in ast.walk(code):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = resolve_name("." * node.level + (node.module or ""), package)
            yield from (module, *(f"{module}.{alias.name}" for alias in node.names))
