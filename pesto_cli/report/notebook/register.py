"""Registering the cards of values in a running IPython."""

from collections.abc import Callable
from functools import partial
from typing import Any

from pesto_cli.data.coverage import Coverage
from pesto_cli.data.graph import OpGraph
from pesto_cli.data.machine import Machine
from pesto_cli.data.plan import Plan
from pesto_cli.data.problem import Problem
from pesto_cli.data.result import Comparison, Result
from pesto_cli.data.schedule import Placement, Schedule
from pesto_cli.files import PlacementFile, Profile
from pesto_cli.report.notebook import cards
from pesto_cli.report.notebook.card import Card


def register(shell: Any, critical_path_us: cards.CriticalPath) -> None:
    """Show values as cards, in `text/html` and in `text/plain`.

    shell: the result of IPython's `get_ipython()`.
    """
    card_of: dict[type, Callable[[Any], Card]] = {
        OpGraph: cards.graph_card,
        Problem: partial(cards.problem_card, critical_path_us=critical_path_us),
        Profile: partial(cards.profile_card, critical_path_us=critical_path_us),
        Machine: cards.machine_card,
        PlacementFile: cards.placement_card,
        Plan: cards.plan_card,
        Coverage: cards.coverage_card,
        Placement: cards.bare_placement_card,
        Schedule: cards.schedule_card,
        Result: cards.result_card,
        Comparison: cards.comparison_card,
    }
    formatters = shell.display_formatter.formatters
    for kind, card in card_of.items():
        formatters["text/html"].for_type(kind, _html(card))
        formatters["text/plain"].for_type(kind, _pretty(card))


def _html(card: Callable[[Any], Card]) -> Callable[[Any], str]:
    return lambda value: card(value).html()


def _pretty(card: Callable[[Any], Card]) -> Callable[[Any, Any, bool], None]:
    """Return a function with the signature of IPython's pretty printers."""
    return lambda value, printer, cycle: printer.text(card(value).text())
