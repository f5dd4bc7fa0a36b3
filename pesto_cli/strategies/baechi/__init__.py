"""Baechi's three placers (Jeon et al., SoCC '20), after the paper and the authors' program."""

from pesto_cli.strategies.baechi.m_etf import MEtf
from pesto_cli.strategies.baechi.m_sct import MSct
from pesto_cli.strategies.baechi.m_topo import MTopo
from pesto_cli.strategies.baechi.settings import RECIPE, SETTINGS, TOPO_RECIPE, Settings

__all__ = ["RECIPE", "SETTINGS", "TOPO_RECIPE", "MEtf", "MSct", "MTopo", "Settings"]
