"""Graphs and profiles as networkx graphs, and back."""

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
    """A `networkx.MultiDiGraph`: ops are nodes under their names, tensors edges to each consumer.

    Nodes have `type`, `group`, `resident_bytes`, `alias_of`, `num_members`, `output_bytes`; of a
    profile also `time_us` by kind of device, `devices` and `members`. Edges have `bytes`, `output`
    and `on_host`, or `control`. docs/notebooks.md says what they mean.

    Args:
        what: a profile, whose op times come with it, or a graph.
        placed: gives every node its `device` and `rank`; needs a profile.

    Raises:
        BadInputError: the placement is of other ops, or comes with a graph.

    Example:
        >>> networkx.dag_longest_path_length(to_networkx(profile))
    """
    if isinstance(what, OpGraph):
        if placed is not None:
            raise BadInputError(
                "a placement was given with an op graph, which knows no devices; a profile was "
                "expected: give the one that was solved."
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
    """The profile of a `networkx.DiGraph` or `MultiDiGraph`.

    Args:
        graph: nodes with `time_us`, edges with `bytes`; all else that `to_networkx` gives has
            defaults.
        machine: in place of the one that the graph carries.

    Raises:
        BadInputError: a cycle, or an attribute that is missing or does not fit.
        InfeasibleError: an op or colocation group has no device.

    Example:
        >>> from_networkx(to_networkx(profile))
    """
    known = read_machine(machine) if isinstance(machine, str) else machine
    problem = problem_from_networkx(graph, known)
    return Profile(problem, {"source": "networkx"}, _members(graph))


def _members(graph: Any) -> list[list[str]] | None:
    """What every node stands for, itself unless it says so; None if none says so."""
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
