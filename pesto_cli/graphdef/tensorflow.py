"""The one place that imports TensorFlow, so that it starts late and quietly."""

import contextlib
import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from typing import Any


def tensorflow() -> Any:
    """Return the `tensorflow` module, imported on first use (seconds) and without its notices.

    Who imports TensorFlow first decides how loud it is: where a script has done so before pesto,
    its log settings stay as they are. `TF_CPP_MIN_LOG_LEVEL` is respected where it is set.
    """
    if "tensorflow" not in sys.modules:
        # Both bring a protobuf library of their own, and some of its symbols hold for the whole
        # process: OR-Tools 9.15 crashes as it solves if TensorFlow 2.21 was first.
        from ortools.sat.python import cp_model  # noqa: F401

        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        with _stderr_shown_only_on_failure():
            import tensorflow as tf
        tf.get_logger().setLevel(logging.ERROR)
    import tensorflow as tf

    return tf


@contextlib.contextmanager
def _stderr_shown_only_on_failure() -> Iterator[None]:
    """Hold back what is written to file descriptor 2.

    While its shared libraries load, TensorFlow writes to the descriptor itself and heeds no level.
    """
    sys.stderr.flush()
    saved = os.dup(2)
    with tempfile.TemporaryFile() as held_back:
        os.dup2(held_back.fileno(), 2)
        try:
            yield
        except Exception:  # not Ctrl-C, of which the user knows
            held_back.seek(0)
            os.write(saved, held_back.read())
            raise
        finally:
            os.dup2(saved, 2)
            os.close(saved)
