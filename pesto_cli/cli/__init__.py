"""The command line: each command reads, calls, writes and echoes."""

import sys

import click

from pesto_cli import __version__
from pesto_cli.cli.bench import bench
from pesto_cli.cli.costs import comm, profile
from pesto_cli.cli.graphs import apply, export
from pesto_cli.cli.placing import coarsen, compare, simulate, solve
from pesto_cli.cli.running import run, worker
from pesto_cli.errors import BUG, INTERRUPTED, EnvironmentFailedError, PestoError


def main() -> None:
    """Run the command line, and turn every outcome into its exit code."""
    try:
        cli(standalone_mode=False)
    except click.exceptions.Exit as exit_:
        sys.exit(exit_.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except PestoError as error:
        click.echo("\n\n".join([f"Error: {error}", *getattr(error, "__notes__", [])]), err=True)
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("Interrupted.", err=True)
        sys.exit(INTERRUPTED)
    except OSError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(EnvironmentFailedError.exit_code)
    except Exception:
        import traceback

        traceback.print_exc()
        click.echo("This is a bug in pesto: please report it with the lines above.", err=True)
        sys.exit(BUG)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="pesto")
def cli() -> None:
    """Place the ops of a TensorFlow training graph on several devices.

    \b
    pesto export  zoo:RNNLM-2-2048 -o rnnlm.meta
    pesto profile rnnlm.meta --machine v100x2-nvlink -o rnnlm.profile.json
    pesto solve   rnnlm.profile.json -o rnnlm.placement.json
    pesto apply   rnnlm.meta rnnlm.placement.json -o rnnlm.placed.meta
    """  # noqa: D301  click reads the \\b


for command in (
    export,
    profile,
    comm,
    coarsen,
    solve,
    simulate,
    compare,
    apply,
    run,
    worker,
    bench,
):
    cli.add_command(command)
