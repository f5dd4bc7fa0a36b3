"""Progress of a command on stderr, unless the command is quiet."""

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from typing import Any


@contextmanager
def activity(what: str, quiet: bool, *, is_long: bool = False) -> Iterator[None]:
    """Show on stderr what the command does, until the context ends; see `activity_on_stderr`."""
    from pesto_cli.report.progress import activity_on_stderr

    with ExitStack() as line:
        if not quiet:
            line.enter_context(activity_on_stderr(what, is_long=is_long))
        yield


@contextmanager
def searching(strategy: str, context: Any, quiet: bool) -> Iterator[Any]:
    """Yield a copy of the search context that shows progress on stderr; if quiet, the context."""
    from pesto_cli.report.progress import progress_on_stderr

    if quiet:
        yield context
        return
    with progress_on_stderr(strategy, context.limits) as show:
        yield replace(context, on_progress=show)


@contextmanager
def connected(machine: str, open_ports: bool, quiet: bool) -> Iterator[Any]:
    """Yield the cluster of a `--machine` option; see `cluster.connected`."""
    from pesto_cli import api

    with ExitStack() as until_done:
        with activity(f"starting {machine}", quiet):
            cluster = until_done.enter_context(api.connected(machine, open_ports=open_ports))
        yield cluster


def notes_of_profiles(quiet: bool) -> AbstractContextManager[None]:
    """Log the notes on a profile while it is made; if quiet, only the profile contains them."""
    return without_warnings("pesto_cli.profile") if quiet else nullcontext()


@contextmanager
def without_warnings(package: str) -> Iterator[None]:
    """Log no notes and warnings of a package."""
    log = logging.getLogger(package)
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)
