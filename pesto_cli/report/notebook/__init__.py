"""The representations of values in a notebook: a card for each type, as HTML and as text.

`pesto_cli.api` registers the cards when it is imported in IPython. The classes of the values do not
depend on this package.
"""

from pesto_cli.report.notebook.register import register

__all__ = ["register"]
