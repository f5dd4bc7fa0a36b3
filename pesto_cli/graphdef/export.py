"""`pesto export`: write a training step from any of TensorFlow's formats as one inlined graph."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pesto_cli.errors import BadInputError
from pesto_cli.graphdef import grappler
from pesto_cli.graphdef.completion import NotImportedError, complete
from pesto_cli.graphdef.data_sets import add_iterator_initialisers
from pesto_cli.graphdef.fetches import (
    TRAIN_OP,
    Shape,
    choose_fetches,
    fed_protos,
    needed_protos,
    require_static_feeds,
    set_feed_shapes,
)
from pesto_cli.graphdef.self_contained import check_self_contained, require_feedable
from pesto_cli.graphdef.simplify import simplify
from pesto_cli.graphdef.source_names import is_of_zoo
from pesto_cli.graphdef.sources import source_graph, zoo_step
from pesto_cli.graphdef.structure import check_structure
from pesto_cli.graphdef.xla import warn_of_compiled_calls


def export(
    source: Path | str,
    *,
    fetches: Sequence[str] = (),
    feeds: Mapping[str, Shape] | None = None,
    signature: str | None = None,
    optimize: bool = False,
    as_built: bool = False,
) -> Any:
    """Return the training step of `source` as a MetaGraphDef, with functions inlined.

    source: `zoo:NAME`, `script.py:function`, a SavedModel directory, a .meta, .pb or .pbtxt file.
    fetches: names of ops (`train`) or tensors (`loss:0`), the train op first. They replace the
        fetches that the source names.
    feeds: node name of a placeholder -> its static shape.
    signature: the signature to export from a SavedModel.
    optimize: rewrite the step by grappler now. Later, the result is profiled, placed and run
        without grappler.
    as_built: do not simplify the step (see `simplify`). Models of the zoo are never simplified:
        published figures count every op.

    The result has its fetches in collection `train_op`, the placeholders that they need in
    `feeds`, the op that initialises the graph in `init_op`, its variables and a saver. It can be
    imported with `tf.compat.v1.train.import_meta_graph` and trained.

    Logs a warning for ops that run only within the program that built the graph.

    Raises BadInputError for an unknown source, fetch, feed or signature, for an input that has no
    static shape or cannot be fed, for a step of several replicas, and for a graph that TensorFlow
    cannot import.
    """
    source, shapes = str(source), dict(feeds or {})
    if is_of_zoo(source) and not (fetches or shapes or signature):
        step = zoo_step(source)
        return grappler.optimize(step, source) if optimize else step
    meta = source_graph(source, shapes, signature)
    return flat_step(
        meta,
        source,
        fetches=fetches,
        feeds=shapes,
        optimize=optimize,
        as_built=as_built or is_of_zoo(source),
    )


def flat_step(
    meta: Any,
    what: str,
    *,
    fetches: Sequence[str] = (),
    feeds: Mapping[str, Shape] | None = None,
    optimize: bool = False,
    as_built: bool = False,
    whole_conditionals: bool = False,
) -> Any:
    """Return the training step of a MetaGraphDef in the form that `export` returns.

    `meta` is changed in place; `what` names it in errors. Other arguments and errors are those of
    `export` and of `inline_functions`.
    """
    check_structure(meta.graph_def, what)
    chosen = choose_fetches(meta, fetches, what)
    set_feed_shapes(meta, feeds or {}, what)
    meta.collection_def[TRAIN_OP].node_list.value[:] = chosen
    meta = grappler.inline_functions(meta, what, whole_conditionals=whole_conditionals)
    step = needed_protos(meta.graph_def, chosen)
    fed = fed_protos(step)
    require_feedable(fed, what)
    require_static_feeds(fed, what)
    add_iterator_initialisers(meta, step, what)
    check_self_contained(step, meta.graph_def.library, what)
    warn_of_compiled_calls(step, what)
    try:
        completed = complete(meta, chosen, [node.name for node in fed], what)
    except NotImportedError as error:
        if not feeds:
            raise
        given = " ".join(
            f"--feed {name}={','.join(map(str, shape))}" for name, shape in feeds.items()
        )
        raise BadInputError(
            f"{what}: the graph cannot have inputs of these shapes ({given}): {error.reason}"
            " Shapes that fit together were expected."
        ) from error
    exported = grappler.optimize(completed, what) if optimize else completed
    if not as_built:
        simplify(exported)
    return exported
