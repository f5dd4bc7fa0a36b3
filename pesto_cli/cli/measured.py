"""How commands show steps that they have run, and check that a placement was followed."""

from collections.abc import Sequence
from typing import Any

from pesto_cli.cli.output import echo
from pesto_cli.errors import BadInputError, NotAsPlannedError
from pesto_cli.printable import printable

SHOWN_DEPARTURES = 50


def show_runs(rows: Sequence[Any], what: str, remark: str) -> None:
    """Print the table of runs, and remarks on them."""
    from pesto_cli.report.counts import count_text
    from pesto_cli.report.layouts import print_layouts
    from pesto_cli.report.runs import busy_note, runs_table

    steps = count_text(rows[0].times.us.size, "step")
    print_layouts([runs_table(f"{what}, {steps}", rows)])
    if remark:
        echo(remark, err=True)
    if note := busy_note(rows):
        echo(note, err=True)


def check_as_planned(name: str, verification: Any, quiet: bool) -> None:
    """Fail if a step did not run as planned; the error lists the deviations."""
    departures = verification.departures
    if not verification.num_nodes:
        raise BadInputError(
            "--verify: TensorFlow makes no trace of the training steps of a Keras model, so "
            f"{name} cannot be verified; a program with sessions, or a graph, was expected: run "
            "the captured graph (pesto run GRAPH --placement PLACEMENT --verify)."
        )
    if departures:
        error = NotAsPlannedError(
            f"{name}: {len(departures)} deviations from the placement, where "
            f"{verification.num_nodes} nodes on their devices and {verification.num_ops} ops in "
            "their order were expected: TensorFlow overrode the placement; export the graph with "
            "this version of pesto, and place it again."
        )
        lines = [f"{row.name}: planned {row.planned}, ran {row.found}" for row in departures]
        if len(lines) > SHOWN_DEPARTURES:
            lines[SHOWN_DEPARTURES:] = [f"... and {len(departures) - SHOWN_DEPARTURES} more"]
        error.add_note("\n".join(map(printable, lines)))
        raise error
    if not quiet:
        order = f", {verification.num_ops} ops in their order" if verification.num_ops else ""
        echo(f"{name}: {verification.num_nodes} nodes on their devices{order}.", err=True)
