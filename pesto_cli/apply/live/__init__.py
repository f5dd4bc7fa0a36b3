"""Unmodified v1 programs under a placement.

    with placed_program(placement) as program:
        ...  # builds a graph, opens a session, trains
    program.report()

The graph that trains gets the placement when a session first sees it, and does not train without:
TensorFlow takes no changes to what a session has seen. Sessions get the settings under which it
stays as it is.
"""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any, NoReturn

from pesto_cli.apply.device_names import check_devices
from pesto_cli.apply.edits import Changes, Order
from pesto_cli.apply.live.placement import PlacedGraph, place_graph
from pesto_cli.apply.live.same_step import Difference
from pesto_cli.apply.live.unordered import Unordered, runs_more, unordered
from pesto_cli.apply.session import SETTINGS, enforce_settings
from pesto_cli.errors import BadInputError
from pesto_cli.files import PlacementFile
from pesto_cli.graphdef.fetches import FED_TYPES
from pesto_cli.graphdef.programs.replaced import replaced
from pesto_cli.graphdef.programs.run import ProgramStopped, run_program
from pesto_cli.graphdef.programs.session_runs import Proceed, SessionRun, needed_operations, watched
from pesto_cli.graphdef.programs.training_step import trains
from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.printable import logger

NUM_TRACED = 2
"""Steps that are traced, the last of which is kept: the first is not like the others."""

log = logger(__name__)


@dataclass(frozen=True)
class SessionReport:
    """A session that the program opened.

    target: where it runs. adjusted: the settings that it was not given, or asked to have otherwise.
    """

    target: str
    adjusted: tuple[str, ...]


@dataclass(frozen=True)
class ProgramReport:
    """What became of a program.

    meta: the graph before it was placed. changes: what was changed in it, by name.
    step_us: what each placed step took, as the program saw it; the first `NUM_TRACED` were traced
    if that was asked for. traced: the RunMetadata of the last of those.
    unordered: what other runs asked for that do without the order.
    """

    meta: Any
    changes: Changes
    step_us: tuple[float, ...]
    traced: Any
    sessions: tuple[SessionReport, ...]
    unordered: tuple[tuple[str, ...], ...]


def run_script(
    path: Path,
    argv: Sequence[str],
    placement: PlacementFile,
    target: str = "",
    device_names: Mapping[str, str] | None = None,
    *,
    order: Order = "full",
    trace: bool = False,
) -> ProgramReport:
    """Run the script at `path` as `python path *argv` would, with its training step placed.

    Arguments and errors are those of `placed_program`; beside these, BadInputError where the
    script fails, or ends without having trained what was placed.
    """
    what = str(path)
    with placed_program(
        placement, target=target, devices=device_names, order=order, trace=trace, what=what
    ) as program:
        run_program(path, argv)
    return program.report()


@contextmanager
def placed_program(
    placement: PlacementFile,
    *,
    target: str = "",
    devices: Mapping[str, str] | None = None,
    order: Order = "full",
    trace: bool = False,
    what: str = "the program",
) -> Iterator["Program"]:
    """Place what v1 sessions train while the context lasts.

    Args:
        placement: of the graph that the program trains, as `capture` takes it.
        target: where sessions run for which the program names no target.
        devices: planned device -> TensorFlow's; by default `/device:GPU:0` for `GPU:0`. It may know
            more devices than are planned.
        order: "full" or "none", see `planned_changes`.
        trace: take a full trace of the second step, or of the only one.
        what: names the program in errors.

    Raises:
        BadInputError: the program trains another graph, or on devices that are not there; or the
            placement does not fit its graph.
    """
    tensorflow()
    from tensorflow.python.client.session import BaseSession

    program = Program(placement, target, devices, order, trace, what)
    extend, init = BaseSession._extend_graph, BaseSession.__init__

    def extend_graph(self: Any) -> None:
        program.see(self)
        extend(self)

    def begin(self: Any, target: Any = "", graph: Any = None, config: Any = None) -> None:
        init(self, *program.begin(target, graph, config))

    with replaced(BaseSession, _extend_graph=extend_graph, __init__=begin), watched(program.around):
        try:
            yield program
        except ProgramStopped:
            if program.failure is None:
                raise
    if program.failure is not None:
        raise program.failure


