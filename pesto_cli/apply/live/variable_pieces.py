"""The variables of a program, and the pieces and copies of them that a split step uses.

A program initialises, restores, saves and reads its variables as it has built them. If a plan
splits or mirrors variables, the split step has pieces and copies, which the program does not know.
The first copy of a mirrored variable is the program's variable.

Values are copied when a run needs them: to the pieces before a step, if a run may have written the
variables since the last step; and back before a run that takes the variables, if a step has run.
Steps and runs that may write the variables take turns, so no thread overwrites what another wrote.
"""

import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any
from weakref import WeakKeyDictionary

from pesto_cli.apply.live.copies import Copies, add_nodes
from pesto_cli.apply.split_variables import (
    IS_INITIALIZED,
    Pieces,
    nodes_of_copies,
    outside_nodes,
)
from pesto_cli.data.specs import OpSpec
from pesto_cli.graphdef.outside_step import HANDLE, SHAPE, Access, variable_of
from pesto_cli.graphdef.programs.session_runs import Proceed, SessionRun, needed_operations
from pesto_cli.graphdef.spec_nodes import node_def
from pesto_cli.sharding.added_ops import JOIN
from pesto_cli.sharding.rules.variables import READS

SCOPE = "variable_pieces"
READ, ASSIGN = "ReadVariableOp", "AssignVariableOp"


# They do not read the values of a variable.
OF_ANY_PIECE = frozenset({IS_INITIALIZED, SHAPE})


class _Use(Enum):
    """What a run does with the variables of the program that are split or mirrored."""

    NOTHING = auto()
    READS = auto()
    WRITES = auto()
    STEP = auto()  # It reads and writes the pieces.


class _Newer(Enum):
    """Which values of a session are newer."""

    NONE = auto()  # They are equal.
    PROGRAM = auto()
    PIECES = auto()


class _Values:
    """The values of one session: which are newer, and the runs that write them now.

    Runs of one use may overlap; runs of two uses may not. Each run gets its turn in the order of
    arrival.
    """

    def __init__(self) -> None:
        self.newer = _Newer.PROGRAM
        self.changed = threading.Condition()
        self._use, self._num_running = _Use.NOTHING, 0
        self._waiting = deque[object]()

    @property
    def is_in_step(self) -> bool:
        """Whether a step is running."""
        return self._use is _Use.STEP and self._num_running > 0

    @contextmanager
    def turn(self, use: _Use) -> Iterator[None]:
        """Wait until a run that writes values may begin; runs of another use wait for its end."""
        ticket = object()
        with self.changed:
            self._waiting.append(ticket)
            self.changed.wait_for(
                lambda: self._waiting[0] is ticket and (not self._num_running or self._use is use)
            )
            self._waiting.popleft()
            self._use, self._num_running = use, self._num_running + 1
            self.changed.notify_all()
        try:
            yield
        finally:
            with self.changed:
                self._num_running -= 1
                self.changed.notify_all()


@dataclass(frozen=True, eq=False)
class PieceReads:
    """What stands for the read of a split variable.

    value: the operation whose output is the whole value. parts: those that read the pieces.
    """

    value: Any
    parts: tuple[Any, ...]


