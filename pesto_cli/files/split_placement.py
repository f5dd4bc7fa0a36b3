"""Placements with a plan: the problem whose ops they place."""

import numpy as np

from pesto_cli.data.problem import Problem
from pesto_cli.errors import BadInputError
from pesto_cli.files.placement import PlacementFile
from pesto_cli.sharding.problems import Rewritten, rewritten


def split_by(placed: PlacementFile, problem: Problem) -> Rewritten:
    """Return a problem whose ops are split by the plan of a placement.

    Raises:
        BadInputError: the placement is of another graph; the plan does not fit the graph; the
            profile does not price its parts; or the placement does not have these parts.
    """
    placed.check_graph_ops(problem.graph.names)
    split = rewritten(problem, placed.plan)
    placed.check_same_ops(split.problem.graph.names)
    parts = placed.parts
    if parts is None:
        return split
    row_of = {name: row for row, name in enumerate(placed.names)}
    rows = np.array([row_of[name] for name in split.problem.graph.names], dtype=np.int64)
    graph_op = np.array([problem.graph.index_of[name] for name in parts.ops] + [-1])
    origin, part = graph_op[np.array(parts.origin)[rows]], np.array(parts.part)[rows]
    wrong = (origin != split.origin) | (part != split.part)
    if wrong.any():
        op = int(np.argmax(wrong))
        found, expected = (
            _shown(problem, int(origin), int(part))
            for origin, part in ((origin[op], part[op]), (split.origin[op], split.part[op]))
        )
        raise BadInputError(
            f"the placement says that {split.problem.graph.names[op]!r} is {found}; {expected} was "
            "expected by its plan: solve the profile again."
        )
    return split


def _shown(problem: Problem, origin: int, part: int) -> str:
    if origin < 0:
        return "an added op"
    name = repr(problem.graph.names[origin])
    return name if part < 0 else f"part {part} of {name}"
