"""The command line: each command reads its inputs, calls the API, writes its outputs and prints."""

import errno
import io
import os
import sys

import click

from pesto_cli import __version__
from pesto_cli.cli.bench import bench
from pesto_cli.cli.checking import check, diff
from pesto_cli.cli.completing import add_completers
from pesto_cli.cli.costs import comm, profile
from pesto_cli.cli.doctor import completion, doctor
from pesto_cli.cli.explaining import explain
from pesto_cli.cli.graphs import apply, export
from pesto_cli.cli.numba_cache import kernel_cache
from pesto_cli.cli.options import max_input_option
from pesto_cli.cli.output import echo, echo_text
from pesto_cli.cli.place import place
from pesto_cli.cli.placing import coarsen, compare, simulate, solve
from pesto_cli.cli.reporting import report
from pesto_cli.cli.rounds import rounds
from pesto_cli.cli.running import run, worker
from pesto_cli.cli.signals import signals_as_such
from pesto_cli.cli.streams import open_standard_streams
from pesto_cli.cli.training import train
from pesto_cli.cli.tuning import tune
from pesto_cli.errors import BUG, INTERRUPTED, READER_LEFT, EnvironmentFailedError, PestoError
from pesto_cli.garbage import collect_rarely


def main() -> None:
    """Run the command line, and exit with the code of its outcome."""
    open_standard_streams()
    collect_rarely()
    stdout = sys.stdout
    if isinstance(stdout, io.TextIOWrapper):
        stdout.reconfigure(errors="replace")  # a locale may lack the characters of a table
    try:
        with kernel_cache(), signals_as_such():
            cli(standalone_mode=False)
        click.echo(nl=False)  # flushes, where there is a stdout
    except click.exceptions.Exit as exit_:
        sys.exit(exit_.exit_code)
    except click.ClickException as error:
        message = io.StringIO()
        error.show(message)
        echo_text(message.getvalue().rstrip("\n"), err=True)
        sys.exit(error.exit_code)
    except PestoError as error:
        echo(f"Error: {error}", err=True)
        for note in getattr(error, "__notes__", ()):
            echo_text(f"\n{note}", err=True)
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        # The interrupt may have left an object half-built; TensorFlow's finalisers fail for these.
        sys.unraisablehook = lambda _: None
        echo("Interrupted.", err=True)
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        # The reader of stdout has exited, as `| head` does. Keep the interpreter from flushing it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(READER_LEFT)
    except SystemExit:
        if sys.stdout is not stdout:  # click found a broken pipe, and exits with 1
            sys.exit(READER_LEFT)
        raise
    except MemoryError as error:
        echo(f"Error: the memory is full ({error}); use a machine with more memory.", err=True)
        sys.exit(EnvironmentFailedError.exit_code)
    except OSError as error:
        text = str(error)
        if error.errno == errno.ENOSPC and error.filename is None:  # errors of files name them
            text = f"the standard output cannot be written: {error.strerror}; free space there."
        echo(f"Error: {text}", err=True)
        sys.exit(EnvironmentFailedError.exit_code)
    except Exception:
        import traceback

        echo_text(traceback.format_exc().rstrip("\n"), err=True)
        echo("This is a bug in pesto: please report it with the lines above.", err=True)
        sys.exit(BUG)


class InOrder(click.Group):
    """A group that lists its commands in the order in which they were added."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands."""
        return list(self.commands)


@click.group(
    cls=InOrder, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@max_input_option
@click.version_option(__version__, prog_name="pesto")
def cli() -> None:
    """Place the ops of a TensorFlow training graph on several devices.

    \b
    pesto place zoo:RNNLM-2-2048 -m v100x2-nvlink -o rnnlm.placed.meta

    The same in single steps:

    \b
    pesto export  zoo:RNNLM-2-2048 -o rnnlm.meta
    pesto profile rnnlm.meta --machine v100x2-nvlink -o rnnlm.profile.json
    pesto solve   rnnlm.profile.json -o rnnlm.placement.json
    pesto apply   rnnlm.meta rnnlm.placement.json -o rnnlm.placed.meta
    """  # noqa: D301  click reads the \\b


for command in (
    place,
    export,
    profile,
    comm,
    coarsen,
    solve,
    simulate,
    compare,
    report,
    explain,
    check,
    diff,
    apply,
    run,
    tune,
    rounds,
    worker,
    train,
    bench,
    doctor,
    completion,
):
    cli.add_command(command)
add_completers(cli)
