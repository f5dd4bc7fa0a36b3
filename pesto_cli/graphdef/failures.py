"""What errors of TensorFlow and Keras say, in one line."""

import re

HEADINGS = r"Graph execution error:|\d+ root error\(s\) found\."
NODE = re.compile(r"^Node: .*\n", re.MULTILINE)
"""Ends the list of the lines of a program that made the node that failed."""

STYLE = re.compile(r"\x1b\[[0-9;]*m")
"""Has a terminal write bold or in colour, as Keras does."""


def reason(error: Exception) -> str:
    """Return the line of an error's message that says what is wrong, of several the first."""
    text = NODE.split(str(getattr(error, "message", error)))[-1]
    lines = (line.strip() for line in text.splitlines())
    found = (line for line in lines if line and not re.fullmatch(HEADINGS, line))
    return re.sub(r"^\(\d+\) [A-Z_]+: ", "", next(found, type(error).__name__))


def words(error: BaseException) -> str:
    """Return the whole message of an error on one line."""
    return " ".join(STYLE.sub("", str(error)).split())
