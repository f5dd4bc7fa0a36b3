"""`report`: show placements on an HTML page."""

import gc
from collections.abc import Sequence
from pathlib import Path

import click

from pesto_cli.cli.activity import activity
from pesto_cli.cli.options import PATH, check_output, echo, echo_json, json_option, quiet_option
from pesto_cli.errors import BadInputError

# A report makes millions of small objects that stay until the end. Python collects garbage after
# every 700 new objects, which would take a quarter of the report's time.
NEW_OBJECTS_PER_COLLECTION = 100_000


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
    from pesto_cli.files import atomic_write

    check_output(output, profile, *placements)
    names = _names(placements)
    gc.set_threshold(NEW_OBJECTS_PER_COLLECTION)
    priced = api.read_profile(profile)
    placed = {name: api.read_placement(path) for name, path in zip(names, placements, strict=True)}
    with activity(f"writing {output.name}", quiet):
        page = api.report(priced, placed, profile.name).encode()
    atomic_write(output, page)
    if as_json:
        echo_json({"output": str(output), "bytes": len(page), "placements": names})
    elif not quiet:
        echo(f"{output}: {len(page) / 1e6:.2f} MB")


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
