"""Feeds of a step: batches from a file or a script, or small valid data.

A source of feeds is `FILE.npz`, with an array for every placeholder, or `SCRIPT.py:FUNCTION`. The
function has no arguments. It returns a dict of arrays, or an iterable of dicts, one for each step.
The default data is the same in every step: 0 for integers, which is a valid index of any table;
normally distributed floating-point numbers; False; empty strings.
"""

import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np

from pesto_cli.errors import BadInputError
from pesto_cli.files import check_input_size
from pesto_cli.files.arrays import write_arrays
from pesto_cli.files.writing import atomic_write
from pesto_cli.graphdef.fetches import (
    SHAPED_TYPES,
    declared_shape,
    dynamic_shape,
    fed_protos,
    step_protos,
    suggestion,
)
from pesto_cli.graphdef.scripts import script_failed, script_function
from pesto_cli.graphdef.signature import node_type
from pesto_cli.graphdef.tensorflow import tensorflow

# What follows the name of a placeholder in the name of the array of its lengths.
LENGTHS = ".lengths"
_END = object()

Batch = Mapping[str, Any]
"""Node name of a placeholder -> numpy array."""


@dataclass(frozen=True)
class Input:
    """A placeholder.

    dtype: a TensorFlow type. shape: sizes, where an open size is None; None if the rank is unknown.
    """

    name: str
    dtype: Any
    shape: Sequence[int | None] | None


def batches(meta: Any, source: str | None = None) -> Iterator[Batch]:
    """Yield the batches of the steps of a MetaGraphDef, without end.

    Raises BadInputError if the source cannot be read, lacks a placeholder that the fetches need, or
    has data of a wrong shape or type; and, without a source, if a shape is not static.
    """
    inputs = {node.name: _input(node) for node in meta.graph_def.node if node.op in SHAPED_TYPES}
    needed = tuple(node.name for node in fed_protos(step_protos(meta)))
    if source is None:
        return repeat({name: default_value(inputs[name]) for name in needed})
    # A map, because a generator would end with the first batch that is refused.
    return map(partial(_checked, inputs, needed, source), _given(source))


def default_value(placeholder: Input) -> Any:
    """Return small valid data for a placeholder of static shape."""
    shape, dtype = placeholder.shape, placeholder.dtype
    if dtype in (tensorflow().resource, tensorflow().variant):
        raise BadInputError(
            f"input {placeholder.name!r} is of type {dtype.name}, which cannot be fed; a type of "
            "data was expected: export the graph with its variables."
        )
    if shape is None or None in shape:
        known = "unknown" if shape is None else f"[{_sizes(shape)}]"
        raise BadInputError(
            f"{dynamic_shape(placeholder.name, known, shape or ())}, or give `pesto profile` or "
            "`pesto run` its data: --feeds FILE."
        )
    sizes = tuple(size for size in shape if size is not None)
    if dtype == tensorflow().string:
        return np.full(sizes, b"", dtype=object)
    if not (dtype.is_floating or dtype.is_complex):
        return np.zeros(sizes, dtype.as_numpy_dtype)
    return np.random.default_rng(0).normal(size=sizes).astype(dtype.as_numpy_dtype)


def _input(node: Any) -> Input:
    return Input(node.name, node_type(node, "dtype"), declared_shape(node))


def _checked(inputs: Mapping[str, Input], needed: Sequence[str], source: str, given: Any) -> Batch:
    """Return a batch with the names and types of the graph's placeholders.

    Raises:
        BadInputError: the batch is not a dict, or does not fit the placeholders.
    """
    if not isinstance(given, Mapping):
        raise BadInputError(
            f"{source}: a batch is a {type(given).__name__}; a dict with an array for each of "
            f"{', '.join(needed)} was expected."
        )
    batch = {str(getattr(key, "name", key)).removesuffix(":0"): given[key] for key in given}
    for name in batch:
        if name not in inputs:
            raise BadInputError(
                f"{source}: the graph has no placeholder {name!r}.{suggestion(name, inputs)}"
            )
    missing = [name for name in needed if name not in batch]
    if missing:
        raise BadInputError(
            f"{source}: there is no array for placeholder {missing[0]!r}; arrays for "
            f"{', '.join(needed)} were expected, and the batch has {', '.join(batch) or 'none'}."
        )
    return {name: _fitting(inputs[name], value, source) for name, value in batch.items()}


def _fitting(placeholder: Input, value: Any, source: str) -> Any:
    try:
        array, shape = np.asarray(value), placeholder.shape
    except Exception as error:  # of rows of different lengths, or of a symbolic tensor
        raise BadInputError(
            f"{source}: the value for placeholder {placeholder.name!r} is no array "
            f"({type(error).__name__}: {error}); an array was expected."
        ) from None
    wanted = np.dtype(placeholder.dtype.as_numpy_dtype)
    if array.dtype.kind == "V" and array.dtype.itemsize == wanted.itemsize:
        array = array.view(wanted)  # a type that numpy does not know, such as bfloat16
    fits = shape is None or (
        len(shape) == array.ndim
        and all(size in (None, given) for size, given in zip(shape, array.shape, strict=True))
    )
    if not fits or not _castable(array.dtype, wanted):
        expected = "any shape" if shape is None else f"shape [{_sizes(shape)}]"
        raise BadInputError(
            f"{source}: the array for placeholder {placeholder.name!r} is {array.dtype} of shape "
            f"[{_sizes(array.shape)}]; {placeholder.dtype.name} of {expected} was expected."
        )
    return array.astype(wanted, copy=False)


