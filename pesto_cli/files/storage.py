"""Writes JSON, and parses JSON and TOML with one clear message for a malformed file."""

import gzip
import hashlib
import json
import re
import tomllib
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from pesto_cli.errors import BadInputError
from pesto_cli.files.reading import of_a_graph, read_bytes
from pesto_cli.files.schema_errors import problem_of
from pesto_cli.files.writing import atomic_write

GRAPH_SUFFIXES = (".meta", ".pb", ".pbtxt")


def sha256(data: bytes) -> str:
    """Return the SHA-256 of some data as a hex digest."""
    return hashlib.sha256(data).hexdigest()


def dumps(value: dict[str, Any]) -> bytes:
    """Return JSON with one line for each top-level entry, so that a diff shows which part changed.

    In Python, a path that is not UTF-8 has lone surrogates. `loads` refuses them, so each is
    written as `?`.
    """
    text = _entry_by_entry(value)
    if SURROGATE.search(text):
        whole = json.dumps(value, ensure_ascii=False).encode(errors="replace")
        text = _entry_by_entry(json.loads(whole))
    return text.encode()


def _entry_by_entry(value: dict[str, Any]) -> str:
    entries = (f"{json.dumps(key)}: {json.dumps(entry)}" for key, entry in value.items())
    return "{\n" + ",\n".join(entries) + "\n}\n"


def write_json(path: Path | str, value: dict[str, Any]) -> None:
    """Write a JSON file whole, compressed if its name ends in `.gz`."""
    data = dumps(value)
    if Path(path).suffix == ".gz":
        data = gzip.compress(data, mtime=0)
    atomic_write(path, data)


# Git's marker at the start of a merge conflict.
CONFLICT = re.compile(rb"^<{7} ", re.MULTILINE)


class Schema(BaseModel):
    """A table in which unknown keys are errors: a misspelt key must not be ignored silently."""

    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)


class Extensible(BaseModel):
    """A table that may have more columns than this version reads."""

    model_config = ConfigDict(extra="ignore", strict=True, use_attribute_docstrings=True)


_Model = TypeVar("_Model", bound=BaseModel)


def parse_json(
    path: Path | str, data: bytes, form: str, what: str, schema: type[_Model], newest: int = 1
) -> _Model:
    """Parse a JSON file of the format `form`, in version 1 to `newest`.

    what: the expected file and the command that makes it, for error messages.

    Raises:
        BadInputError: the file has another format or version, or breaks the schema.
    """
    try:
        value = loads(data)
    except ValueError as error:
        if _is_graph(Path(path), data):
            raise BadInputError(
                f"{path} is a TensorFlow graph; a {what} was expected. {of_a_graph(path)}"
            ) from None
        if CONFLICT.search(data):
            raise BadInputError(
                f"{path} has the conflict markers of a merge; a {what} was expected: take one "
                "side completely (git checkout --ours or --theirs), or make the file again."
            ) from None
        kind = "truncated or damaged" if data[:1] == b"{" else "not JSON"
        raise BadInputError(
            f"{path} is {kind} ({error}); a {what} was expected: make it again."
        ) from None
    named = value.get("format") if isinstance(value, dict) else None
    if named != form:
        found = "no format" if named is None else f"format {named!r}"
        raise BadInputError(f"{path} has {found}, {form!r} was expected: give a {what}.")
    version = value.get("version")
    if version is True or version not in range(1, newest + 1):
        versions = "version 1" if newest == 1 else f"versions 1 to {newest}"
        raise BadInputError(
            f"{path} is version {version} of {form}; this pesto reads {versions}: "
            "make the file again with this pesto."
        )
    return validate(path, value, schema, f"make the {what} again")


def _is_graph(path: Path, data: bytes) -> bool:
    """Return whether a file is a graph, by its name or by its first bytes, binary or text."""
    if path.suffix in GRAPH_SUFFIXES or data.lstrip().startswith((b"node {", b"meta_info_def {")):
        return True
    return data[:1] == b"\n" and any(op in data for op in (b"NoOp", b"Const", b"Placeholder"))


# Deeper than any of the formats, and far below Python's recursion limit.
MAX_DEPTH = 100
# One half of a surrogate pair; a lone one cannot be encoded.
SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def loads(data: bytes) -> Any:
    """Parse JSON; refuse values that could not be written or printed again.

    Raises:
        ValueError: the JSON is damaged or nested too deeply, or a text has a lone surrogate.
    """
    try:
        text = data.decode(json.detect_encoding(data))
        value = json.loads(text, parse_constant=_no_number)
    except RecursionError:
        raise _too_deep() from None
    for _ in _levels(value):
        pass
    if SURROGATE.search(text):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            near = ascii(error.object[max(0, error.start - 20) : error.end + 20])
            raise ValueError(f"half of a surrogate pair in a text, at {near}") from None
    return value


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is not a number in JSON; null was expected for a missing number")


def _levels(value: Any) -> Iterator[list[Any]]:
    """Yield the lists and tables of each nesting level of a value, beginning with the value."""
    level = [value] if isinstance(value, list | dict) else []
    for _ in range(MAX_DEPTH):
        if not level:
            return
        yield level
        level = [inner for outer in level for inner in _held(outer) if type(inner) in (list, dict)]
    if level:
        raise _too_deep()


def _held(container: list[Any] | dict[str, Any]) -> Iterable[Any]:
    return container.values() if isinstance(container, dict) else container


def _too_deep() -> ValueError:
    return ValueError(f"it is nested more than {MAX_DEPTH} deep")


def validate(path: Path | str, value: Any, schema: type[_Model], remedy: str = "") -> _Model:
    """Return a parsed file as its schema.

    remedy: for the error message; "" if the user can correct an entry of the file.

    Raises:
        BadInputError: an entry breaks the schema; the message names the first one.
    """
    try:
        return schema.model_validate(value)
    except ValidationError as error:
        raise BadInputError(f"{path}: {problem_of(schema, value, error, remedy)}") from None


# A dotted key of many parts; the time of `tomllib` is quadratic in their number.
LONG_KEY = re.compile(
    r"""(?:^|[\[{,])[ \t]*(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*)"""
    f"{{{MAX_DEPTH}}}",
    re.MULTILINE,
)


def read_toml(path: Path | str) -> dict[str, Any]:
    """Parse a TOML file."""
    try:
        return _parsed_toml(read_bytes(path).decode())
    except UnicodeDecodeError:
        raise BadInputError(
            f"{path} is binary data, not TOML; a text file was expected: give another file."
        ) from None
    except ValueError as error:
        raise BadInputError(f"{path} is not TOML: {error}; correct it there.") from None


def _parsed_toml(text: str) -> dict[str, Any]:
    """Parse TOML; raise ValueError for numbers of more than 64 bits and for deep nesting."""
    if LONG_KEY.search(text):
        raise _too_deep()
    try:
        value = tomllib.loads(text)
    except RecursionError:
        raise _too_deep() from None
    for level in _levels(value):
        for each in chain.from_iterable(map(_held, level)):
            if isinstance(each, int) and not -(2**63) <= each < 2**63:
                raise ValueError("a whole number has more than 64 bits")
    return value
