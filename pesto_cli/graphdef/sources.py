"""Find out what the SOURCE of `pesto export` is, and read its graph."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pesto_cli import zoo
from pesto_cli.errors import BadInputError
from pesto_cli.graphdef.completion import completed
from pesto_cli.graphdef.containers import has_saved_model, read_meta_graph
from pesto_cli.graphdef.event_files import event_graph
from pesto_cli.graphdef.event_files.events import event_files
from pesto_cli.graphdef.fetches import FED_TYPES, Shape
from pesto_cli.graphdef.saved_models import signature_graph
from pesto_cli.graphdef.scripts import function_missing, script_graph
from pesto_cli.graphdef.source_names import ZOO, is_function, is_of_zoo
from pesto_cli.graphdef.tensorflow import tensorflow


def source_graph(source: str, feeds: Mapping[str, Shape], signature: str | None) -> Any:
    """Return the MetaGraphDef of a SOURCE: `zoo:NAME`, `script.py:function` or a path.

    A path is that of a graph's file, a SavedModel, or TensorBoard's event file or log directory.
    If the source itself names fetches, they are in collection `train_op`.

    feeds: static shape of an input, by name. signature: which signature of a SavedModel to read.

    Raises BadInputError for a source that does not exist or holds no graph, and for a `signature`
    of any source but a SavedModel.
    """
    path = Path(source)
    is_zoo, is_script = is_of_zoo(source), is_function(source)
    is_recorded = not has_saved_model(path) and bool(event_files(path))
    if signature is not None and (is_zoo or is_script or is_recorded or path.is_file()):
        raise BadInputError(
            f"{source}: --signature {signature}: only a SavedModel directory has signatures."
            " Leave the option out, or name the fetches: --fetch NAME"
        )
    if is_zoo:
        return zoo_step(source)
    if is_script:
        script, _, function = source.rpartition(":")
        return script_graph(Path(script), function, feeds)
    if source.endswith(".py"):
        raise function_missing(source)
    if is_recorded:
        return event_graph(path, feeds)
    return signature_graph(path, signature) if path.is_dir() else read_meta_graph(path)


def zoo_step(source: str) -> Any:
    """Return the training step of a model of the zoo, complete as `export` returns it.

    It is completed in the graph where it was built: importing it again would take long.
    """
    tf = tensorflow()
    with tf.Graph().as_default() as graph:
        built = zoo.build(source[len(ZOO) :])
        fetches = [built["train_op"].name, built["loss"].name]
        feeds = [each.name for each in graph.get_operations() if each.type in FED_TYPES]
        return completed(graph, tf.compat.v1.train.Saver(), fetches, feeds)
