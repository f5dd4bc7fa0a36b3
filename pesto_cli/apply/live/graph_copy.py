"""A copy of a program's graph, with operations of the same names, that can be placed by itself."""

from typing import Any

from pesto_cli.apply.live.copies import opened
from pesto_cli.graphdef.programs.session_runs import SessionRun
from pesto_cli.graphdef.tensorflow import tensorflow


class GraphCopy:
    """A copy of a tf.Graph; operations that are added to the original are added to it, too."""

    def __init__(self, original: Any) -> None:
        tf1 = tensorflow().compat.v1
        self._original, self._version = original, original.version
        with original.as_default():
            meta = tf1.train.export_meta_graph(graph=original)
        self.graph = tensorflow().Graph()
        with self.graph.as_default():
            tf1.train.import_meta_graph(meta)

    def in_copy(self, run: SessionRun, session: Any) -> SessionRun:
        """Return the same run in a session of the copy."""
        self._extend()
        graph = self.graph
        return SessionRun(
            session,
            [graph.get_operation_by_name(target.name) for target in run.targets],
            [graph.get_tensor_by_name(fetch.name) for fetch in run.fetches],
            {
                graph.get_tensor_by_name(reference.deref().name).ref(): value
                for reference, value in run.feeds.items()
            },
        )

    def _extend(self) -> None:
        """Copy the operations that were added to the original since the last call."""
        if self._original.version > self._version:
            self._version = self._original.version
            known = {operation.name for operation in self.graph.get_operations()}
            self._add([op for op in self._original.get_operations() if op.name not in known])

    def _add(self, operations: list[Any]) -> None:
        names = {operation.name for operation in operations}
        body = self._original.as_graph_def()
        nodes = [node for node in body.node if node.name in names]
        del body.node[:]
        known = {each.signature.name for each in self.graph.as_graph_def().library.function}
        new = [each for each in body.library.function if each.signature.name not in known]
        del body.library.function[:], body.library.gradient[:]
        body.library.function.extend(new)
        given = {}
        for node, operation in zip(nodes, operations, strict=True):
            node.input[:] = [
                text for text in node.input if not text.startswith("^") or text[1:] in names
            ]
            node.attr.pop("_class", None)  # names operations outside this GraphDef
            body.node.append(node)
            for tensor in operation.inputs:
                if tensor.op.name not in names:
                    given[f"{tensor.op.name}:{tensor.value_index}"] = self.graph.get_tensor_by_name(
                        tensor.name
                    )
        with opened(self.graph):
            tensorflow().import_graph_def(body, given, name="")
        for operation in operations:
            earlier = [op.name for op in operation.control_inputs if op.name not in names]
            self.graph.get_operation_by_name(operation.name)._add_control_inputs(
                [self.graph.get_operation_by_name(name) for name in earlier]
            )
