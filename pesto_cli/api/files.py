"""Reading and writing files of pesto and graphs of TensorFlow."""

from pathlib import Path
from typing import Any

from pesto_cli.api.arguments import checked
from pesto_cli.data.presets import PRESETS
from pesto_cli.errors import BadInputError
from pesto_cli.files import (
    PlacementFile,
    Profile,
    TuningLog,
    atomic_write,
    loads,
    read_bytes,
    read_comm,
    read_constraints,
    read_machine,
    read_placement,
    read_profile,
    read_tuning_log,
    write_comm,
    write_placement,
    write_profile,
    write_tuning_log,
)
from pesto_cli.files.storage import GRAPH_SUFFIXES, read_toml
from pesto_cli.graphdef.containers import read_meta_graph, write_meta_graph
from pesto_cli.graphdef.event_files.events import event_files
from pesto_cli.graphdef.export import export as export_graph
from pesto_cli.learned.weights import Trained, read_weights, write_weights
from pesto_cli.report.charts import write_chart

# Endings of files that are not JSON.
NO_JSON = (".npz", ".html", ".svg", ".png", ".meta", ".pb", ".pbtxt", ".toml")

_READERS = {
    "pesto-profile": read_profile,
    "pesto-placement": read_placement,
    "pesto-comm": read_comm,
    "pesto-tuning": read_tuning_log,
}


@checked
def load(name: Path | str) -> Any:
    """Read a file, or return the machine preset of this name.

    The content of the file decides what it is read as.

    Returns:
        A `Profile`, `PlacementFile`, `TuningLog` or list of `CommFit`, a `Machine` or `Constraints`
        (TOML), a `Trained` policy (`.npz`), or a MetaGraphDef (`.meta`, `.pb`, `.pbtxt`, a
        SavedModel).

    Raises:
        BadInputError: there is no such file, or it is damaged or none of these.

    Example:
        >>> profile = load("examples/rnnlm.profile.json.gz")
    """
    path = Path(name)
    if str(name) in PRESETS or path.suffix == ".toml":
        is_machine = str(name) in PRESETS or "devices" in read_toml(path)
        return read_machine(str(name)) if is_machine else read_constraints(path)
    if not path.exists():
        raise BadInputError(
            f"{name} is neither a file nor a machine preset; the path of a profile, placement, "
            f"graph, machine or constraints, or one of {', '.join(PRESETS)}, was expected."
        )
    if path.suffix == ".npz":
        return read_weights(path)
    if path.is_file() and (data := read_bytes(path)).startswith(b"{"):
        return _READERS.get(_format(data), read_profile)(path)
    return read_meta_graph(path)


export = checked(export_graph)


def _format(data: bytes) -> str:
    """Return the value of `format` in JSON data; empty if it is missing or the data are damaged."""
    try:
        return str(loads(data).get("format"))
    except ValueError:
        return ""


@checked
def save(path: Path | str, value: Any) -> None:
    """Write a profile, placement, communication fit, tuning log, policy, graph, chart or page.

    Args:
        path: its ending selects the format of a graph (`.meta`, `.pb`, `.pbtxt`) or chart (`.svg`,
            `.png`, `.html`, `.json`), and whether JSON is compressed (`.gz`).
        value: the value to write.

    Raises:
        BadInputError: the value is none of these, the file cannot be created at this path, or the
            ending is that of another kind of file.
        EnvironmentFailedError: the file system refused to write.

    Example:
        >>> save("rnnlm.placement.json", placement(profile, solve(profile)))
    """
    _check_ending(Path(path), value)
    if isinstance(value, Profile):
        write_profile(path, value)
    elif isinstance(value, PlacementFile):
        write_placement(path, value)
    elif isinstance(value, TuningLog):
        write_tuning_log(path, value)
    elif isinstance(value, list):
        write_comm(path, value)
    elif isinstance(value, str):
        atomic_write(path, value.encode())
    elif isinstance(value, Trained):
        write_weights(path, value)
    elif hasattr(value, "graph_def"):
        write_meta_graph(path, value)
    elif hasattr(value, "to_dict"):
        write_chart(Path(path), value)
    else:
        raise BadInputError(
            f"{path}: a {type(value).__name__} has no file format; a profile, placement, "
            "communication fit, tuning log, trained policy, graph, chart or page was expected. To "
            "save a result, save placement(profile, result)."
        )


def _check_ending(path: Path, value: Any) -> None:
    """Refuse an ending that does not fit the value; charts are checked in `write_chart`."""
    is_json = isinstance(value, Profile | PlacementFile | TuningLog | list)
    if is_json and path.suffix in NO_JSON:
        raise BadInputError(
            f"{path}: a {type(value).__name__} is written as JSON; a name that ends in .json or "
            ".json.gz was expected: rename it. report(profile, {'mine': placement}) makes a page, "
            "timeline(profile, placement) a chart."
        )
    if hasattr(value, "graph_def") and path.suffix in {".json", *NO_JSON} - {*GRAPH_SUFFIXES}:
        raise BadInputError(
            f"{path}: a graph is written as a MetaGraphDef; a name that ends in .meta was "
            "expected: rename it."
        )
    if isinstance(value, str) and path.suffix != ".html":
        raise BadInputError(
            f"{path}: a page is written as HTML; a name that ends in .html was expected: rename it."
        )


def read_graph(source: str) -> Any:
    """Read a MetaGraphDef from a file, or export it from any other source that `export` accepts."""
    path = Path(source)
    is_graph = path.is_file() and path.suffix != ".py" and not event_files(path)
    return read_meta_graph(path) if is_graph else export(source)
