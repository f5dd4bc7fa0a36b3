"""Any file of pesto's, and any graph of TensorFlow's, read and written."""

from pathlib import Path
from typing import Any

from pesto_cli.api.arguments import checked
from pesto_cli.data.machine import PRESETS
from pesto_cli.errors import BadInputError
from pesto_cli.files import (
    PlacementFile,
    Profile,
    atomic_write,
    loads,
    read_bytes,
    read_comm,
    read_constraints,
    read_machine,
    read_placement,
    read_profile,
    write_comm,
    write_placement,
    write_profile,
)
from pesto_cli.files.storage import read_toml
from pesto_cli.graphdef.containers import read_meta_graph, write_meta_graph
from pesto_cli.graphdef.event_files.events import event_files
from pesto_cli.graphdef.export import export
from pesto_cli.report.charts import write_chart

# Endings of what is no JSON.
NO_JSON = (".html", ".svg", ".png", ".meta", ".pb", ".pbtxt", ".toml")

_READERS = {
    "pesto-profile": read_profile,
    "pesto-placement": read_placement,
    "pesto-comm": read_comm,
}


def load(name: Path | str) -> Any:
    """Read what a path or a machine's name stands for; what a file holds says what it is.

    Returns:
        A `Profile`, `PlacementFile` or list of `CommFit`, a `Machine` or `Constraints` (TOML), or a
        MetaGraphDef (`.meta`, `.pb`, `.pbtxt`, a SavedModel).

    Raises:
        BadInputError: nothing is there, or it is damaged or none of these.

    Example:
        >>> profile = load("examples/rnnlm.profile.json.gz")
    """
    path = Path(name)
    if str(name) in PRESETS or path.suffix == ".toml":
        is_machine = str(name) in PRESETS or "devices" in read_toml(path)
        return read_machine(str(name)) if is_machine else read_constraints(path)
    if not path.exists():
        raise BadInputError(
            f"{name} is neither a file nor a machine; the path of a profile, placement, graph, "
            f"machine or constraints, or one of {', '.join(PRESETS)}, was expected."
        )
    if path.is_file() and (data := read_bytes(path)).startswith(b"{"):
        return _READERS.get(_format(data), read_profile)(path)
    return read_meta_graph(path)


def _format(data: bytes) -> str:
    """What a JSON file says that it is; empty if it says nothing, or is damaged."""
    try:
        return str(loads(data).get("format"))
    except ValueError:
        return ""


@checked
def save(path: Path | str, value: Any) -> None:
    """Write a profile, placement, communication fit, graph, chart or page.

    Args:
        path: the name says in which form a graph (`.meta`, `.pb`, `.pbtxt`) or chart (`.svg`,
            `.png`, `.html`, `.json`) is written, and whether JSON is packed (`.gz`).
        value: what is written.

    Raises:
        BadInputError: it is none of these, the path is no place for it, or its ending says that it
            is something else.
        EnvironmentFailedError: the file system refused.

    Example:
        >>> save("rnnlm.placement.json", placement(profile, solve(profile)))
    """
    _check_ending(Path(path), value)
    if isinstance(value, Profile):
        write_profile(path, value)
    elif isinstance(value, PlacementFile):
        write_placement(path, value)
    elif isinstance(value, list):
        write_comm(path, value)
    elif isinstance(value, str):
        atomic_write(path, value.encode())
    elif hasattr(value, "graph_def"):
        write_meta_graph(path, value)
    elif hasattr(value, "to_dict"):
        write_chart(Path(path), value)
    else:
        raise BadInputError(
            f"{path}: a {type(value).__name__} has no file format; a profile, placement, "
            "communication fit, graph, chart or page was expected. A result is saved as "
            "placement(profile, result)."
        )


def _check_ending(path: Path, value: Any) -> None:
    """Charts look at it themselves."""
    is_json = isinstance(value, Profile | PlacementFile | list)
    if is_json and path.suffix in NO_JSON:
        raise BadInputError(
            f"{path}: a {type(value).__name__} is written as JSON; a name that ends in .json or "
            ".json.gz was expected: rename it. report(profile, {'mine': placement}) makes a page, "
            "timeline(profile, placement) a chart."
        )
    if isinstance(value, str) and path.suffix != ".html":
        raise BadInputError(
            f"{path}: a page is written as HTML; a name that ends in .html was expected: rename it."
        )


def read_graph(source: str) -> Any:
    """A MetaGraphDef as a file has it, or from whatever else `export` takes."""
    is_graph = Path(source).is_file() and not event_files(Path(source))
    return read_meta_graph(source) if is_graph else export(source)
