"""Reduce the error messages of TensorFlow and Keras to one line."""

import re

HEADINGS = r"Graph execution error:|\d+ root error\(s\) found\.|=+|([A-Z_]+: )?From /job:\S+:"
NODE = re.compile(r"^Node: .*\n", re.MULTILINE)
"""The last line of TensorFlow's listing of the program lines that built the failed node."""

STYLE = re.compile(r"\x1b\[[0-9;]*m")
"""Terminal escape sequences for bold and coloured text, which Keras writes into messages."""


def reason(error: Exception) -> str:
    """Return the first line of an error's message that says what is wrong."""
    text = NODE.split(str(getattr(error, "message", error)))[-1]
    lines = (line.strip() for line in text.splitlines())
    found = (line for line in lines if line and not re.fullmatch(HEADINGS, line))
    return re.sub(r"^\(\d+\) [A-Z_]+: ", "", next(found, type(error).__name__))


def words(error: BaseException) -> str:
    """Return the whole message of an error on one line."""
    return " ".join(STYLE.sub("", str(error)).split())
