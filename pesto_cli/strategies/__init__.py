"""Strategies: one file each, one line in `STRATEGIES`."""

from collections.abc import Mapping

from pesto_cli.strategies.baechi import m_etf, m_sct, m_topo
from pesto_cli.strategies.dpos import dpos
from pesto_cli.strategies.expert import expert
from pesto_cli.strategies.heft import heft
from pesto_cli.strategies.metis import metis
from pesto_cli.strategies.pesto import pesto
from pesto_cli.strategies.random import random
from pesto_cli.strategies.round_robin import round_robin
from pesto_cli.strategies.search import Answer, Search, Strategy
from pesto_cli.strategies.single import single

STRATEGIES: Mapping[str, Strategy] = {
    "single": single,
    "round-robin": round_robin,
    "expert": expert,
    "m-topo": m_topo,
    "m-etf": m_etf,
    "m-sct": m_sct,
    "heft": heft,
    "fastt": dpos,
    "metis": metis,
    "random": random,
    "pesto": pesto,
}

__all__ = ["STRATEGIES", "Answer", "Search", "Strategy"]
