"""`check` and `diff`: whether a placement is up to date, and how two placements differ."""

from pathlib import Path

import click

from pesto_cli.cli.activity import activity
from pesto_cli.cli.options import (
    PATH,
    file_of,
    json_option,
    max_regression_option,
    quiet_option,
    summary_option,
)
from pesto_cli.cli.output import check_output, echo_json
from pesto_cli.errors import BadInputError, NotAsPlannedError


@click.command(short_help="Check whether PLACEMENT is fresh, stale or regressed.")
@click.argument("graph")
@click.argument("placement", type=PATH)
@click.option("--profile", type=PATH, help="Predict step time and memory by this profile of GRAPH.")
@max_regression_option("Fail if the step is slower than the stored prediction by more than this.")
@summary_option
@json_option
@quiet_option("only errors")
def check(
    graph: str,
    placement: Path,
    profile: Path | None,
    max_regression: float | None,
    summary: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Check whether PLACEMENT is fresh, stale or regressed; nothing is solved.

    Fresh: GRAPH, and the profile if given, are those that PLACEMENT was solved for. Stale: one of
    them has changed. Regressed: by the profile, the step is slower than the prediction stored in
    PLACEMENT, or exceeds the memory. GRAPH is an exported graph, or any source that export takes.
    The exit code is 1 unless PLACEMENT is fresh.
    """
    from pesto_cli import api
    from pesto_cli.diff import Freshness
    from pesto_cli.files.job_summary import append_summary
    from pesto_cli.report.diff import check_json, check_reasons, check_sections
    from pesto_cli.report.sections import print_sections, sections_markdown

    if max_regression is not None and profile is None:
        raise BadInputError(
            "--max-regression needs a new prediction of the step time; --profile was expected too."
        )
    if summary is not None:
        check_output(summary, file_of(graph), placement, profile)
    placed = api.read_placement(placement)
    priced = None if profile is None else api.read_profile(profile)
    with activity(f"reading {graph}", quiet):
        meta = api.read_graph(graph)
    found = api.check(meta, placed, priced, max_regression=max_regression, what=graph)
    title, sections = f"{placement.name}: {found.freshness}", check_sections(found)
    if summary is not None:
        append_summary(summary, sections_markdown(title, sections))
    if as_json:
        echo_json(check_json(found))
    elif not quiet:
        print_sections(title, sections)
    if found.freshness is not Freshness.FRESH:
        reasons = "; ".join(check_reasons(found))
        start = f" --warm-start {placement}" if found.graph.num_kept else ""
        raise NotAsPlannedError(
            f"{placement} is {found.freshness}: {reasons}; solve a profile of {graph} "
            f"(pesto solve ...{start})."
        )


@click.command()
@click.argument("first", type=PATH)
@click.argument("second", type=PATH)
@click.option("--profile", type=PATH, help="Predict both placements and the work of moved ops.")
@max_regression_option(
    "Fail if SECOND is slower than the stored prediction of FIRST by more than this."
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "md"]),
    default="text",
    show_default=True,
    help="Output format; md is for a comment on a pull request.",
)
@summary_option
@json_option
@quiet_option("only errors")
def diff(
    first: Path,
    second: Path,
    profile: Path | None,
    max_regression: float | None,
    form: str,
    summary: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Show how the SECOND placement differs from the FIRST.

    Lists the moved ops by scope, and step time, peak memory and bytes sent of both placements. A
    device that only changed its name is recognised.
    """
    from pesto_cli import api
    from pesto_cli.files.job_summary import append_summary
    from pesto_cli.report.diff import difference_json, difference_sections, slower_text
    from pesto_cli.report.sections import print_sections, sections_markdown

    if summary is not None:
        check_output(summary, first, second, profile)
    priced = None if profile is None else api.read_profile(profile)
    found = api.diff(api.read_placement(first), api.read_placement(second), priced)
    names = (str(first), str(second)) if first.name == second.name else (first.name, second.name)
    if names[0] == names[1]:
        names = ("first", "second")
    title, sections = " -> ".join(names), difference_sections(found, names)
    if summary is not None:
        append_summary(summary, sections_markdown(title, sections))
    if as_json or form == "json":
        echo_json(difference_json(found))
    elif form == "md":
        click.echo(sections_markdown(title, sections), nl=False)
    elif not quiet:
        print_sections(title, sections)
    slower_by = found.slower_by
    if max_regression is not None and slower_by is None:
        raise BadInputError(
            f"--max-regression: {first} or {second} has no predicted step time; placements by "
            "pesto solve, or --profile, were expected."
        )
    if max_regression is not None and slower_by is not None and slower_by > max_regression:
        raise NotAsPlannedError(
            f"the step by {second} is {slower_text(slower_by)} than the stored prediction of "
            f"{first}; at most {max_regression:.1%} was accepted (--max-regression)."
        )
