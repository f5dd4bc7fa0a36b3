"""Baechi's three placers (Jeon et al., SoCC '20), after the paper and the authors' program."""

from pesto_cli.strategies.baechi.m_etf import m_etf
from pesto_cli.strategies.baechi.m_sct import m_sct
from pesto_cli.strategies.baechi.m_topo import m_topo
from pesto_cli.strategies.baechi.settings import RECIPE, SETTINGS, TOPO_RECIPE, Settings

__all__ = ["RECIPE", "SETTINGS", "TOPO_RECIPE", "Settings", "m_etf", "m_sct", "m_topo"]
