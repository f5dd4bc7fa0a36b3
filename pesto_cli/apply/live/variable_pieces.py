"""The variables of a program, and the pieces and copies of them that a split step uses.

A program initialises, restores, saves and reads its variables as it has built them. If a plan
splits or mirrors variables, the split step has pieces and copies, which the program does not know.
The first copy of a mirrored variable is the program's variable.

Values are copied when a run needs them: to the pieces before a step, if a run may have written the
variables since the last step; and back before a run that takes the variables, if a step has run.
"""

import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum, auto
from typing import Any
from weakref import WeakKeyDictionary

from pesto_cli.apply.live.copies import Copies, add_nodes
from pesto_cli.apply.split_variables import Pieces, nodes_of_copies, outside_nodes
from pesto_cli.data.specs import OpSpec
from pesto_cli.graphdef.outside_step import Access
from pesto_cli.graphdef.programs.session_runs import Proceed, SessionRun, needed_operations
from pesto_cli.graphdef.spec_nodes import node_def
from pesto_cli.sharding.added_ops import JOIN
from pesto_cli.sharding.rules.variables import READS

SCOPE = "variable_pieces"
READ, ASSIGN = "ReadVariableOp", "AssignVariableOp"


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


class VariablePieces:
    """The pieces and copies of the variables of one graph, and which values are newer."""

    def __init__(self, graph: Any, variables: Sequence[Pieces], added: Mapping[str, Any]) -> None:
        """Add the operations that copy values.

        variables: those that are split or mirrored. added: the operations of the split step, by
            name of the node.
        """
        self._graph = graph
        self._variables = {each.name: each for each in variables}
        self._handles = {name: graph.get_operation_by_name(name) for name in self._variables}
        self._handles |= {
            name: added[name] for each in variables for name in each.names if name in added
        }
        self._newer: WeakKeyDictionary[Any, _Newer] = WeakKeyDictionary()
        self._uses: dict[object, _Use] = {}
        self._lock = threading.Lock()
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
        with self._lock:
            newer = self._newer.get(run.session, _Newer.PROGRAM)
            if use is _Use.STEP and newer is _Newer.PROGRAM:
                self._copy(self._to_pieces, run, proceed)
            if use in (_Use.READS, _Use.WRITES) and newer is _Newer.PIECES:
                self._copy(self._to_program, run, proceed)
        try:
            yield
        finally:
            if use is _Use.STEP:
                self._newer[run.session] = _Newer.PIECES
            if use is _Use.WRITES:
                self._newer[run.session] = _Newer.PROGRAM

    def taken_whole(self, executed: Mapping[str, Any], without: str) -> str | None:
        """Return a variable of which a step takes the program's value; None if there is none.

        A split variable has an old value there. A mirrored one may only be read.

        executed: the operations of the step, by name. without: the beginning of the names of those
            that take the pieces.
        """
        takers = _takers(executed, self._variables)
        return next(
            (
                variable
                for taker, variable in takers
                if not taker.name.startswith(without)
                and (self._variables[variable].axis is not None or taker.type not in READS)
            ),
            None,
        )

    def add_reads(self, needed: Mapping[str, Any], known: Copies) -> dict[str, Any]:
        """Add reads of the pieces, for reads of split variables that are no part of the step.

        needed: the operations of a run, by name. known: copies of operations.

        Returns what stands for the reads, by name of the original.
        """
        takers = _takers(needed, self._variables)
        reads = {
            taker.name: variable
            for taker, variable in takers
            if taker.type == READ
            and taker.name not in known.copies
            and self._variables[variable].axis is not None
        }
        found = {}
        for name, variable in reads.items():
            node, pieces = _read(name, self._variables[variable]), self._variables[variable]
            made = self._add(outside_nodes(Access(node, 0, variable, variable), pieces))
            sources = needed[name].control_inputs
            waits_for = [known.copies.get(source.name, source) for source in sources]
            for each in made.values():
                if each.type == READ:
                    each._add_control_inputs(waits_for)
            found[name] = made[name]
        return found

    def _use(self, run: SessionRun) -> _Use:
        if run.signature not in self._uses:
            types = {taker.type for taker, _ in _takers(needed_operations(run), self._variables)}
            used = _Use.READS if types <= READS else _Use.WRITES
            self._uses[run.signature] = used if types else _Use.NOTHING
        return self._uses[run.signature]

    def _copy(self, operation: Any, run: SessionRun, proceed: Proceed) -> None:
        proceed(SessionRun(run.session, [operation], [], {}), is_extra=True)
        self._newer[run.session] = _Newer.NONE

    def _add(self, nodes: Sequence[Any]) -> dict[str, Any]:
        """Add NodeDefs to the graph, on the devices of the variables that they take."""
        for node in nodes:
            handle = self._handles.get(node.input[0]) if node.input else None
            node.device = "" if handle is None else handle.device
        taken = {name for node in nodes for name in node.input if name in self._handles}
        outside = {f"{name}:0": self._handles[name].outputs[0] for name in taken}
        return add_nodes(self._graph, nodes, outside, SCOPE)


def _takers(operations: Mapping[str, Any], variables: Collection[str]) -> Iterator[tuple[Any, str]]:
    """Yield the operations that take handles of variables: (operation, name of the variable)."""
    for operation in operations.values():
        for tensor in operation.inputs:
            if tensor.op.name in variables:
                yield operation, tensor.op.name


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
