"""Strategies: one file each, one line in `STRATEGIES`."""

from collections.abc import Mapping

from pesto_cli.strategies.expert import expert
from pesto_cli.strategies.pesto import pesto
from pesto_cli.strategies.round_robin import round_robin
from pesto_cli.strategies.search import Answer, Search, Strategy
from pesto_cli.strategies.single import single

STRATEGIES: Mapping[str, Strategy] = {
    "single": single,
    "round-robin": round_robin,
    "expert": expert,
    "pesto": pesto,
}

__all__ = ["STRATEGIES", "Answer", "Search", "Strategy"]
