"""Error messages for files that break their schema: the entry, what was found and expected."""

from collections.abc import Iterator, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from pesto_cli.errors import did_you_mean

# Type of a pydantic error -> what was expected. pydantic's own messages are for programmers.
EXPECTED = {
    "bool_type": "true or false",
    "dict_type": "a table",
    "float_type": "a number",
    "int_type": "a whole number",
    "list_type": "a list",
    "string_type": "a text",
    "greater_than": "a number {words}",
    "greater_than_equal": "a number {words}",
    "less_than": "a number {words}",
    "less_than_equal": "a number {words}",
    "too_long": "a list of at most {max_length}",
    "too_short": "a list of at least {min_length}",
}
# Characters of a value or name that a message shows.
SHOWN = 60

# The keys and indices that lead to an entry.
EntryPath = Sequence[str | int]


def problem_of(schema: type[BaseModel], value: Any, error: ValidationError, remedy: str) -> str:
    """Return what is wrong with the first wrong entry of a file, and the remedy.

    value: the parsed file. remedy: "" if the user can correct the entry.
    """
    errors = error.errors(include_url=False)
    first = errors[0]
    path, table = first["loc"], first["loc"][:-1]
    here = [each for each in errors if each["loc"][:-1] == table]
    missing = [str(each["loc"][-1]) for each in here if each["type"] == "missing"]
    unknown = [each["loc"] for each in here if each["type"] == "extra_forbidden"]
    if unknown and first["type"] in ("missing", "extra_forbidden"):
        lacks = f", and {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing"
        known = _table(schema, table).model_fields
        return (
            f"{_where(value, unknown[0])} is an unknown key{lacks if missing else ''}; one of "
            f"{', '.join(known)} was expected.{did_you_mean(str(unknown[0][-1]), known)}"
        )
    if first["type"] == "missing":
        return (
            f"{_where(value, table) or 'the file'} has no {path[-1]}; "
            f"{_needed(schema, path)} was expected: {remedy or 'add it'}."
        )
    return (
        f"{_where(value, path)} is {first['input']!r:.{SHOWN}}; "
        f"{_expected(schema, path, first)} was expected: {remedy or 'correct it'}."
    )


def _expected(schema: type[BaseModel], path: EntryPath, error: ErrorDetails) -> str:
    """Return what was expected at a path."""
    table, kind = _table(schema, path), error["type"]
    plural = "s" if len(table.model_fields) > 1 else ""
    keys = f"with the key{plural} {', '.join(table.model_fields)}"
    if kind == "model_type":
        return f"a table {keys}"
    if kind == "list_type" and table is not _table(schema, path[:-1]):
        return f"a list of tables {keys}, in TOML each under [[{_dotted(path)}]],"
    if kind == "int_type" and str(path[-1]).endswith("_bytes"):
        return "a whole number of bytes"
    words = error["msg"].removeprefix("Input should be ")
    return EXPECTED.get(kind, "{words}").format(words=words, **error.get("ctx", {}))


def _needed(schema: type[BaseModel], path: EntryPath) -> str:
    """Return what is expected at the path of a missing key: what a value of no type violates."""
    try:
        _table(schema, path[:-1]).model_validate({path[-1]: object()})
    except ValidationError as error:
        for each in error.errors(include_url=False):
            if each["loc"][0] == path[-1]:
                return _expected(schema, path, each)
    return "a value"


def _table(schema: type[BaseModel], path: EntryPath) -> type[BaseModel]:
    """Return the schema of the innermost table at a path."""
    for part in path:
        field = schema.model_fields.get(str(part))
        if field is not None:
            schema = next(_schemas(field.annotation), schema)
    return schema


def _schemas(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the schemas of tables within a type."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _schemas(inner)


def _where(value: Any, path: EntryPath) -> str:
    """Return a path as text, such as `devices.3 (GPU:2): kind`.

    The text in brackets is the name of the entry of a list; if lists are nested, the innermost one.
    """
    length, name = 0, ""
    for depth, part in enumerate(path, 1):
        if isinstance(value, list) and isinstance(part, int):
            value = value[part]
            if isinstance(value, dict):
                length, name = depth, _name(value, part)
        elif isinstance(value, dict):  # other parts are pydantic's names of forms of an entry
            value = value.get(part, value)
    if not length:
        return _dotted(path)
    rest = _dotted(path[length:])
    return f"{_dotted(path[:length])} ({name:.{SHOWN}})" + (f": {rest}" if rest else "")


def _name(entry: dict[str, Any], index: int) -> str:
    if isinstance(entry.get("name"), str):
        return str(entry["name"])
    if "src" in entry and "dst" in entry:
        return f"{entry['src']} -> {entry['dst']}"
    return f"entry {index + 1}"


def _dotted(path: EntryPath) -> str:
    return ".".join(map(str, path))
