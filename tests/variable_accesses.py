"""Finds ops that access the same variable in no fixed order, so that a step could differ."""

from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import networkx as nx

from pesto_cli.graphdef.fetches import fetch_names
from pesto_cli.sharding.rules.variables import READS

Accesses = tuple[str, str, str]


def unordered_accesses(meta: Any) -> Iterator[Accesses]:
    """Yield variables, and pairs of ops of the step, one of which writes, without a path."""
    nodes = {node.name: node for node in meta.graph_def.node}
    graph = nx.DiGraph()
    graph.add_nodes_from(nodes)
    for node in nodes.values():
        for source in node.input:
            graph.add_edge(source.lstrip("^").partition(":")[0], node.name)
    fetched = {name.partition(":")[0] for name in fetch_names(meta)}
    needed = fetched.union(*(nx.ancestors(graph, name) for name in fetched))
    step = graph.subgraph(needed).copy()  # a view is several times slower
    of_variable = defaultdict[str, list[str]](list)
    for name in step:
        for source in {source.partition(":")[0] for source in nodes[name].input}:
            if not source.startswith("^") and nodes[source].op == "VarHandleOp":
                of_variable[source].append(name)
    before = {name: nx.ancestors(step, name) for names in of_variable.values() for name in names}
    for variable, names in of_variable.items():
        for first, second in combinations(names, 2):
            writes = {nodes[first].op, nodes[second].op} - READS
            if writes and first not in before[second] and second not in before[first]:
                yield variable, first, second
