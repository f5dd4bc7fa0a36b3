"""Read and write TensorFlow's graph files. Their format follows from the content, not the name."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pesto_cli.errors import BadInputError
from pesto_cli.files import atomic_write, content
from pesto_cli.graphdef.event_files.events import is_event_data
from pesto_cli.graphdef.source_names import is_function, is_of_zoo
from pesto_cli.graphdef.structure import check_contents
from pesto_cli.graphdef.tensorflow import tensorflow

EXPECTED = (
    "a TensorFlow graph: a MetaGraphDef (.meta), a GraphDef (.pb), either of them as text (.pbtxt),"
    " or a SavedModel directory"
)

_SAVED_MODEL_FILES = ("saved_model.pb", "saved_model.pbtxt")

# First bytes of other file formats that users pass by mistake.
_OTHER_FORMATS = {
    b"\x89HDF": ("an HDF5 file, such as Keras weights or a Keras .h5 model", "keras"),
    b"PK\x03\x04": ("a ZIP archive, such as a .keras model", "keras"),
    b"\x1f\x8b": ("gzip data", "gzip"),
}

_REMEDIES = {
    "keras": (
        "Write a function that loads the model, compiles it and returns it, and give `pesto"
        " export` or `pesto place` that function: script.py:function"
    ),
    "gzip": "Decompress the file first (gunzip), or pass the graph that it was made from",
    "json": "Pass the graph that the file was made from",
    "text": "Pass the file that `pesto export` wrote",
}


def read_meta_graph(path: Path | str) -> Any:
    """Return the graph in `path` as a MetaGraphDef; of a SavedModel, its only MetaGraphDef.

    Raises BadInputError when `path` does not exist or holds no graph.
    """
    path = Path(path)
    meta = _meta_graph(path)
    check_contents(meta, str(path))
    return meta


def _meta_graph(path: Path) -> Any:
    if path.is_dir():
        return _only_meta_graph(path, read_saved_model(path))
    data = _read_file(path)
    if is_event_data(data):
        raise BadInputError(
            f"{path}: a TensorBoard event file, where {EXPECTED} was expected. Export its graph"
            f" first: pesto export {path} -o GRAPH.meta"
        )
    for marker, (found, kind) in _OTHER_FORMATS.items():
        if data.startswith(marker):
            raise _wrong_container(path, found, kind)
    text = _as_text(data)
    return _parse_text(path, text) if text is not None else _parse_binary(path, data)


def has_saved_model(path: Path) -> bool:
    """Return whether a path is the directory of a SavedModel."""
    return any((path / name).exists() for name in _SAVED_MODEL_FILES)


def read_saved_model(path: Path | str) -> Any:
    """Return the SavedModel proto of a SavedModel directory, with at least one graph in it.

    Raises BadInputError for any other directory.
    """
    path = Path(path)
    binary, text = (path / name for name in _SAVED_MODEL_FILES)
    if binary.exists():
        saved_model = _parsed_saved_model(_read_file(binary))
        found = "a saved_model.pb that is truncated or holds no graph"
    elif text.exists():
        saved_model = _parsed_text(_read_file(text).decode(errors="replace"), _saved_model_type()())
        found = "a saved_model.pbtxt that holds no graph"
    else:
        saved_model = None
        found = "a directory without saved_model.pb"
    if saved_model is None or not saved_model.meta_graphs:
        raise BadInputError(
            f"{path}: {found}, where a SavedModel was expected."
            f" Save it again with tf.saved_model.save, or pass {EXPECTED}."
        )
    return saved_model


def write_meta_graph(path: Path | str, meta: Any) -> None:
    """Write a MetaGraphDef: as text to `*.pbtxt`, only its GraphDef to `*.pb`, else whole.

    The write is atomic. The same graph results in the same bytes. Raises BadInputError when the
    graph exceeds 2 GiB, the limit of a protocol buffer.
    """
    path = Path(path)
    if path.suffix == ".pbtxt":
        from google.protobuf import text_format  # type: ignore[import-untyped]

        data = text_format.MessageToString(meta).encode()
    else:
        data = _serialized(path, meta.graph_def if path.suffix == ".pb" else meta)
    atomic_write(path, data)


def _serialized(path: Path, message: Any) -> bytes:
    from google.protobuf.message import EncodeError  # type: ignore[import-untyped]

    try:
        data: bytes = message.SerializeToString(deterministic=True)
    except (EncodeError, ValueError) as error:
        raise BadInputError(
            f"{path}: the graph cannot be written ({error}); a protocol buffer holds at most 2 GiB."
            " Keep large constants out of the graph: initialise variables by random ops."
        ) from error
    return data


def _read_file(path: Path) -> bytes:
    try:
        data = content(path)
    except FileNotFoundError:
        is_no_file = is_of_zoo(str(path)) or is_function(str(path))
        remedy = f"Export it: pesto export {path} -o FILE.meta" if is_no_file else "Check the path."
        raise BadInputError(
            f"{path}: no such file, where {EXPECTED} was expected. {remedy}"
        ) from None
    except OSError as error:
        raise BadInputError(f"{path}: cannot be read ({error.strerror}).") from error
    if not data:
        raise BadInputError(f"{path}: an empty file, where {EXPECTED} was expected.")
    return data


def _only_meta_graph(path: Path, saved_model: Any) -> Any:
    meta_graphs = saved_model.meta_graphs
    if len(meta_graphs) > 1:
        tags = "; ".join(", ".join(meta.meta_info_def.tags) for meta in meta_graphs)
        raise BadInputError(
            f"{path}: a SavedModel with {len(meta_graphs)} graphs (tags: {tags}), where one was"
            " expected. Choose a signature of one of them: pesto export DIRECTORY --signature NAME."
        )
    return meta_graphs[0]


def _as_text(data: bytes) -> str | None:
    """Return `data` as text, or None if it is binary: a protocol buffer has control characters."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return None
    if any(character < " " and character not in "\t\n\r\f" for character in text):
        return None
    return text


