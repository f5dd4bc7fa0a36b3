"""The strategies that can be used for every problem."""

from pesto_cli.strategies import STRATEGIES
from pesto_cli.strategies.context import needs_parts

PLACERS = [name for name, each in STRATEGIES.builtin.items() if not needs_parts(each)]
"""Those that need no prices of parts."""
