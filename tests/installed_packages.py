"""Installing packages for tests by writing their modules and metadata into a folder."""

import tomllib
from collections.abc import Mapping
from pathlib import Path

EXAMPLE = Path(__file__).parent / "example_plugin"


def install_example(site: Path) -> None:
    """Install the package of `example_plugin/`, as pip would do."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    modules = {path.stem: path.read_text() for path in EXAMPLE.glob("*.py")}
    install(site, project["name"], project["version"], project["entry-points"], modules)


def install(
    site: Path,
    name: str,
    version: str,
    entry_points: Mapping[str, Mapping[str, str]],
    modules: Mapping[str, str] | None = None,
) -> None:
    """Install a package with these entry points, by group and name, and these module texts."""
    lines = []
    for group, entries in entry_points.items():
        lines += [f"[{group}]", *(f"{key} = {value}" for key, value in entries.items())]
    metadata = site / f"{name.replace('-', '_')}-{version}.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (metadata / "entry_points.txt").write_text("\n".join(lines))
    for module, text in (modules or {}).items():
        (site / f"{module}.py").write_text(text)
