"""Remove repeated computations and needless waiting from a step at export.

TensorFlow's own optimisers do so when a graph runs, but a placed graph runs without them. All
results stay the same to the last bit: the simplified step corresponds to one of the possible
execution orders of the original step.
"""

from collections.abc import Collection
from typing import Any

from pesto_cli.graphdef.fetches import fetch_names, node_name
from pesto_cli.graphdef.simplify.duplicates import merge_duplicates
from pesto_cli.graphdef.simplify.identities import bypass_identities


def simplify(meta: Any, planned: Collection[str] | None = None) -> None:
    """Simplify the step of a MetaGraphDef, in place.

    planned: op names of a step that was simplified at export. If given, the step is simplified to
        the same ops: these stay, and only they replace others.

    Fetched nodes stay. Removed nodes remain in the graph, because something outside the step may
    refer to them by name, but the step does not need them any more.
    """
    kept = {node_name(name) for name in fetch_names(meta)}.union(planned or ())
    bypass_identities(meta, kept)
    merge_duplicates(meta, kept, planned=planned is not None)
