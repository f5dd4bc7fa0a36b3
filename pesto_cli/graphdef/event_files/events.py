"""Read graphs and run metadata from TensorBoard's event files (`events.out.tfevents...`).

A file is a sequence of records: length, its checksum, an `Event` protocol buffer, its checksum.
An event holds a graph as
    `graph_def`         by TensorFlow 1's FileWriter, or by `tf.summary.graph`
    `meta_graph_def`    by TensorFlow 1's FileWriter, with collections if it has the default graph
    a summary           by `tf.summary.trace_export`: a RunMetadata with the graphs of all functions
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pesto_cli.errors import BadInputError
from pesto_cli.files import check_input_size
from pesto_cli.graphdef.tensorflow import tensorflow

_VERSION = b"brain.Event:"
# The first record has the version, a few bytes after the beginning of the file.
_SNIFFED_BYTES = 64
_FILES = "*tfevents*"
# A record has a header, its length with a checksum, and ends with the checksum of its data.
_HEADER_BYTES, _CHECKSUM_BYTES = 12, 4
_TRACE_PLUGINS = "graph_run_metadata"
HANDLE_SHAPES, HANDLE_TYPES = "_handle_shapes", "_handle_dtypes"
HANDLE_ATTRIBUTES = {HANDLE_SHAPES, HANDLE_TYPES}
"""Attributes of an argument that is a handle: shape and type of the variable, lists of length 1."""


def is_event_file(path: Path) -> bool:
    """Return whether a file begins like an event file of TensorBoard."""
    if not path.is_file():  # Not from a pipe: reading would consume its data.
        return False
    try:
        with path.open("rb") as file:
            return is_event_data(file.read(_SNIFFED_BYTES))
    except OSError:
        return False


def is_event_data(data: bytes) -> bool:
    """Return whether the content of a file begins like that of an event file of TensorBoard."""
    return _VERSION in data[:_SNIFFED_BYTES]


def event_files(path: Path) -> list[Path]:
    """Return the event files at a path: the file itself, or those in a log directory."""
    if path.is_dir():
        return sorted(file for file in path.rglob(_FILES) if is_event_file(file))
    return [path] if is_event_file(path) else []


def graphs(path: Path) -> list[Any]:
    """Return the graphs in an event file as MetaGraphDefs; a truncated last record is ignored.

    Raises:
        BadInputError: the file cannot be read, or is damaged.
    """
    with _decoded(path):
        return [graph for event in _events(path) for graph in _graphs(event)]


def run_metadata(path: Path) -> list[Any]:
    """Return the RunMetadata of the steps that TensorFlow 1's FileWriter has written.

    Raises:
        BadInputError: the file cannot be read, or is damaged.
    """
    with _decoded(path):
        tagged = [e.tagged_run_metadata for e in _events(path) if e.HasField("tagged_run_metadata")]
        metadata = tensorflow().compat.v1.RunMetadata
        return [metadata.FromString(step.run_metadata) for step in tagged]


@contextmanager
def _decoded(path: Path) -> Iterator[None]:
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        yield
    except OSError as error:
        raise BadInputError(f"{path} cannot be read: {error.strerror}.") from None
    except DecodeError as error:
        raise _damaged(path, error) from None


def _events(path: Path) -> Iterator[Any]:
    tensorflow()
    from tensorflow.core.util.event_pb2 import Event

    for record in _records(path):
        yield Event.FromString(record)


def _graphs(event: Any) -> Iterator[Any]:
    tf1 = tensorflow().compat.v1
    if event.HasField("meta_graph_def"):
        yield tf1.MetaGraphDef.FromString(event.meta_graph_def)
    elif event.HasField("graph_def"):
        yield tf1.MetaGraphDef(graph_def=tf1.GraphDef.FromString(event.graph_def))
    for metadata in _traces(event):
        for function in metadata.function_graphs:
            yield tf1.MetaGraphDef(graph_def=_with_handle_shapes(function))


def _with_handle_shapes(function: Any) -> Any:
    """Return a function's graph as traced, with handle attributes from the optimised graph."""
    optimized = {node.name: node.attr for node in function.post_optimization_graph.node}
    graph_def = function.pre_optimization_graph
    for node in graph_def.node:
        for name in HANDLE_ATTRIBUTES & optimized.get(node.name, {}).keys():
            node.attr[name].CopyFrom(optimized[node.name][name])
    return graph_def


def _traces(event: Any) -> Iterator[Any]:
    tf1 = tensorflow().compat.v1
    for value in event.summary.value:
        if value.metadata.plugin_data.plugin_name.startswith(_TRACE_PLUGINS):
            for serialized in value.tensor.string_val:
                yield tf1.RunMetadata.FromString(serialized)


def _records(path: Path) -> Iterator[bytes]:
    """Yield the complete records; TensorFlow's reader checks their checksums."""
    check_input_size(path, path.stat().st_size)
    tf = tensorflow()
    from tensorflow.python.lib.io._pywrap_record_io import RecordIterator

    records = RecordIterator(str(path), "")
    for _ in range(_num_whole_records(path)):
        try:
            yield next(records)
        except StopIteration:
            return
        except tf.errors.DataLossError as error:
            raise _damaged(path, error) from None


def _num_whole_records(path: Path) -> int:
    """Return the number of records that lie completely within the file, by their lengths.

    A length that exceeds the memory would end the process in TensorFlow's reader.
    """
    with path.open("rb") as file:
        num_bytes = file.seek(0, os.SEEK_END)
        num_records = end = 0
        while end + _HEADER_BYTES <= num_bytes:
            file.seek(end)
            end += int.from_bytes(file.read(8), "little") + _HEADER_BYTES + _CHECKSUM_BYTES
            num_records += end <= num_bytes
    return num_records


def _damaged(path: Path, error: Exception) -> BadInputError:
    return BadInputError(
        f"{path} is a damaged event file ({error}); a file as TensorFlow writes it was expected: "
        "write or copy it again."
    )
