"""Write a mixed integer program as a file in MPS format, which CBC and HiGHS read.

PuLP has a writer too, but it cannot be stopped before its end.
"""

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import pulp

from pesto_cli.ilp.search import Pace

OBJECTIVE = "OBJ"
SENSES = {pulp.LpConstraintLE: "L", pulp.LpConstraintEQ: "E", pulp.LpConstraintGE: "G"}
_MARKER = "    MARKER    'MARKER'                 '{}'\n"  # begin or end of integer variables


def write_mps(
    path: Path, variables: Sequence[Any], constraints: Sequence[Any], objective: Any, pace: Pace
) -> None:
    """Write a program that minimises one of its variables.

    Args:
        path: path of the file.
        variables: PuLP variables, all with lower and upper bounds.
        constraints: PuLP constraints, such as `expression + constant <= 0`.
        objective: the variable to minimise.
        pace: checks the limits while the file is written.

    Raises:
        TooLargeError: the time is over, or a stop was requested.
    """
    entries: dict[str, list[str]] = {variable.name: [] for variable in variables}
    entries[objective.name].append(_entry(objective.name, OBJECTIVE, 1.0))
    rows, limits = [f" N  {OBJECTIVE}\n"], []
    for number, constraint in enumerate(constraints):
        pace.check()
        row = f"R{number}"
        rows.append(f" {SENSES[constraint.sense]}  {row}\n")
        limits.append(_entry("RHS", row, -constraint.constant))
        for variable, factor in constraint.items():
            entries[variable.name].append(_entry(variable.name, row, factor))
    with path.open("w") as file:
        file.writelines(["NAME          pesto\n", "ROWS\n", *rows, "COLUMNS\n"])
        for category, alike in groupby(variables, key=lambda variable: variable.cat):
            if category == pulp.LpInteger:
                file.write(_MARKER.format("INTORG"))
            for variable in alike:
                pace.check()
                # A variable in no constraint needs a column too.
                file.writelines(entries[variable.name] or [_entry(variable.name, OBJECTIVE, 0.0)])
            if category == pulp.LpInteger:
                file.write(_MARKER.format("INTEND"))
        file.writelines(["RHS\n", *limits, "BOUNDS\n"])
        for variable in variables:
            file.write(f" LO BND       {variable.name:<8}  {variable.lowBound: .12e}\n")
            file.write(f" UP BND       {variable.name:<8}  {variable.upBound: .12e}\n")
        file.write("ENDATA\n")


def _entry(column: str, row: str, value: float) -> str:
    return f"    {column:<8}  {row:<8}  {value: .12e}\n"
