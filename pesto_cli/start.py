"""The entry point of the command line: a Ctrl-C while modules are loaded prints no traceback."""

import sys

from pesto_cli.errors import INTERRUPTED


def main() -> None:
    """Load the command line, and run it."""
    try:
        from pesto_cli.cli import main as run
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        sys.exit(INTERRUPTED)
    run()
