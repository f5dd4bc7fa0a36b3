"""Run a script as a program: unmodified, as `__main__`, with its own arguments."""

import runpy
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from pesto_cli.errors import BadInputError, PestoError
from pesto_cli.graphdef.scripts import script_failed
from pesto_cli.graphdef.tensorflow import tensorflow


class ProgramStopped(SystemExit):
    """Exception that ends a program from inside a call that the program makes.

    It works like `sys.exit`: files are closed, `except Exception` does not catch it, and threads
    end without a message.
    """


def run_program(path: Path, argv: Sequence[str]) -> None:
    """Run the script at `path` as `python path *argv` would, until it ends or is stopped.

    Raises:
        BadInputError: the script does not exist, or fails; the error names the line.
    """
    if not path.is_file():
        raise BadInputError(f"{path}: no such script. Check the path.")
    tensorflow()  # Imported before the script does so, to log less.
    before = sys.argv, sys.path
    sys.argv, sys.path = [str(path), *argv], [str(path.parent.resolve()), *sys.path]
    try:
        runpy.run_path(str(path), run_name="__main__")
    except ProgramStopped:
        return
    except SystemExit as exit_:
        if exit_.code:
            how = "with exit code" if isinstance(exit_.code, int) else "by itself:"
            raise BadInputError(
                f"{path}: the script ended {how} {exit_.code}, where it was expected to run. Try it"
                f" without pesto: python {shlex.join([str(path), *argv])}"
            ) from exit_
    except PestoError:
        raise
    except Exception as error:
        raise script_failed(path, str(path), "failed", error) from error
    finally:
        sys.argv, sys.path = before
