"""What goes on while a command works, on stderr unless it is to be quiet."""

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any


@contextmanager
def activity(what: str, quiet: bool) -> Iterator[None]:
    """On a terminal, that this is what goes on, for as long as the context lasts."""
    from pesto_cli.report.progress import activity_on_stderr

    with ExitStack() as line:
        if not quiet:
            line.enter_context(activity_on_stderr(what))
        yield


@contextmanager
def searching(strategy: str, context: Any, quiet: bool) -> Iterator[Any]:
    """The same context, with progress on stderr."""
    from pesto_cli.report.progress import progress_on_stderr

    if quiet:
        yield context
        return
    with progress_on_stderr(strategy, context.limits) as tell:
        yield replace(context, on_progress=tell)


@contextmanager
def connected(machine: str, open_ports: bool, quiet: bool) -> Iterator[Any]:
    """The cluster that a `--machine` stands for; see `cluster.connected`."""
    from pesto_cli import api

    with ExitStack() as until_done:
        with activity(f"starting {machine}", quiet):
            cluster = until_done.enter_context(api.connected(machine, open_ports=open_ports))
        yield cluster


@contextmanager
def notes_of_profiles(quiet: bool) -> Iterator[None]:
    """Remarks on what is profiled; if it is to be quiet, they are in the profile alone."""
    log = logging.getLogger("pesto_cli.profile")
    before = log.level
    if quiet:
        log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)
