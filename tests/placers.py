"""The strategies that can be used for every problem, without TensorFlow."""

from pesto_cli.strategies import STRATEGIES
from pesto_cli.strategies.context import learns, needs_parts

PLACERS = [
    name for name, each in STRATEGIES.builtin.items() if not needs_parts(each) and not learns(each)
]
"""Those that need no prices of parts, and train no policy."""
