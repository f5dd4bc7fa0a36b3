"""Reading files, and writing JSON: bytes, JSON and TOML with one clear message for a bad one."""

import gzip
import hashlib
import json
import re
import tomllib
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from pesto_cli.errors import BadInputError, likely
from pesto_cli.files.writing import atomic_write

GRAPH_SUFFIXES = (".meta", ".pb", ".pbtxt")


def read_bytes(path: Path | str) -> bytes:
    """The content of a file, unpacked if it is gzip.

    Raises:
        BadInputError: the file is missing, unreadable or a truncated gzip.
    """
    try:
        data = Path(path).read_bytes()
        return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    except IsADirectoryError:
        graph = f" {_of_a_graph(path)}" if any(Path(path).glob("saved_model.pb*")) else ""
        raise BadInputError(f"{path} is a folder; a file was expected.{graph}") from None
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise BadInputError(f"{path} is a truncated or damaged gzip file; make it again.") from None
    except FileNotFoundError:
        raise BadInputError(f"{path} does not exist; give the path of a file.") from None
    except OSError as error:
        raise BadInputError(f"{path} cannot be read: {error.strerror}.") from None


def sha256(data: bytes) -> str:
    """Hex digest."""
    return hashlib.sha256(data).hexdigest()


def dumps(value: dict[str, Any]) -> bytes:
    """JSON with one top-level entry a line, so that files diff by part."""
    entries = (f"{json.dumps(key)}: {json.dumps(entry)}" for key, entry in value.items())
    return ("{\n" + ",\n".join(entries) + "\n}\n").encode()


def write_json(path: Path | str, value: dict[str, Any]) -> None:
    """Write a JSON file whole, packed if its name ends in `.gz`."""
    data = dumps(value)
    if Path(path).suffix == ".gz":
        data = gzip.compress(data, mtime=0)
    atomic_write(path, data)


# How git marks where one side of a merge begins.
CONFLICT = re.compile(rb"^<{7} ", re.MULTILINE)


class Schema(BaseModel):
    """Unknown keys are errors: a misspelt option must not be ignored in silence."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Extensible(BaseModel):
    """A table that may carry columns that this version does not read."""

    model_config = ConfigDict(extra="ignore", strict=True)


_Model = TypeVar("_Model", bound=BaseModel)


def parse_json(path: Path | str, data: bytes, form: str, what: str, schema: type[_Model]) -> _Model:
    """Parse version 1 of a JSON format; `what` says what was expected, and how to make it."""
    try:
        value = json.loads(data, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        if _is_graph(Path(path), data):
            raise BadInputError(
                f"{path} is a TensorFlow graph; a {what} was expected. {_of_a_graph(path)}"
            ) from None
        if CONFLICT.search(data):
            raise BadInputError(
                f"{path} has the conflict marks of a merge; a {what} was expected: take either "
                "side whole (git checkout --ours or --theirs), or make it again."
            ) from None
        kind = "cut short or damaged" if data[:1] == b"{" else "not JSON"
        raise BadInputError(
            f"{path} is {kind} ({error}); a {what} was expected: make it again."
        ) from None
    named = value.get("format") if isinstance(value, dict) else None
    if named != form:
        found = "no format" if named is None else f"format {named!r}"
        raise BadInputError(f"{path} has {found} where {form!r} was expected: give a {what}.")
    if value.get("version") != 1:
        raise BadInputError(
            f"{path} is version {value.get('version')} of {form}; this pesto reads version 1: "
            "make the file again with this pesto."
        )
    return validate(path, value, schema, f"a {what} was expected: make it again")


def _of_a_graph(path: Path | str) -> str:
    return f"Profile the graph first: pesto profile {path} -m MACHINE -o PROFILE"


def _is_graph(path: Path, data: bytes) -> bool:
    """By its name, or by how it begins: as a protocol buffer does with nodes in it, or as text."""
    if path.suffix in GRAPH_SUFFIXES or data.lstrip().startswith((b"node {", b"meta_info_def {")):
        return True
    return data[:1] == b"\n" and any(op in data for op in (b"NoOp", b"Const", b"Placeholder"))


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is no number in JSON; null was expected where there is none")


def validate(
    path: Path | str, value: Any, schema: type[_Model], remedy: str = "mend this entry"
) -> _Model:
    """Check a parsed file against its schema; the message names the first entry that breaks it."""
    try:
        return schema.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            *table, key = map(str, first["loc"])
            known = _keys(schema, table)
            raise BadInputError(
                f"{path}: {where} is an unknown key; one of {', '.join(known)} was expected."
                f"{likely(key, known)}"
            ) from None
        found = "" if first["type"] == "missing" else f" (found {str(first['input'])[:60]})"
        raise BadInputError(f"{path}: {where}: {first['msg']}{found}; {remedy}.") from None


def _keys(schema: type[BaseModel], table: Sequence[str]) -> Sequence[str]:
    """The keys that a table may have; `table` is the way to it, through keys, indices and names."""
    for part in table:
        field = schema.model_fields.get(part)
        for inner in () if field is None else (field.annotation, *get_args(field.annotation)):
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                schema = inner
    return tuple(schema.model_fields)


def read_toml(path: Path | str) -> dict[str, Any]:
    """Parse a TOML file."""
    try:
        return tomllib.loads(read_bytes(path).decode())
    except UnicodeDecodeError:
        raise BadInputError(
            f"{path} is not TOML but binary data; a text file was expected: give another one."
        ) from None
    except tomllib.TOMLDecodeError as error:
        raise BadInputError(f"{path} is not TOML: {error}; mend it there.") from None