def _parse_text(path: Path, text: str) -> Any:
    if text.lstrip().startswith(("{", "[")):
        raise _wrong_container(path, "JSON, such as a profile or a placement", "json")
    meta_graph_type, graph_type = _graph_types()
    attempts = [_attempt_text(text, meta_graph_type()), _attempt_text(text, graph_type())]
    for message in attempts:
        if not isinstance(message, Exception) and _is_graph(_graph_of(message)):
            return _as_meta_graph(message)
    reason = attempts[0 if "graph_def" in text else 1]
    if isinstance(reason, Exception) and "node {" in text.replace("node{", "node {"):
        raise BadInputError(
            f"{path}: text that breaks off or is damaged ({reason}), where a graph was expected."
            " Write the file again."
        )
    raise _wrong_container(path, "text that holds no graph", "text")


def _parse_binary(path: Path, data: bytes) -> Any:
    """Parse binary data as the first message type that results in a graph.

    The data does not name its type. The same bytes often parse as several types, where the wrong
    ones are empty or senseless: a GraphDef also parses as an empty SavedModel. So a result counts
    only if it has nodes, all with name and type.
    """
    saved_model = _parsed_saved_model(data)
    if saved_model is not None:
        return _only_meta_graph(path, saved_model)
    for message_type in _graph_types():
        message = _parsed(data, message_type())
        if message is not None and _is_graph(_graph_of(message)):
            return _as_meta_graph(message)
    raise BadInputError(
        f"{path}: truncated, or binary data of another kind ({len(data):,} bytes), where"
        f" {EXPECTED} was expected. Write or copy the file again."
    )


def _parsed_saved_model(data: bytes) -> Any:
    message = _parsed(data, _saved_model_type()())
    if message is None or not message.meta_graphs:
        return None
    if not all(_is_graph(meta.graph_def) for meta in message.meta_graphs):
        return None
    return message


def _parsed(data: bytes, message: Any) -> Any:
    from google.protobuf.message import DecodeError

    try:
        message.ParseFromString(data)
    except (DecodeError, ValueError):
        return None
    return message


def _parsed_text(text: str, message: Any) -> Any:
    parsed = _attempt_text(text, message)
    return None if isinstance(parsed, Exception) else parsed


def _attempt_text(text: str, message: Any) -> Any:
    """Return the parsed message, or the error that says where parsing failed."""
    from google.protobuf import text_format

    try:
        return text_format.Parse(text, message)
    except (text_format.ParseError, ValueError, RecursionError) as error:
        return error


def _is_graph(graph_def: Any) -> bool:
    return bool(graph_def.node) and all(node.name and node.op for node in graph_def.node)


def _graph_of(message: Any) -> Any:
    return getattr(message, "graph_def", message)


def _as_meta_graph(message: Any) -> Any:
    if hasattr(message, "graph_def"):
        return message
    meta = _graph_types()[0]()
    meta.graph_def.CopyFrom(message)
    return meta


def _graph_types() -> Sequence[Callable[[], Any]]:
    tf1 = tensorflow().compat.v1
    return tf1.MetaGraphDef, tf1.GraphDef


def _saved_model_type() -> Callable[[], Any]:
    tensorflow()
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

    saved_model_type: Callable[[], Any] = SavedModel
    return saved_model_type


def _wrong_container(path: Path, found: str, kind: str) -> BadInputError:
    return BadInputError(f"{path}: {found}, where {EXPECTED} was expected. {_REMEDIES[kind]}.")
