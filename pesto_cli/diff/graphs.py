"""Differences between a graph and the graph that was placed."""

from dataclasses import dataclass

from pesto_cli.data.graph import OpGraph
from pesto_cli.files.placement import PlacementFile, fingerprints


@dataclass(frozen=True)
class GraphDiff:
    """The differences between a graph and the placed graph, by names of ops.

    has_other_hash: whether both hashes are known and differ. The hash includes attributes of ops,
        fingerprints do not.
    num_kept: number of ops in both graphs.
    new, gone: ops only in this graph, and only in the placed graph.
    changed: ops in both graphs with another type, or with inputs of other sizes or producers.
    """

    has_other_hash: bool
    num_kept: int
    new: tuple[str, ...]
    gone: tuple[str, ...]
    changed: tuple[str, ...]

    def __bool__(self) -> bool:
        """Return whether the graphs differ."""
        return self.has_other_hash or bool(self.new or self.gone or self.changed)


def graph_diff(placed: PlacementFile, graph: OpGraph, graph_hash: str | None) -> GraphDiff:
    """Compare a graph with the graph that was placed."""
    before = set(placed.graph_ops)
    changed: tuple[str, ...] = ()
    are_known = placed.graph_hash is not None and graph_hash is not None
    if placed.fingerprint and not (are_known and placed.graph_hash == graph_hash):
        print_of = dict(zip(placed.graph_ops, placed.fingerprint, strict=True))
        now = zip(graph.names, fingerprints(graph), strict=True)
        changed = tuple(name for name, digest in now if print_of.get(name, digest) != digest)
    new = tuple(name for name in graph.names if name not in before)
    return GraphDiff(
        has_other_hash=are_known and placed.graph_hash != graph_hash,
        num_kept=graph.num_ops - len(new),
        new=new,
        gone=tuple(name for name in placed.graph_ops if name not in graph.index_of),
        changed=changed,
    )
