"""Find the ops that also run without the step, to initialise, save, restore or read variables."""

from collections.abc import Iterator
from typing import Any

from pesto_cli.graphdef.nodes import NodeTable
from pesto_cli.graphdef.structure import variable_defs

# Collections of ops that start a session: TensorFlow's, and pesto's `init_op`.
_STARTING = (
    "init_op",
    "local_init_op",
    "ready_op",
    "ready_for_local_init_op",
    "table_initializer",
    "saved_model_main_op",
    "legacy_init_op",
)


def run_alone(meta: Any, table: NodeTable) -> set[str]:
    """Return the names of the nodes that start a session, save and restore, or read one variable.

    They must not get control inputs from the order of the step: otherwise, running them would first
    run a part of the step, on variables without a value.

    table: the nodes of the graph.
    """
    wanted = {name.lstrip("^").split(":")[0] for name in _entry_points(meta)}
    return {node.name for node in table.needed(wanted & table.position.keys())}


def _entry_points(meta: Any) -> Iterator[str]:
    for key in _STARTING:
        yield from meta.collection_def[key].node_list.value if key in meta.collection_def else ()
    for variable in variable_defs(meta):
        yield variable.initializer_name
        yield variable.snapshot_name
    yield meta.saver_def.save_tensor_name
    yield meta.saver_def.restore_op_name
