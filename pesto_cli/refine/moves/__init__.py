"""Moves of the annealing. Each has a file, and a line with its weight in `MOVES`."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from pesto_cli.data.graph import OpGraph
from pesto_cli.data.presets import PRESETS
from pesto_cli.data.problem import Problem
from pesto_cli.errors import EnvironmentFailedError
from pesto_cli.kernels import address_of
from pesto_cli.plugins import Registry
from pesto_cli.refine.draws import Random
from pesto_cli.refine.families import families_of_ops
from pesto_cli.refine.moves.boundary import boundary
from pesto_cli.refine.moves.cluster import cluster
from pesto_cli.refine.moves.insertion import insertion
from pesto_cli.refine.moves.relocate import relocate
from pesto_cli.refine.moves.swap import swap
from pesto_cli.refine.neighbourhood import Neighbourhood
from pesto_cli.refine.state import Change, State


@dataclass(frozen=True)
class Move:
    """A move operator of the annealing.

    propose: a kernel `(Neighbourhood, State, Random, Change) -> None`. It changes the state only by
        `put` and `shift`, or leaves it unchanged.
    weight: relative frequency among the moves with the same `of_order`; above 0.
    of_order: whether the move changes the order; otherwise it changes devices. The stages of the
        search set the share of moves of the order.
    of_groups: whether the moved units are groups of the families, perhaps with neighbours that
        follow them. Only these moves are used in the placement of super-ops.
    """

    propose: Any
    weight: float
    of_order: bool = False
    of_groups: bool = False

    def __post_init__(self) -> None:
        if not 0.0 < self.weight < math.inf:
            raise ValueError(f"a move's weight is {self.weight}; a number above 0 was expected.")


def _misfit(thing: object) -> str:
    """Return why a registered object is not a move that can be compiled; empty if it is one.

    A move that cannot be compiled would end each search with an error.
    """
    if not isinstance(thing, Move):
        return f"a {type(thing).__name__} was found, a pesto_cli.refine.moves.Move was expected"
    try:
        address_of(thing.propose, *_arguments())
    except EnvironmentFailedError as error:
        return str(error)
    return ""


def _arguments() -> tuple[Neighbourhood, State, Random, Change]:
    """Return example arguments of a move, for a graph of one op."""
    problem = Problem.build(OpGraph.build(["op"]), {"GPU": [1.0]}, PRESETS["v100x2-nvlink"])
    neighbourhood = Neighbourhood.of(problem, families_of_ops(problem))
    return neighbourhood, State.of(1), np.ones(1, np.uint64), Change.of(1, 1)


MOVES: Registry[Move] = Registry(
    "pesto.moves",
    {
        "relocate": Move(relocate, weight=0.55, of_groups=True),
        "cluster": Move(cluster, weight=0.22),
        "boundary": Move(boundary, weight=0.13),
        "swap": Move(swap, weight=0.10, of_groups=True),
        "insertion": Move(insertion, weight=1.0, of_order=True),
    },
    _misfit,
)
