"""Converting graphs and profiles to networkx graphs, and back."""

from typing import Any

from pesto_cli.api.arguments import checked
from pesto_cli.api.placing import Placed, solution_of
from pesto_cli.data.graph import OpGraph
from pesto_cli.data.machine import Machine
from pesto_cli.errors import BadInputError
from pesto_cli.files import Profile, read_machine
from pesto_cli.files.networkx_graphs import problem_from_networkx
from pesto_cli.files.networkx_graphs import to_networkx as graph_to_networkx


@checked
def to_networkx(what: OpGraph | Profile, placed: Placed | None = None) -> Any:
    """Return a `networkx.MultiDiGraph` of a profile or of a graph.

    Its nodes are the names of ops. Every tensor has an edge to each consumer. Nodes have `type`,
    `group`, `resident_bytes`, `alias_of`, `num_members`, `output_bytes`; for a profile also
    `time_us` by device kind, `devices` and `members`. Edges have `bytes`, `output` and `on_host`,
    or `control`. docs/notebooks.md explains them.

    Args:
        what: a profile, or a graph, which has no op times.
        placed: a placement that adds `device` and `rank` to every node; needs a profile.

    Raises:
        BadInputError: the placement is of other ops, or was given with a graph.

    Example:
        >>> networkx.dag_longest_path_length(to_networkx(profile))
    """
    if isinstance(what, OpGraph):
        if placed is not None:
            raise BadInputError(
                "a placement was given with an op graph, which has no devices; a profile was "
                "expected: give the profile that was solved."
            )
        return graph_to_networkx(what)
    if placed is None:
        graph = graph_to_networkx(what.problem)
    else:
        found = solution_of(what, placed)
        graph = graph_to_networkx(found.problem, found.schedule)
    for node, members in zip(graph.nodes.values(), what.members or (), strict=False):
        node["members"] = list(members)
    return graph


@checked
def from_networkx(graph: Any, machine: Machine | str | None = None) -> Profile:
    """Return the profile of a `networkx.DiGraph` or `MultiDiGraph`.

    Args:
        graph: nodes need `time_us`, and edges need `bytes`. All other attributes of `to_networkx`
            have defaults.
        machine: replaces the machine that is stored in the graph.

    Raises:
        BadInputError: the graph is empty or has a cycle, or an attribute is missing or invalid.
        InfeasibleError: an op or colocation group has no device.

    Example:
        >>> from_networkx(to_networkx(profile))
    """
    if not hasattr(graph, "is_directed"):
        raise BadInputError(
            f"from_networkx: graph is a {type(graph).__name__}; a networkx.DiGraph or MultiDiGraph "
            "was expected."
        )
    if not len(graph):
        raise BadInputError("from_networkx: the graph has no node; at least one op was expected.")
    known = read_machine(machine) if isinstance(machine, str) else machine
    problem = problem_from_networkx(graph, known)
    return Profile(problem, {"source": "networkx"}, _members(graph))


def _members(graph: Any) -> list[list[str]] | None:
    """Return the members of every node, by default the node itself; None if no node has members."""
    if not any("members" in node for node in graph.nodes.values()):
        return None
    members = []
    for name, node in graph.nodes.items():
        names, count = node.get("members", [str(name)]), node.get("num_members", 1)
        if not isinstance(names, list | tuple) or len(names) != count:
            raise BadInputError(
                f"node {name!r} has members {names!r} and num_members {count!r}; a list of as many "
                "names was expected."
            )
        members.append([str(op) for op in names])
    return members
