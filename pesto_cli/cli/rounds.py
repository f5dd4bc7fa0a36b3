"""`rounds`: what a tuning has measured and decided, from its log."""

from pathlib import Path
from typing import Any

import click

from pesto_cli.cli.activity import activity
from pesto_cli.cli.options import PATH, json_option, quiet_option
from pesto_cli.cli.output import check_output, echo, echo_json
from pesto_cli.cli.tuning import answer_text, decision_json, factors_text
from pesto_cli.errors import BadInputError


@click.command(short_help="Show the rounds of a tuning LOG, and its decision.")
@click.argument("log", type=PATH)
@click.option("--plot", type=PATH, help="Draw predicted and measured steps (.svg, .png, .html).")
@json_option
@quiet_option()
def rounds(log: Path, plot: Path | None, as_json: bool, quiet: bool) -> None:
    """Show the rounds of a tuning LOG, and its decision; nothing is run.

    LOG is a file that `pesto tune --log` wrote. For each round: predicted and measured steps of its
    candidates. Then the candidates that did not run, the factors that were fitted to the measured
    steps, with their standard deviations, and the answer.
    """
    from pesto_cli.files import read_tuning_log
    from pesto_cli.report.charts import check_chart_path, write_chart
    from pesto_cli.report.tuning_plot import tuning_chart
    from pesto_cli.tuning.tuned import decided

    if plot is not None:
        check_output(plot, log)
        check_chart_path(plot)
    known = read_tuning_log(log)
    if not known.rounds:
        raise BadInputError(
            f"{log} has no round: the tuning ended before its first one; at least one was "
            f"expected: continue it (pesto tune GRAPH ... --log {log})."
        )
    with activity("correcting the costs by the measured steps", quiet):
        found = decided(known)
    if plot is not None:
        write_chart(plot, tuning_chart(known, log.name))
    if as_json:
        record = decision_json(known, found.choice, found.costs.fit)
        echo_json({"is_final": found.is_final, "not_run": _not_run(known), **record})
    elif not quiet:
        _show(known, found)


def _show(log: Any, found: Any) -> None:
    from pesto_cli.report.layouts import print_layouts
    from pesto_cli.report.tuning import round_tables

    print_layouts(round_tables(log))
    if not_run := _not_run(log):
        echo(f"Not run: {'; '.join(not_run)}.")
    echo(factors_text(found.costs.fit))
    echo(answer_text(found.choice, found.measured.times.median_us, is_final=found.is_final))


def _not_run(log: Any) -> list[str]:
    """Return the names of the candidates without measured steps."""
    ran = {row.candidate for each in log.rounds for row in each.measured}
    return [each.name for each in log.candidates if each.name not in ran]