@dataclass(frozen=True, eq=False)
class _Way:
    """How to make a run. instead: what stands in for it; None for the run as it is."""

    is_step: bool
    instead: Unordered | None = None


@dataclass(eq=False)
class _Graph:
    """What is known of a graph.

    difference: from the placement's, while it is not placed.
    num_seen: how many of its operations some session has seen.
    """

    difference: Difference
    placed: PlacedGraph | None = None
    num_seen: int = 0
    ways: dict[tuple[object, ...], _Way] = field(default_factory=dict)


class Program:
    """A program that runs under a placement."""

    def __init__(
        self,
        placement: PlacementFile,
        target: str,
        devices: Mapping[str, str] | None,
        order: Order,
        trace: bool,
        what: str,
    ) -> None:
        self.failure: BadInputError | None = None
        self._placement, self._target, self._order, self._what = placement, target, order, what
        self._devices = None if devices is None else _of_placement(devices, placement)
        self._traced = tensorflow().compat.v1.RunMetadata() if trace else None
        self._graphs: dict[Any, _Graph] = {}
        self._sessions: list[SessionReport] = []
        self._unordered: list[tuple[str, ...]] = []
        self._step_us: list[float] = []
        self._lock = threading.RLock()

    def report(self) -> ProgramReport:
        """Return what became of the program.

        Raises BadInputError if it has run no step of the placement.
        """
        closest = min(self._graphs.values(), key=_distance, default=None)
        if closest is None or closest.placed is None or not self._step_us:
            raise self._not_trained(closest, has_trained=False)
        return ProgramReport(
            meta=closest.placed.meta,
            changes=closest.placed.changes,
            step_us=tuple(self._step_us),
            traced=self._traced,
            sessions=tuple(self._sessions),
            unordered=tuple(self._unordered),
        )

    def begin(self, target: Any, graph: Any, config: Any) -> tuple[Any, Any, Any]:
        """Return the arguments of a session with which it keeps a placed graph as it is."""
        from tensorflow.python.eager import context

        own = tensorflow().compat.v1.ConfigProto()
        own.CopyFrom(context.context().config if config is None else config)
        asked = [] if config is None else _asked_otherwise(own)
        adjusted = enforce_settings(own)
        target = target or self._target
        if target:
            own.isolate_session_state = True
        if self._num_cpus() > own.device_count.get("CPU", 1):
            own.device_count["CPU"] = self._num_cpus()
        self._sessions.append(SessionReport(str(target), adjusted))
        if asked:
            log.warning(
                "%s: a session asks for %s; the placement would be lost, so it is set otherwise.",
                self._what,
                ", ".join(asked),
            )
        return target, graph, own

    def see(self, session: Any) -> None:
        """Place the graph of a session that is about to see what has been added to it."""
        with self._lock:
            graph = session.graph
            unlike = Difference(planned=self._placement.names)
            known = self._graphs.setdefault(graph, _Graph(unlike))
            num_operations = len(graph.get_operations()) if known.placed is None else 0
            if num_operations > known.num_seen:
                self._place(graph, known, session)
                known.num_seen = num_operations

    def around(self, run: SessionRun, proceed: Proceed) -> list[Any]:
        """Make a run: of the step in order, any other as if there were none."""
        with self._lock:
            if self.failure is not None:
                raise ProgramStopped
            self.see(run.session)
            known = self._graphs[run.graph]
            if run.signature not in known.ways:
                known.ways[run.signature] = self._way(run, known)
            way = known.ways[run.signature]
        if way.instead is not None:
            return proceed(way.instead.instead_of(run))
        return self._step(run, proceed) if way.is_step else proceed(run)

    def _step(self, run: SessionRun, proceed: Proceed) -> list[Any]:
        traced = self._traced if len(self._step_us) < NUM_TRACED else None
        began = time.perf_counter()
        values = proceed(run, traced)
        self._step_us.append((time.perf_counter() - began) * 1e6)
        return values

    def _place(self, graph: Any, known: _Graph, session: Any) -> None:
        try:
            found = place_graph(
                graph,
                self._placement,
                order=self._order,
                devices=self._devices,
                num_seen=known.num_seen,
                what=self._what,
            )
            if isinstance(found, PlacedGraph):
                there = [device.name for device in session.list_devices()]
                check_devices(set(found.changes.device.values()), there, self._what)
        except BadInputError as error:
            self._stop(error)
        if isinstance(found, PlacedGraph):
            known.placed = found
        else:
            known.difference = found

    def _way(self, run: SessionRun, known: _Graph) -> _Way:
        if known.placed is None:
            if trains(run):
                self._stop(self._not_trained(known, has_trained=True))
            return _Way(is_step=False)
        fed = {reference.deref().op.name for reference in run.feeds}
        if replaced := sorted(fed & known.placed.left_out):
            self._stop(self._fed_in_vain(replaced[0]))
        added = known.placed.added
        needed = needed_operations(run, without=added)
        makes_step = known.placed.updates <= needed.keys()
        if not runs_more(needed, added):
            return _Way(makes_step)
        if makes_step and not _unfed(run, needed):
            return _Way(is_step=True)
        self._unordered.append(run.names)
        return _Way(is_step=False, instead=unordered(run.graph, needed, added))

    def _stop(self, failure: BadInputError) -> NoReturn:
        """End the program with an error that it cannot handle."""
        self.failure = failure
        raise ProgramStopped

    def _not_trained(self, known: _Graph | None, *, has_trained: bool) -> BadInputError:
        if known is None:
            found = "the script ran no session, where a TF1-style program"
        elif not has_trained and known.placed is None:
            found = "no session of the script ran a training step, where a program"
        elif known.placed is not None:
            found = "the script did not run the step that was placed, where a program"
        else:
            found = (
                f"the graph is not the one that was placed ({known.difference}), where a program"
            )
        return BadInputError(
            f"{self._what}: {found} that trains the placement's graph was expected: take the graph"
            f" from the script with the same arguments (pesto export {self._what} --capture),"
            " without --optimize, profile and solve that."
        )

    def _fed_in_vain(self, name: str) -> BadInputError:
        return BadInputError(
            f"{self._what}: a run feeds {name!r}, which the placement's step does without, as it"
            " repeats what another op gives; a placement of the graph as it is built was expected:"
            f" pesto export {self._what} --capture --as-built, profile and solve that."
        )

    def _num_cpus(self) -> int:
        """How many CPU devices the placement uses in the program's own process."""
        if self._target:
            return 0
        used = {self._placement.devices[index] for index in self._placement.device}
        names = [(self._devices or {}).get(name, name) for name in used]
        numbers = [int(name.rpartition("CPU:")[2]) for name in names if "CPU:" in name]
        return max(numbers, default=-1) + 1


def _of_placement(devices: Mapping[str, str], placement: PlacementFile) -> dict[str, str]:
    return {name: devices[name] for name in placement.devices if name in devices}


def _distance(known: _Graph) -> int:
    """How far a graph is from the placement's, in ops."""
    return len(known.difference) if known.placed is None else 0


def _asked_otherwise(config: Any) -> list[str]:
    """Settings that a program has chosen, and not as a placed graph needs them."""
    default = tensorflow().compat.v1.ConfigProto()
    return [
        f"{path} = {attrgetter(path)(config)}"
        for path, accepted in SETTINGS.items()
        if attrgetter(path)(config) not in (*accepted, attrgetter(path)(default))
    ]


def _unfed(run: SessionRun, needed: Mapping[str, Any]) -> bool:
    """Whether the order makes a run need a placeholder that it does not feed."""
    return any(
        operation.type in FED_TYPES and name not in needed
        for name, operation in needed_operations(run).items()
    )
