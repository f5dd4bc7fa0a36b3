"""Graphs and profiles as networkx graphs, and back."""

from typing import Any

from pesto_cli.api.placing import Placed, schedule_of
from pesto_cli.files import Profile, read_machine
from pesto_cli.graph import OpGraph
from pesto_cli.graph_networkx import problem_from_networkx
from pesto_cli.graph_networkx import to_networkx as graph_to_networkx
from pesto_cli.machine import Machine


def to_networkx(what: OpGraph | Profile, placed: Placed | None = None) -> Any:
    """A `networkx.MultiDiGraph` of the ops; its attributes are listed in `graph_networkx`.

    Args:
        what: a profile, whose op times come with it, or a graph.
        placed: gives every node its device and rank; needs a profile.

    Raises:
        BadInputError: the placement is of other ops, or comes with a graph.

    Example:
        >>> networkx.dag_longest_path_length(to_networkx(profile))
    """
    if isinstance(what, OpGraph):
        return graph_to_networkx(what)
    schedule = None if placed is None else schedule_of(what, placed)
    return graph_to_networkx(what.problem, schedule)


def from_networkx(graph: Any, machine: Machine | str | None = None) -> Profile:
    """The profile of a `networkx.DiGraph` or `MultiDiGraph`.

    Args:
        graph: nodes with `time_us`, edges with `bytes`; all else has defaults.
        machine: in place of the one that the graph carries.

    Raises:
        BadInputError: a cycle, or an attribute that is missing or does not fit.
        InfeasibleError: an op or colocation group has no device.

    Example:
        >>> from_networkx(to_networkx(profile))
    """
    known = read_machine(machine) if isinstance(machine, str) else machine
    return Profile(problem_from_networkx(graph, known), {"source": "networkx"})
