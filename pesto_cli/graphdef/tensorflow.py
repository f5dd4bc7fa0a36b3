"""Import TensorFlow only here, on first use and without its log messages."""

import contextlib
import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from typing import Any


def tensorflow() -> Any:
    """Return the `tensorflow` module; import it on first use, which takes seconds.

    Its log messages are turned off, unless a script has imported TensorFlow before pesto: then the
    script's log settings stay. `TF_CPP_MIN_LOG_LEVEL` is respected if it is set.
    """
    if "tensorflow" not in sys.modules:
        # OR-Tools and TensorFlow each contain a protobuf library, with symbols that are shared in
        # the process: OR-Tools 9.15 crashes when it solves if TensorFlow 2.21 was imported first.
        from ortools.sat.python import cp_model  # noqa: F401

        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        # Otherwise a process that only builds a graph takes the memory of a GPU until it ends.
        os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
        with _stderr_shown_only_on_failure():
            import tensorflow as tf
        tf.get_logger().setLevel(logging.ERROR)
    import tensorflow as tf

    return tf


@contextlib.contextmanager
def _stderr_shown_only_on_failure() -> Iterator[None]:
    """Suppress output to file descriptor 2 within the context; write it out if an error is raised.

    While its shared libraries are loaded, TensorFlow writes to the file descriptor directly and
    ignores log levels.
    """
    sys.stderr.flush()
    saved = os.dup(2)
    with tempfile.TemporaryFile() as held_back:
        os.dup2(held_back.fileno(), 2)
        try:
            yield
        except Exception:  # Not KeyboardInterrupt: then the output is of no interest.
            held_back.seek(0)
            os.write(saved, held_back.read())
            raise
        finally:
            os.dup2(saved, 2)
            os.close(saved)
