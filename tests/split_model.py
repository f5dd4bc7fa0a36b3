"""A small model whose ops can be split, with its files: graph, profiles and a split placement."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from training_graphs import exported

from pesto_cli import api
from pesto_cli.graphdef.containers import write_meta_graph

BATCH = 8


class Files(NamedTuple):
    """Paths. plain: a profile without prices of parts. coarse: of 3 nodes. whole: of whole ops."""

    graph: Path
    profile: Path
    plain: Path
    coarse: Path
    placement: Path
    whole: Path


def dense(tf: Any) -> Sequence[Any]:
    """Two dense layers with a mean loss; Momentum."""
    return dense_with(tf, tf.nn.relu)


def dense_with(tf: Any, activation: Any, num_classes: int = 4) -> Sequence[Any]:
    """The same with another activation, and another number of classes."""
    tf1 = tf.compat.v1
    rows = tf1.placeholder(tf.float32, [BATCH, 6], name="rows")
    labels = tf1.placeholder(tf.int32, [BATCH], name="labels")
    first = tf1.get_variable("first", [6, 12], use_resource=True)
    second = tf1.get_variable("second", [12, num_classes], use_resource=True)
    hidden = activation(tf.matmul(rows, first, name="product"), name="hidden")
    logits = tf.matmul(hidden, second, name="logits")
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    loss = tf.reduce_mean(losses, name="loss")
    return [tf1.train.MomentumOptimizer(0.1, 0.9).minimize(loss, name="train"), loss]


def written(folder: Path) -> Files:
    """Write the files of the model into a folder."""
    files = Files(
        folder / "g.meta",
        folder / "g.profile.json",
        folder / "plain.profile.json",
        folder / "coarse.profile.json",
        folder / "split.placement.json",
        folder / "whole.placement.json",
    )
    meta = exported(dense)
    write_meta_graph(files.graph, meta)
    plain, priced = (api.profile(meta, "v100x2-nvlink", parts=parts) for parts in ((), (2, 4)))
    api.save(files.plain, plain)
    api.save(files.profile, priced)
    api.save(files.coarse, api.coarsen(plain, 3))
    priced, whole = api.load(files.profile), api.load(files.plain)
    api.save(files.placement, api.placement(priced, api.solve(priced, "data-parallel")))
    api.save(files.whole, api.placement(whole, api.solve(whole, "single")))
    return files
