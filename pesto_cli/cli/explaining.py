"""`explain`: why an op runs where and when it does, and what the step time consists of."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from pesto_cli.cli.activity import activity
from pesto_cli.cli.options import PATH, json_option, quiet_option
from pesto_cli.cli.output import echo_json, echo_text


@click.command(short_help="Explain why OP runs where and when it does.")
@click.argument("profile", type=PATH)
@click.argument("placement", type=PATH)
@click.argument("op", required=False)
@json_option
@quiet_option("no progress, only the answer")
def explain(profile: Path, placement: Path, op: str | None, as_json: bool, quiet: bool) -> None:
    """Explain why OP runs where and when it does, and predict the step if OP ran elsewhere.

    OP is the name of an op, or of a part of an op that PLACEMENT splits. For an op that is split,
    explain predicts the step if OP were whole, or had more parts. A pattern ('*/MatMul*') or a
    prefix of names lists all matching ops, by start time. Without OP, explain shows the critical
    path of the schedule: the ops, transfers and waits, one after the other, that add up to the step
    time.
    """
    from pesto_cli import api
    from pesto_cli.report.layouts import print_layouts

    priced, placed = api.read_profile(profile), api.read_placement(placement)
    with activity(f"replaying {placement.name}", quiet):
        record, text, tables = _answer(priced, placed, op)
    if as_json:
        echo_json(record)
    else:
        if text:
            echo_text(text)
        print_layouts(tables)


def _answer(priced: Any, placed: Any, op: str | None) -> tuple[Any, str, Any]:
    """Return the explanation as a JSON value, as a text and as tables.

    If several ops match, the text is empty: the table has a title.
    """
    from pesto_cli import api
    from pesto_cli.api.explaining import explained_ops
    from pesto_cli.report.explanation.split import SplitFacts
    from pesto_cli.report.explanation.step_time import step_tables, step_text
    from pesto_cli.report.explanation.tables import (
        brief_table,
        op_tables,
        op_text,
        split_tables,
        split_text,
    )

    if op is None:
        step = api.explain_step(priced, placed)
        return asdict(step), step_text(step), step_tables(step)
    names = explained_ops(priced, placed, op)
    if len(names) == 1:
        facts = api.explain(priced, placed, names[0])
        if isinstance(facts, SplitFacts):
            return asdict(facts), split_text(facts), split_tables(facts)
        return asdict(facts), op_text(facts), op_tables(facts)
    briefs = api.explain_briefly(priced, placed, names)
    title = f"{len(names):,} ops match {op!r}"
    return list(map(asdict, briefs)), "", [brief_table(briefs, title)]
