"""Load what pesto's commands need, in a process that is then forked for each of them."""

from importlib import import_module

from pesto_cli import api
from pesto_cli.graphdef.tensorflow import tensorflow

LAZY = (
    *("altair", "scipy.optimize", "vl_convert", "pesto_cli.cli", "pesto_cli.ilp.cpsat"),
    *("pesto_cli.report.layouts", "pesto_cli.report.progress", "pesto_cli.report.tables"),
)


def load() -> None:
    """Import and compile it without starting threads, which forks would lack."""
    tensorflow()
    for name in LAZY:
        import_module(name)
    api.warm_up()
