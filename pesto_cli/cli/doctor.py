"""`doctor` and `completion`: about pesto itself."""

from dataclasses import asdict

import click
from click.shell_completion import get_completion_class

from pesto_cli.cli.activity import activity
from pesto_cli.cli.options import json_option, quiet_option
from pesto_cli.cli.output import echo_json
from pesto_cli.errors import BadInputError, EnvironmentFailedError


@click.command(short_help="Check the installation: versions, solvers, devices.")
@json_option
@quiet_option("only the checks that did not pass")
def doctor(as_json: bool, quiet: bool) -> None:
    """Check the installation: versions, solvers, devices and their limits.

    The exit code is 5 if something that pesto needs does not work.
    """
    from pesto_cli.doctor import Outcome, checks
    from pesto_cli.report.checks import checks_table
    from pesto_cli.report.layouts import print_layouts

    with activity("looking at solvers and devices", quiet):
        found = checks()
    shown = [check for check in found if not quiet or check.verdict is not Outcome.OK]
    if as_json:
        echo_json([asdict(check) for check in shown])
    elif shown:
        print_layouts([checks_table(shown)])
    failed = [check.name for check in found if check.verdict is Outcome.FAIL]
    if failed:
        raise EnvironmentFailedError(
            f"pesto needs {', '.join(failed)}, which failed on this machine; follow the advice "
            "above."
        )


@click.command(short_help="Print a script that completes pesto's commands in a shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print a script with which SHELL completes pesto's commands, options, names and files at TAB.

    \b
    bash: mkdir -p ~/.local/share/bash-completion/completions
          pesto completion bash > ~/.local/share/bash-completion/completions/pesto
    zsh:  mkdir -p ~/.zfunc; pesto completion zsh > ~/.zfunc/_pesto
          and in ~/.zshrc: fpath=(~/.zfunc $fpath); autoload -Uz compinit; compinit
    fish: mkdir -p ~/.config/fish/completions
          pesto completion fish > ~/.config/fish/completions/pesto.fish
    """  # noqa: D301  click reads the \\b
    kind = get_completion_class(shell)
    if kind is None:
        raise BadInputError(f"shell {shell!r} is unknown; bash, zsh or fish was expected.")
    click.echo(kind(context.find_root().command, {}, "pesto", "_PESTO_COMPLETE").source().strip())
