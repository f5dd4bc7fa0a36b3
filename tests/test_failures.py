"""Long error messages of TensorFlow are reduced to the line that says what is wrong."""

import pytest

from pesto_cli.graphdef.failures import reason, words

CAUSE = "Attempting to use uninitialized value w"
DETECTED = """Graph execution error:

Detected at node 'w/read' defined at (most recent call last):
    File "train.py", line 3, in <module>
Node: 'w/read'
"""
TWICE = """2 root error(s) found.
  (0) FAILED_PRECONDITION: {}
\t [[{{{{node w/read}}}}]]
  (1) FAILED_PRECONDITION: {}
0 successful operations.
"""


@pytest.mark.parametrize(
    "message",
    [
        CAUSE,
        f"{CAUSE}\n\t [[{{{{node w/read}}}}]]",
        f"Graph execution error:\n\n{CAUSE}\n\t [[{{{{node w/read}}}}]]",
        f"{DETECTED}{CAUSE}\n\t [[{{{{node w/read}}}}]]",
        DETECTED + TWICE.format(CAUSE, CAUSE),
        f"From /job:worker/replica:0/task:0:\n{CAUSE}",
        f"=====================\nNOT_FOUND: From /job:worker/task:1:\n{CAUSE}",
    ],
)
def test_the_line_that_says_what_is_wrong_is_found(message: str) -> None:
    assert reason(RuntimeError(message)) == CAUSE


def test_an_error_without_a_message_is_reported_by_its_type() -> None:
    assert reason(RuntimeError("Graph execution error:")) == "RuntimeError"


def test_a_message_in_paragraphs_is_one_line() -> None:
    error = ValueError("In Dense.call().\n\n\x1b[1mNo such shape.\x1b[0m\n  - x: [4]\n")
    assert words(error) == "In Dense.call(). No such shape. - x: [4]"
