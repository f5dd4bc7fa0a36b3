"""Texts for terminals: names from files and other programs are escaped, long lists are cut."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any


def printable(text: str) -> str:
    """Return the text on one line, with every invisible character escaped as in Python source.

    Escaped are control characters (and so escape sequences and line ends), marks of writing
    direction, other invisible characters, and surrogates, which cannot be encoded. The rule is that
    of `str.isprintable`. A printable text is returned unchanged, so the function is idempotent.
    """
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in text
    )


def first_of(texts: Sequence[str], most: int, separator: str = ", ") -> str:
    """Return the first `most` texts, joined, with `...` if there are more."""
    return separator.join([*texts[:most], *(["..."] if len(texts) > most else [])])


def printable_chart(value: Any) -> Any:
    """Return the data of a chart or page (nested dicts and lists) with all its texts printable.

    Tables that `report.pictures.rows` wrote into one text are not changed; they are printable
    already. In Vega they are `values`, or entries of `datasets` in a chart with parts.
    """
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, Mapping):
        return {printable(key): _printable_entry(key, entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return list(map(printable_chart, value))
    return value


def _printable_entry(key: str, entry: Any) -> Any:
    if key == "values" and isinstance(entry, str):
        return entry
    if key == "datasets" and isinstance(entry, Mapping):
        return {name: _printable_entry("values", table) for name, table in entry.items()}
    return printable_chart(entry)


def logger(name: str) -> logging.Logger:
    """Return the logger of a module; its messages are printable."""
    log = logging.getLogger(name)
    log.addFilter(_make_printable)
    return log


def _make_printable(record: logging.LogRecord) -> bool:
    record.msg, record.args = printable(record.getMessage()), None
    return True