def _castable(given: Any, wanted: Any) -> bool:
    """Whether values can be cast to a type of the same kind; their precision may change."""
    if wanted.kind == "O":
        return given.kind in "OSU"
    return bool(np.can_cast(given, wanted, "same_kind") or {given.kind, wanted.kind} <= {"i", "u"})


def write_feeds(path: Path, feeds: Mapping[str, Any]) -> None:
    """Write a batch, one array for each placeholder, as a source of feeds.

    Arrays of objects are written as arrays of bytes, which numpy reads without the zeros at the end
    of each item. If there are such zeros, an array with the lengths of the items follows.
    """
    arrays = dict[str, Any]()
    for name, value in feeds.items():
        if value.dtype != object:
            arrays[name] = value
            continue
        items = [item.encode() if isinstance(item, str) else item for item in value.ravel()]
        arrays[name] = np.array(items, "S").reshape(value.shape)
        if any(item.endswith(b"\0") for item in items):
            arrays[name + LENGTHS] = np.array([*map(len, items)]).reshape(value.shape)
    data = BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        write_arrays(archive, arrays)
    atomic_write(path, data.getvalue())


def _with_lengths(arrays: Mapping[str, Any]) -> Batch:
    """Return the arrays of a file; see `write_feeds`."""
    joined = {name: array for name, array in arrays.items() if not _is_of_lengths(name, arrays)}
    for name, array in joined.items():
        if _is_of_lengths(name + LENGTHS, arrays):
            items = zip(array.ravel(), arrays[name + LENGTHS].ravel(), strict=True)
            joined[name] = np.array([item.ljust(size, b"\0") for item, size in items], object)
            joined[name] = joined[name].reshape(array.shape)
    return joined


def _is_of_lengths(name: str, arrays: Mapping[str, Any]) -> bool:
    """Return whether an array has the lengths of the items of another one."""
    items, lengths = arrays.get(name.removesuffix(LENGTHS)), arrays.get(name)
    if items is lengths or items is None or lengths is None or items.shape != lengths.shape:
        return False
    if (items.dtype.kind, lengths.dtype.kind) != ("S", "i"):
        return False
    return bool(((lengths >= 0) & (lengths <= items.dtype.itemsize)).all())


def source_file(source: str) -> Path:
    """Return the path of the file or script of a source of feeds.

    Raises BadInputError if the source has neither form, or the file does not exist.
    """
    script, colon, _ = source.rpartition(":")
    is_script = bool(colon) and script.endswith(".py")
    if not is_script and not source.endswith(".npz"):
        raise BadInputError(
            f"feeds {source!r}: this is neither an .npz file nor script.py:function; one of these "
            "was expected."
        )
    path = Path(script if is_script else source)
    if not path.is_file():
        raise BadInputError(f"feeds {source!r}: {path} does not exist; check the path.")
    return path


def _given(source: str) -> Iterator[Any]:
    """Yield the unchecked batches of a source, without end."""
    path = source_file(source)
    if path.suffix == ".npz":
        yield from repeat(_read(path))
    else:
        yield from _drawn(path, source.rpartition(":")[2])


def _read(path: Path) -> Batch:
    try:
        with np.load(path, allow_pickle=False) as file:
            entries = file.zip.infolist()
            check_input_size(path, sum(entry.file_size for entry in entries), "decompresses to")
            return _with_lengths(dict(file))
    except BadInputError:
        raise
    except Exception as error:  # numpy and zipfile raise a dozen kinds for a damaged file
        raise BadInputError(
            f"{path} cannot be read ({type(error).__name__}: {error}); a file written by "
            "numpy.savez was expected."
        ) from None


def _drawn(path: Path, name: str) -> Iterator[Any]:
    """Yield the batches that a function returns; call it again after its last batch."""
    from tensorflow.python.eager import context

    source = f"{path}:{name}"
    function = script_function(path, name)
    while True:
        num_batches = 0
        try:
            # The step runs in a graph. The function must not add ops to it.
            with context.eager_mode():
                given = function()
                batches = repeat(given) if isinstance(given, Mapping) else iter(given)
            while True:
                with context.eager_mode():
                    batch = next(batches, _END)
                if batch is _END:
                    break
                num_batches += 1
                yield batch
        except (Exception, SystemExit) as error:
            raise script_failed(path, source, "failed", error) from error
        if not num_batches:
            raise BadInputError(
                f"{source}: the function returned no batch; a dict of arrays, or an iterable of "
                "such dicts, was expected."
            )


def _sizes(shape: Sequence[int | None]) -> str:
    return ",".join("?" if size is None else str(size) for size in shape)
