"""Carry the state of one session to another one: its variables, and the positions of its data sets.

The values go through the client, so the sessions need no common file system. Static lookup tables
are initialised again. The state of other resources, such as queues, cannot be read.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from pesto_cli.apply.live.copies import opened
from pesto_cli.errors import BadInputError
from pesto_cli.graphdef.data_sets import TABLE_INITIALIZER
from pesto_cli.graphdef.programs.session_runs import SessionRun, needed_operations
from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.printable import logger

SCOPE = "carried_state"
HANDLES = frozenset({"VarHandleOp"})
REFERENCES = frozenset({"Variable", "VariableV2"})
ITERATORS = frozenset({"Iterator", "IteratorV2", "OneShotIterator"})
TABLES = frozenset({"HashTable", "HashTableV2"})
# Resources of one step, which need not be carried.
OF_A_STEP = frozenset({"TensorArray", "TensorArrayV2", "TensorArrayV3", "Placeholder"})
CARRIED = HANDLES | REFERENCES | ITERATORS | TABLES | OF_A_STEP
# Values are fetched in runs of at most so many bytes, because a message has at most 2 GiB.
MOST_BYTES = 2**28

log = logger(__name__)

State = Mapping[str, Any]
"""Name of a variable or an iterator -> its value, or its position as bytes."""


@dataclass(frozen=True, eq=False)
class _Cell:
    """How the value of one variable or iterator is read and written.

    is_set: whether it has a value; None for an iterator, whose reading fails without one.
    """

    num_bytes: int
    is_set: Any
    value: Any
    fed: Any
    write: Any


Execute = Callable[[SessionRun], list[Any]]
"""Executes a run of a session, or the same run in another session."""


class IteratorStarts:
    """The runs that initialised the iterators of sessions."""

    def __init__(self) -> None:
        self._starts: dict[Any, dict[str, SessionRun]] = {}
        self._makers: dict[object, list[Any]] = {}

    def note(self, run: SessionRun) -> None:
        """Remember a run if it initialises iterators; the last run for an iterator counts."""
        if run.signature not in self._makers:
            needed = needed_operations(run).values()
            self._makers[run.signature] = [op for op in needed if op.type == "MakeIterator"]
        for maker in self._makers[run.signature]:
            of_session = self._starts.setdefault(run.session, {})
            of_session[maker.inputs[1].op.name] = replace(run, targets=[maker], fetches=[])

    def of(self, session: Any) -> Mapping[str, SessionRun]:
        """Return name of an iterator -> the run that initialises it."""
        return self._starts.get(session, {})


class StateOps:
    """Operations, added to the graph of a session, that read and write its state."""

    def __init__(self, session: Any) -> None:
        self._session, self._num_seen = session, 0
        self._cells: dict[str, _Cell] = {}

    def read(self, execute: Execute) -> State:
        """Return the state without variables and iterators that have no value."""
        self._extend()
        variables = {name: cell for name, cell in self._cells.items() if cell.is_set is not None}
        flags = execute(self._run(fetches=[cell.is_set for cell in variables.values()]))
        are_set = [name for name, flag in zip(variables, flags, strict=True) if flag]
        state: dict[str, Any] = {}
        for names in _in_messages(are_set, self._cells):
            values = execute(self._run(fetches=[self._cells[name].value for name in names]))
            state |= zip(names, values, strict=True)
        for name in self._cells.keys() - variables.keys():
            state |= self._position(name, execute)
        return state

    def write(self, state: State, starts: Mapping[str, SessionRun], execute: Execute) -> None:
        """Set the variables and the positions of iterators; initialise the lookup tables.

        starts: name of an iterator -> the run that initialises it.
        """
        if tables := self._session.graph.get_collection(TABLE_INITIALIZER):
            execute(self._run(tables))
        for name in state.keys() & starts.keys():
            execute(starts[name])
        for names in _in_messages(list(state), self._cells):
            feeds = {self._cells[name].fed.ref(): state[name] for name in names}
            execute(self._run([self._cells[name].write for name in names], feeds=feeds))

    def _run(
        self,
        targets: Sequence[Any] = (),
        fetches: Sequence[Any] = (),
        feeds: Mapping[Any, Any] = MappingProxyType({}),
    ) -> SessionRun:
        return SessionRun(self._session, list(targets), list(fetches), dict(feeds))

    def _position(self, name: str, execute: Execute) -> State:
        errors = tensorflow().errors
        try:
            return {name: execute(self._run(fetches=[self._cells[name].value]))[0]}
        except errors.FailedPreconditionError as error:
            if "uninitialized" in error.message:
                return {}
            raise _not_carried(name, error) from error
        except (errors.UnimplementedError, errors.InvalidArgumentError) as error:
            raise _not_carried(name, error) from error

    def _extend(self) -> None:
        """Add operations for the variables and iterators that are new in the graph."""
        graph = self._session.graph
        new = graph.get_operations()[self._num_seen :]
        found = [op for op in new if op.type in HANDLES | REFERENCES | ITERATORS]
        with opened(graph), tensorflow().compat.v1.name_scope(SCOPE):
            self._cells |= {op.name: _cell(op) for op in found}
        self._num_seen = len(graph.get_operations())


def check_carried(run: SessionRun, what: str) -> None:
    """Check that the state that a step uses can be carried to another session.

    what: names the program in errors.

    Raises:
        BadInputError: the step uses another resource, such as a queue.
    """
    tf = tensorflow()
    for operation in needed_operations(run).values():
        holds = any(
            tensor.dtype == tf.resource or tensor.dtype._is_ref_dtype
            for tensor in operation.outputs
        )
        is_source = operation.op_def.is_stateful and not operation.inputs
        if holds and is_source and operation.type not in CARRIED:
            raise BadInputError(
                f"{what}: the step uses {operation.name!r}, a {operation.type}, whose state cannot"
                " be carried to the session of another placement; variables, data sets and feeds"
                " were expected: tune the graph of the step (pesto tune), and run the script with"
                " that placement (pesto run --placement)."
            )
    if drawn := [op.name for op in needed_operations(run).values() if _draws(op)]:
        log.warning(
            "%s: the sequence of random numbers of %d ops, such as %r, begins again in the session"
            " of each placement.",
            what,
            len(drawn),
            drawn[0],
        )


def _draws(operation: Any) -> bool:
    """Return whether an operation draws numbers from a sequence that a seed determines."""
    attributes = operation.node_def.attr
    is_seeded = "seed" in attributes and (attributes["seed"].i or attributes["seed2"].i)
    return bool(operation.op_def.is_stateful and is_seeded)


def _cell(operation: Any) -> _Cell:
    tf1, raw = tensorflow().compat.v1, tensorflow().raw_ops
    handle = operation.outputs[0]
    if operation.type in ITERATORS:
        position = raw.SerializeIterator(resource_handle=handle)
        fed = tf1.placeholder(tf1.string, [])
        parsed = raw.ParseTensor(serialized=fed, out_type=tf1.variant)
        write = raw.DeserializeIterator(resource_handle=handle, serialized=parsed)
        return _Cell(0, None, raw.SerializeTensor(tensor=position), fed, write)
    dtype = tf1.as_dtype(operation.get_attr("dtype"))
    shape = tf1.TensorShape(operation.get_attr("shape"))
    fed = tf1.placeholder(dtype)
    num_bytes = dtype.size * (shape.num_elements() or 0)
    if operation.type in REFERENCES:
        is_set = raw.IsVariableInitialized(ref=handle)
        write = tf1.assign(handle, fed, validate_shape=False).op
        return _Cell(num_bytes, is_set, tf1.identity(handle), fed, write)
    is_set = raw.VarIsInitializedOp(resource=handle)
    value = raw.ReadVariableOp(resource=handle, dtype=dtype)
    return _Cell(num_bytes, is_set, value, fed, raw.AssignVariableOp(resource=handle, value=fed))


def _in_messages(names: Sequence[str], cells: Mapping[str, _Cell]) -> Iterator[list[str]]:
    """Yield the names in groups of at most MOST_BYTES, or of one."""
    group, size = list[str](), 0
    for name in names:
        if group and size + cells[name].num_bytes > MOST_BYTES:
            yield group
            group, size = [], 0
        group.append(name)
        size += cells[name].num_bytes
    if group:
        yield group


def _not_carried(name: str, error: Any) -> BadInputError:
    return BadInputError(
        f"the position of data set iterator {name!r} cannot be saved"
        f" ({error.message.splitlines()[0]}), so the session of another placement would begin it"
        " again; feeds, or a data set without Python functions, were expected."
    )
