"""Writing JSON, and parsing JSON and TOML with one clear message for a bad one."""

import gzip
import hashlib
import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from pesto_cli.errors import BadInputError, likely
from pesto_cli.files.reading import of_a_graph, read_bytes
from pesto_cli.files.writing import atomic_write

GRAPH_SUFFIXES = (".meta", ".pb", ".pbtxt")


def sha256(data: bytes) -> str:
    """Hex digest."""
    return hashlib.sha256(data).hexdigest()


def dumps(value: dict[str, Any]) -> bytes:
    """JSON with one top-level entry a line, so that files diff by part.

    A path that is no UTF-8 has halves of surrogate pairs in Python. `loads` refuses these, so each
    becomes a `?`.
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
    """Write a JSON file whole, packed if its name ends in `.gz`."""
    data = dumps(value)
    if Path(path).suffix == ".gz":
        data = gzip.compress(data, mtime=0)
    atomic_write(path, data)


# How git marks where one side of a merge begins.
CONFLICT = re.compile(rb"^<{7} ", re.MULTILINE)


class Schema(BaseModel):
    """Unknown keys are errors: a misspelt option must not be ignored in silence."""

    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)


class Extensible(BaseModel):
    """A table that may carry columns that this version does not read."""

    model_config = ConfigDict(extra="ignore", strict=True, use_attribute_docstrings=True)


_Model = TypeVar("_Model", bound=BaseModel)


def parse_json(
    path: Path | str, data: bytes, form: str, what: str, schema: type[_Model], newest: int = 1
) -> _Model:
    """Parse a JSON format up to version `newest`; `what`: what was expected, and how to make it."""
    try:
        value = loads(data)
    except ValueError as error:
        if _is_graph(Path(path), data):
            raise BadInputError(
                f"{path} is a TensorFlow graph; a {what} was expected. {of_a_graph(path)}"
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
    if value.get("version") not in range(1, newest + 1):
        versions = "version 1" if newest == 1 else f"versions 1 to {newest}"
        raise BadInputError(
            f"{path} is version {value.get('version')} of {form}; this pesto reads {versions}: "
            "make the file again with this pesto."
        )
    return validate(path, value, schema, f"a {what} was expected: make it again")


def _is_graph(path: Path, data: bytes) -> bool:
    """By its name, or by how it begins: as a protocol buffer does with nodes in it, or as text."""
    if path.suffix in GRAPH_SUFFIXES or data.lstrip().startswith((b"node {", b"meta_info_def {")):
        return True
    return data[:1] == b"\n" and any(op in data for op in (b"NoOp", b"Const", b"Placeholder"))


# Deeper than any format, and far from where recursion ends.
MAX_DEPTH = 100
# Half of a surrogate pair, if none of the other half stands beside it.
SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def loads(data: bytes) -> Any:
    """Parse JSON whose texts and nesting can also be written and printed.

    Raises:
        ValueError: it is damaged, or nested too deeply, or a text has half of a surrogate pair.
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
    raise ValueError(f"{word} is no number in JSON; null was expected where there is none")


def _levels(value: Any) -> Iterator[list[Any]]:
    """Yield the lists and tables within a value, level by level, itself first."""
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


# A key of many parts, for which `tomllib` takes the square of their number.
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
            f"{path} is not TOML but binary data; a text file was expected: give another one."
        ) from None
    except ValueError as error:
        raise BadInputError(f"{path} is not TOML: {error}; mend it there.") from None


def _parsed_toml(text: str) -> dict[str, Any]:
    """Raise ValueError for what TOML has no room for: numbers beyond 64 bits, and deep nesting."""
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