class VariablePieces:
    """The pieces and copies of the variables of one graph, and which values are newer."""

    def __init__(self, graph: Any, variables: Sequence[Pieces], added: Mapping[str, Any]) -> None:
        """Add the operations that copy values.

        variables: those that are split or mirrored. added: the operations of the split step, by
            name of the node.
        """
        self._graph = graph
        self._variables = {each.name: each for each in variables}
        self._name_of = {
            variable_of(graph.get_operation_by_name(name).node_def): name
            for name in self._variables
        }
        self._handles = {name: graph.get_operation_by_name(name) for name in self._variables}
        self._handles |= {
            name: added[name] for each in variables for name in each.names if name in added
        }
        self._values: WeakKeyDictionary[Any, _Values] = WeakKeyDictionary()
        self._uses: dict[object, _Use] = {}
        if variables:
            made = self._add([*_to_pieces(variables), *_to_program(variables)])
            self._to_pieces, self._to_program = made["to_pieces"], made["to_program"]

    @contextmanager
    def in_use(self, run: SessionRun, proceed: Proceed, *, is_step: bool) -> Iterator[None]:
        """Make the values that a run takes the newest ones, within the context of the run.

        is_step: whether it is the split step.
        """
        if not self._variables:
            yield
            return
        use = _Use.STEP if is_step else self._use(run)
        values = self._values.setdefault(run.session, _Values())
        with values.turn(use) if use in (_Use.STEP, _Use.WRITES) else nullcontext():
            with values.changed:
                self._renew(values, use, run, proceed)
            yield

    def _renew(self, values: _Values, use: _Use, run: SessionRun, proceed: Proceed) -> None:
        """Copy the values that a run takes, and note which ones it writes."""
        if use is _Use.STEP:
            if values.newer is _Newer.PROGRAM:
                self._copy(self._to_pieces, run, proceed)
            values.newer = _Newer.PIECES
        elif use is not _Use.NOTHING and values.newer is _Newer.PIECES:
            self._copy(self._to_program, run, proceed)
            if not values.is_in_step:
                values.newer = _Newer.NONE
        if use is _Use.WRITES:
            values.newer = _Newer.PROGRAM

    def taken_whole(self, executed: Mapping[str, Any], without: str) -> str | None:
        """Say for which variable a step takes the program's value; None if there is none.

        A split variable has an old value there. A mirrored one may only be read.

        executed: the operations of the step, by name. without: the beginning of the names of those
            that take the pieces.
        """
        for taker, variable in self._takers(executed):
            is_split = self._variables[variable].axis is not None
            allowed = OF_ANY_PIECE if is_split else READS
            if taker.type not in allowed and not taker.name.startswith(without):
                how = "split" if is_split else "mirrored"
                return f"variable {variable!r}, which is {how}, in {taker.name!r} ({taker.type})"
        return None

    def add_reads(self, needed: Mapping[str, Any], known: Copies) -> dict[str, PieceReads]:
        """Add reads of the pieces, for reads of split variables that are no part of the step.

        needed: the operations of a run, by name. known: copies of operations.

        Returns what stands for the reads, by name of the original. They wait for nothing.
        """
        found = {}
        for taker, variable in self._takers(needed):
            pieces = self._variables[variable]
            if taker.type == READ and taker.name not in known.copies and pieces.axis is not None:
                node = _read(taker.name, pieces)
                made = self._add(outside_nodes(Access(node, 0, variable, variable), pieces))
                parts = tuple(each for each in made.values() if each.type == READ)
                found[taker.name] = PieceReads(made[taker.name], parts)
        return found

    def _takers(self, operations: Mapping[str, Any]) -> Iterator[tuple[Any, str]]:
        """Yield the operations that take handles of the variables: (operation, variable)."""
        for operation in operations.values():
            for tensor in operation.inputs:
                if tensor.op.type == HANDLE:
                    variable = self._name_of.get(variable_of(tensor.op.node_def))
                    if variable is not None:
                        yield operation, variable

    def _use(self, run: SessionRun) -> _Use:
        if run.signature not in self._uses:
            types = {taker.type for taker, _ in self._takers(needed_operations(run))}
            used = _Use.READS if types <= READS else _Use.WRITES
            self._uses[run.signature] = used if types else _Use.NOTHING
        return self._uses[run.signature]

    @staticmethod
    def _copy(operation: Any, run: SessionRun, proceed: Proceed) -> None:
        proceed(SessionRun(run.session, [operation], [], {}), is_extra=True)

    def _add(self, nodes: Sequence[Any]) -> dict[str, Any]:
        """Add NodeDefs to the graph, on the devices of the variables that they take."""
        for node in nodes:
            handle = self._handles.get(node.input[0]) if node.input else None
            node.device = "" if handle is None else handle.device
        taken = {name for node in nodes for name in node.input if name in self._handles}
        outside = {f"{name}:0": self._handles[name].outputs[0] for name in taken}
        return add_nodes(self._graph, nodes, outside, SCOPE)


def _to_pieces(variables: Sequence[Pieces]) -> Iterator[Any]:
    """Yield nodes that assign the program's variables to their pieces and copies."""
    ends = []
    for each in variables:
        if each.axis is None:
            yield from nodes_of_copies(each)
            ends += [f"{name}.from_first" for name in each.names[1:]]
        else:
            whole, end = f"{each.name}.whole", f"{each.name}.to_pieces"
            yield _read(whole, each)
            assign = node_def(end, OpSpec(ASSIGN, _dtype(each), (), ()), [each.name, whole])
            yield from outside_nodes(Access(assign, 0, each.name, each.name), each)
            ends.append(end)
    yield node_def("to_pieces", JOIN, (), ends)


def _to_program(variables: Sequence[Pieces]) -> Iterator[Any]:
    """Yield nodes that assign the pieces to the program's variables."""
    ends = []
    for each in variables:
        if each.axis is not None:
            value, end = f"{each.name}.value", f"{each.name}.to_program"
            yield from outside_nodes(Access(_read(value, each), 0, each.name, each.name), each)
            yield node_def(end, OpSpec(ASSIGN, _dtype(each), (), ()), [each.name, value])
            ends.append(end)
    yield node_def("to_program", JOIN, (), ends)


def _read(name: str, variable: Pieces) -> Any:
    return node_def(name, OpSpec(READ, _dtype(variable), (), ()), [variable.name])


def _dtype(variable: Pieces) -> tuple[tuple[str, str], ...]:
    return (("dtype", str(variable.operand.dtype)),)
