"""What has changed in a graph since it was placed."""

from dataclasses import dataclass

from pesto_cli.data.graph import OpGraph
from pesto_cli.files.placement import PlacementFile, fingerprints


@dataclass(frozen=True)
class GraphDiff:
    """How a graph differs from the one that a placement is of, by names of ops.

    has_other_hash: by the hashes of the two, or by the ops where a hash is not known. Attributes
        are part of the hash, but of no op's fingerprint.
    num_kept: ops in both. changed: of these, those of another type, or with other inputs, in number
        of bytes or in what they come from.
    """

    has_other_hash: bool
    num_kept: int
    new: tuple[str, ...]
    gone: tuple[str, ...]
    changed: tuple[str, ...]

    def __bool__(self) -> bool:
        """Whether anything has changed."""
        return self.has_other_hash or bool(self.new or self.gone or self.changed)


def graph_diff(placed: PlacementFile, graph: OpGraph, graph_hash: str | None) -> GraphDiff:
    """Compare a graph with the one that was placed."""
    before = set(placed.names)
    changed: tuple[str, ...] = ()
    are_known = placed.graph_hash is not None and graph_hash is not None
    if placed.fingerprint and not (are_known and placed.graph_hash == graph_hash):
        print_of = dict(zip(placed.names, placed.fingerprint, strict=True))
        now = zip(graph.names, fingerprints(graph), strict=True)
        changed = tuple(name for name, digest in now if print_of.get(name, digest) != digest)
    new = tuple(name for name in graph.names if name not in before)
    return GraphDiff(
        has_other_hash=are_known and placed.graph_hash != graph_hash,
        num_kept=graph.num_ops - len(new),
        new=new,
        gone=tuple(name for name in placed.names if name not in graph.index_of),
        changed=changed,
    )
