"""Names and texts of files and other programs, as a terminal may safely show them."""

import logging
from collections.abc import Mapping
from typing import Any


def printable(text: str) -> str:
    """The same text on one line, with all that is no visible character escaped as in Python.

    These are control characters, and with them escape sequences and ends of lines, marks for the
    direction of writing, other invisible characters, and surrogates, which no encoding has. The
    rule is that of `str.isprintable`. A printable text stays as it is: twice changes no more.
    """
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in text
    )


def printable_chart(value: Any) -> Any:
    """What a chart or a page is drawn from, in dicts and lists, with all texts made printable.

    Not a table that stands in a text, as `report.pictures.rows` writes it: that has been done. Vega
    has such tables as `values`, or by name in `datasets` where a chart has parts.
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
    """The logger of a module; what it tells is printable."""
    log = logging.getLogger(name)
    log.addFilter(_told_printably)
    return log


def _told_printably(record: logging.LogRecord) -> bool:
    record.msg, record.args = printable(record.getMessage()), None
    return True
