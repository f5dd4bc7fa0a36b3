"""What a program repeats, or makes wait for nothing, is left out of its step at export.

TensorFlow's own optimisers do so when a graph runs, but a placed graph runs without them. Every
result stays the same to the last bit: the simplified step does in one of its possible orders what
the step of the program does.
"""

from collections.abc import Collection
from typing import Any

from pesto_cli.graphdef.fetches import fetch_names, node_name
from pesto_cli.graphdef.simplify.duplicates import merge_duplicates
from pesto_cli.graphdef.simplify.identities import bypass_identities


def simplify(meta: Any, planned: Collection[str] | None = None) -> None:
    """Simplify the step of a MetaGraphDef, in place.

    planned: names of the ops of a step that was simplified at export, to which this one is to be
        made equal: what it has stays, and the rest is left out.

    What is fetched stays. So do nodes that are left out, in the graph, where something outside the
    step may name them; but the step does not need them.
    """
    kept = {node_name(name) for name in fetch_names(meta)}.union(planned or ())
    bypass_identities(meta, kept)
    merge_duplicates(meta, kept, planned=planned is not None)
