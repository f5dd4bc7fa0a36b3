"""How values look in a notebook: a card each, as HTML and as text.

`pesto_cli.api` registers the cards where it is imported within IPython; the values know nothing of
it.
"""

from pesto_cli.report.notebook.register import register

__all__ = ["register"]
