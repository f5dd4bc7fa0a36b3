"""`explain`: why an op runs where and when it does, and where a step's time goes."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from pesto_cli.cli.activity import activity
from pesto_cli.cli.options import PATH, echo_json, echo_text, json_option, quiet_option


@click.command(short_help="Tell why OP runs where and when it does.")
@click.argument("profile", type=PATH)
@click.argument("placement", type=PATH)
@click.argument("op", required=False)
@json_option
@quiet_option("no progress, only the answer")
def explain(profile: Path, placement: Path, op: str | None, as_json: bool, quiet: bool) -> None:
    """Tell why OP runs where and when it does, and what the step would take if it ran elsewhere.

    OP is a name. A pattern ('*/MatMul*') or the beginning of names lists all ops that fit, by
    time. Without OP: the chain of ops, transfers and waits that makes the step as long as it is.
    """
    from pesto_cli import api
    from pesto_cli.report.layouts import print_layouts

    priced, placed = api.read_profile(profile), api.read_placement(placement)
    with activity(f"replaying {placement.name}", quiet):
        record, text, tables = _answer(priced, placed, op)
    if as_json:
        echo_json(record)
    else:
        echo_text(text)
        print_layouts(tables)


def _answer(priced: Any, placed: Any, op: str | None) -> tuple[Any, str, Any]:
    """What is known for a machine; and for a person, in sentences and tables."""
    from pesto_cli import api
    from pesto_cli.report.explanation.matching import matching_ops
    from pesto_cli.report.explanation.step_time import step_tables, step_text
    from pesto_cli.report.explanation.tables import brief_table, op_tables, op_text

    if op is None:
        step = api.explain_step(priced, placed)
        return asdict(step), step_text(step), step_tables(step)
    names = matching_ops(priced.problem.graph, op)
    if len(names) == 1:
        facts = api.explain(priced, placed, names[0])
        return asdict(facts), op_text(facts), op_tables(facts)
    briefs = api.explain_briefly(priced, placed, names)
    return list(map(asdict, briefs)), f"{len(names):,} ops fit {op!r}", [brief_table(briefs)]
