"""`report`: show placements on an HTML page."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from pesto_cli.cli.activity import activity
from pesto_cli.cli.options import PATH, json_option, quiet_option
from pesto_cli.cli.output import check_output, echo, echo_json
from pesto_cli.errors import BadInputError


@click.command(short_help="Show placements of PROFILE in one page of HTML.")
@click.argument("profile", type=PATH)
@click.argument("placements", type=PATH, nargs=-1, required=True, metavar="PLACEMENT...")
@click.option("-o", "--output", type=PATH, required=True, help="Where to write the page (.html).")
@json_option
@quiet_option()
def report(
    profile: Path, placements: tuple[Path, ...], output: Path, as_json: bool, quiet: bool
) -> None:
    """Show placements of PROFILE in one page of HTML that works offline.

    The page has a timeline, the critical path of the schedule, memory over time, the utilisation of
    devices and links, and the coarse graph. It compares several placements.
    """
    from pesto_cli import api

    check_output(output, profile, *placements)
    names = _names(placements)
    priced = api.read_profile(profile)
    placed = {name: api.read_placement(path) for name, path in zip(names, placements, strict=True)}
    num_bytes = write_page(output, priced, placed, profile.name, quiet)
    if as_json:
        echo_json({"output": str(output), "bytes": num_bytes, "placements": names})
    elif not quiet:
        echo(f"{output}: {num_bytes / 1e6:.2f} MB")


def write_page(path: Path, priced: Any, placed: Mapping[str, Any], title: str, quiet: bool) -> int:
    """Write the page of placements of a profile; return its size in bytes.

    placed: name on the page -> placement.
    """
    from pesto_cli import api
    from pesto_cli.files import atomic_write

    with activity(f"writing {path.name}", quiet):
        page = api.report(priced, placed, title).encode()
    atomic_write(path, page)
    return len(page)


def _names(placements: Sequence[Path]) -> list[str]:
    """Return the names of placements on the page: file names if they differ, else paths.

    Raises:
        BadInputError: a placement is given twice.
    """
    if len(set(placements)) < len(placements):
        twice = next(path for path in placements if placements.count(path) > 1)
        raise BadInputError(f"{twice} is given twice; give each placement once.")
    names = [path.name.removesuffix(".json").removesuffix(".placement") for path in placements]
    return names if len(set(names)) == len(names) else [str(path) for path in placements]
