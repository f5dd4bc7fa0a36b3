"""The nodes of a step, their properties, and the ops that they become."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pesto_cli.errors import BadInputError
from pesto_cli.graphdef.colocation import colocation_groups
from pesto_cli.graphdef.contraction import LEFT_OUT, Contraction, contracted, small_constants
from pesto_cli.graphdef.devices import Site, sites
from pesto_cli.graphdef.fetches import fetch_names, node_name
from pesto_cli.graphdef.nodes import Node, output_number
from pesto_cli.graphdef.sizes import TensorSize, tensor_sizes
from pesto_cli.graphdef.wiring import Wiring, wiring

Output = tuple[int, int]
"""(node index, output number)"""


@dataclass(frozen=True)
class Facts:
    """The nodes of a step, their properties, and the ops that they become.

    sites, sizes, group: `[num_nodes]`, see the modules `devices`, `sizes` and `colocation`.
    ops: map from nodes to ops.
    returns: the fetched tensors; their ops come after those of the nodes.
    """

    wiring: Wiring
    sites: Sequence[Site]
    sizes: Sequence[Sequence[TensorSize]]
    group: Sequence[int]
    ops: Contraction
    returns: Sequence[Output]

    @property
    def nodes(self) -> Sequence[Node]:
        """The nodes of the wiring."""
        return self.wiring.nodes

    @cached_property
    def consumers(self) -> Mapping[Output, Sequence[tuple[int, bool]]]:
        """The consumers of each output that are other ops: output -> (op, on_host) pairs.

        on_host: whether the tensor is in host memory at both its producer and the consumer.
        """
        consumers: dict[Output, list[tuple[int, bool]]] = defaultdict(list)
        op_of = self.ops.op_of
        for index, node in enumerate(self.nodes):
            for (source, output), to_host in zip(
                node.inputs, self.sites[index].host_inputs, strict=True
            ):
                if op_of[source] not in (LEFT_OUT, op_of[index]):
                    on_host = to_host and self.sites[source].host_outputs[output]
                    consumers[source, output].append((op_of[index], on_host))
        for op, (source, output) in enumerate(self.returns, start=len(self.ops.members)):
            consumers[source, output].append((op, self.sites[source].host_outputs[output]))
        return consumers

    @cached_property
    def outputs(self) -> Sequence[Output]:
        """All outputs of ops in topological order; of a while loop, those with a consumer outside.

        They include outputs of single nodes that have no consumer.
        """
        return [
            (index, number)
            for index in self.wiring.order
            if self.ops.op_of[index] != LEFT_OUT
            for number in range(len(self.sizes[index]))
            if len(self.ops.members[self.ops.op_of[index]]) == 1
            or (index, number) in self.consumers
        ]


def facts(meta_graph: Any) -> Facts:
    """Return the facts of a MetaGraphDef's step.

    Raises:
        BadInputError: the graph names no fetches, or is incomplete or cyclic.
    """
    fetches = fetch_names(meta_graph)
    if not fetches:
        raise BadInputError(
            "the graph names no fetches; a collection `train_op` was expected: export the graph "
            "with --fetch NAME."
        )
    step = wiring(meta_graph)
    where = sites(step.nodes, step.op_defs)
    sizes = tensor_sizes(meta_graph.graph_def, step.nodes, step.order)
    fetched = {node_name(name) for name in fetches}
    small = small_constants(step.nodes, step.frames, where, sizes, fetched)
    return Facts(
        wiring=step,
        sites=where,
        sizes=sizes,
        group=colocation_groups(step),
        ops=contracted(step.frames, small),
        returns=_returns(step.nodes, sizes, fetches),
    )


def _returns(
    nodes: Sequence[Node], sizes: Sequence[Sequence[TensorSize]], fetches: Sequence[str]
) -> list[Output]:
    """Return the fetched tensors, once each; a fetch without output number is an op."""
    index_of = {node.name: index for index, node in enumerate(nodes)}
    returns: dict[Output, None] = {}
    for fetch in fetches:
        name, is_tensor, number = fetch.partition(":")
        if is_tensor:
            outputs = len(sizes[index_of[name]])
            output = output_number(number)
            if output is None or output >= outputs:
                raise BadInputError(
                    f"fetch {fetch!r}: op {name!r} has {outputs} outputs; {name}:NUMBER with a "
                    f"number below {outputs} was expected."
                )
            returns[index_of[name], output] = None
    return list(returns)
