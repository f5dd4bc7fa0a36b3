"""What TensorFlow's errors say, in one line."""

import re

HEADINGS = r"Graph execution error:|\d+ root error\(s\) found\."
NODE = re.compile(r"^Node: .*\n", re.MULTILINE)
"""Ends the list of the lines of a program that made the node that failed."""


def reason(error: Exception) -> str:
    """Return the line of an error's message that says what is wrong, of several the first."""
    text = NODE.split(str(getattr(error, "message", error)))[-1]
    lines = (line.strip() for line in text.splitlines())
    found = (line for line in lines if line and not re.fullmatch(HEADINGS, line))
    return re.sub(r"^\(\d+\) [A-Z_]+: ", "", next(found, type(error).__name__))
