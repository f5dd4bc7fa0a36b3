"""A program that runs with a placement: its graphs are placed, and its runs are executed."""

import threading
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, NoReturn

from pesto_cli.apply.device_names import check_devices
from pesto_cli.apply.devices import of_placement
from pesto_cli.apply.edits import Changes, Order
from pesto_cli.apply.live.copies import NO_COPIES, Copies
from pesto_cli.apply.live.placement import PlacedGraph, place_graph
from pesto_cli.apply.live.split_step import SplitStep, add_split_step, fed_shapes
from pesto_cli.apply.live.unordered import runs_more, unordered
from pesto_cli.apply.same_step import Difference
from pesto_cli.apply.session import SETTINGS, enforce_settings
from pesto_cli.errors import BadInputError, PestoError
from pesto_cli.files import PlacementFile
from pesto_cli.graphdef.fetches import FED_TYPES
from pesto_cli.graphdef.programs.run import ProgramStopped
from pesto_cli.graphdef.programs.session_runs import Proceed, SessionRun, needed_operations
from pesto_cli.graphdef.programs.training_step import trains
from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.printable import logger

NUM_TRACED = 2
"""Number of steps that are traced. The last trace is kept: the first step takes longer."""

log = logger(__name__)


@dataclass(frozen=True)
class SessionReport:
    """A session that the program opened.

    target: address of the server on which it runs; empty for the program's own process.
    adjusted: names of the settings that were changed for the placement.
    """

    target: str
    adjusted: tuple[str, ...]


@dataclass(frozen=True)
class ProgramReport:
    """The results of a program that ran with a placement.

    meta: the graph before it was placed.
    changes: the changes to it.
    step_us: wall time of each placed step. The first `NUM_TRACED` steps were traced on request.
    traced: the RunMetadata of the last traced step; None if none was requested, and for Keras
        models, of whose steps TensorFlow makes none. If ops are split, its nodes have the
        names of the split graph, `changes.split`.
    sessions: the sessions that the program opened.
    unordered: the names that other runs requested, for each run that ignores the order.
    """

    meta: Any
    changes: Changes
    step_us: tuple[float, ...]
    traced: Any
    sessions: tuple[SessionReport, ...]
    unordered: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, eq=False)
class _RunPlan:
    """How to execute a run.

    is_step: whether it is a step of the placement.
    instead: the copies to run in place of the run's ops.
    """

    is_step: bool
    instead: Copies = NO_COPIES


@dataclass(eq=False)
class _Graph:
    """The state of one graph of the program.

    difference: how the graph differs from that of the placement, while it is not placed.
    placed: the result of placing the graph, or None.
    split: the copy of the step with split ops, if the placement splits ops and a step has run.
    num_seen: the number of operations of the graph that a session has run or could have run.
    plans: how to execute its runs, by their signature and the shapes of their feeds.
    ran_whole: why the last step that could not be split ran with whole ops.
    num_steps: the number of placed steps that ran.
    """

    difference: Difference
    placed: PlacedGraph | None = None
    split: SplitStep | None = None
    num_seen: int = 0
    plans: dict[object, _RunPlan] = field(default_factory=dict)
    ran_whole: str = ""
    num_steps: int = 0

    def values_for(
        self, run: SessionRun, proceed: Proceed, *, is_step: bool
    ) -> AbstractContextManager[None]:
        """Return a context of a run, in which its variables have their newest values."""
        if self.split is None:
            return nullcontext()
        return self.split.variables.in_use(run, proceed, is_step=is_step)


class Program:
    """A program that runs with a placement.

    step_us: the wall time of each placed step.
    """

    def __init__(
        self,
        placement: PlacementFile,
        target: str,
        devices: Mapping[str, str] | None,
        order: Order,
        trace: bool,
        what: str,
    ) -> None:
        self.failure: PestoError | None = None
        self._placement, self._target, self._order, self._what = placement, target, order, what
        self._devices = None if devices is None else of_placement(devices, placement.devices)
        self._traced = tensorflow().compat.v1.RunMetadata() if trace else None
        self._graphs: dict[Any, _Graph] = {}
        self._sessions: list[SessionReport] = []
        self._unordered: list[tuple[str, ...]] = []
        self.step_us: list[float] = []
        self._lock = threading.RLock()

    def report(self) -> ProgramReport:
        """Return the results of the program.

        Raises BadInputError if it has run no step of the placement.
        """
        closest = min(self._graphs.values(), key=_rank, default=None)
        if closest is not None and closest.ran_whole and not self.step_us:
            raise BadInputError(
                f"{self._what}: all steps ran with whole ops, the last because it "
                f"{closest.ran_whole}; steps that can be split were expected: solve with "
                "--whole-variables if a split variable is the reason, or with --max-parts 1."
            )
        if closest is None or closest.placed is None or not self.step_us:
            raise self._not_trained(closest, has_trained=False)
        applied = closest.placed if closest.split is None else closest.split
        return ProgramReport(
            meta=closest.placed.meta,
            changes=applied.changes,
            step_us=tuple(self.step_us),
            traced=self._traced,
            sessions=tuple(self._sessions),
            unordered=tuple(self._unordered),
        )

    def session_arguments(self, target: Any, graph: Any, config: Any) -> tuple[Any, Any, Any]:
        """Return the constructor arguments of a session that keeps a placed graph unchanged."""
        from tensorflow.python.eager import context

        own = tensorflow().compat.v1.ConfigProto()
        own.CopyFrom(context.context().config if config is None else config)
        conflicting = [] if config is None else _conflicting_settings(own)
        adjusted = enforce_settings(own)
        target = target or self._target
        if target:
            own.isolate_session_state = True
        if self._num_cpus() > own.device_count.get("CPU", 1):
            own.device_count["CPU"] = self._num_cpus()
        self._sessions.append(SessionReport(str(target), adjusted))
        if conflicting:
            log.warning(
                "%s: a session requests %s. With this setting, TensorFlow could change the placed"
                " graph, so pesto does not use it.",
                self._what,
                ", ".join(conflicting),
            )
        return target, graph, own

    def place_before_run(self, session: Any) -> None:
        """Place the graph of a session that is about to run, if ops have been added to it."""
        with self._lock:
            graph = session.graph
            unlike = Difference(planned=self._placement.graph_ops)
            known = self._graphs.setdefault(graph, _Graph(unlike))
            num_operations = len(graph.get_operations()) if known.placed is None else 0
            if num_operations > known.num_seen:
                self._place(graph, known, session)
                known.num_seen = num_operations

    def as_built(self, graph: Any, graph_def: Any) -> Any:
        """Return the GraphDef of a graph without what pesto has changed; `graph_def` may change."""
        known = self._graphs.get(graph)
        placed = None if known is None else known.placed
        return graph_def if placed is None else placed.as_built(graph_def)

    def around(self, run: SessionRun, proceed: Proceed, traced: Any = None) -> list[Any]:
        """Execute a run: a step in the planned order, any other run as if there were no order.

        traced: a RunMetadata to be filled if the run is a step.
        """
        plan, known = self._how(run)
        run = plan.instead.instead_of(run)
        with known.values_for(run, proceed, is_step=plan.is_step):
            return self._step(run, proceed, known, traced) if plan.is_step else proceed(run)

    def is_step(self, run: SessionRun) -> bool:
        """Return whether a run is a step of the placement; the run does not take place."""
        return self._how(run)[0].is_step

    def _how(self, run: SessionRun) -> tuple[_RunPlan, _Graph]:
        with self._lock:
            if self.failure is not None:
                raise ProgramStopped
            self.place_before_run(run.session)
            known = self._graphs[run.graph]
            return self._known_plan(run, known), known

    def _step(self, run: SessionRun, proceed: Proceed, known: _Graph, traced: Any) -> list[Any]:
        if traced is None and len(self.step_us) < NUM_TRACED:
            traced = self._traced
        began = time.perf_counter()
        values = proceed(run, traced)
        self.step_us.append((time.perf_counter() - began) * 1e6)
        known.num_steps += 1
        if traced is not None and known.split is not None:
            known.split.name_as_planned(traced)
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
                self._check_devices(found.changes, session)
        except BadInputError as error:
            self._stop(error)
        if isinstance(found, PlacedGraph):
            known.placed = found
        else:
            known.difference = found

    def _known_plan(self, run: SessionRun, known: _Graph) -> _RunPlan:
        shapes = frozenset(fed_shapes(run).items()) if self._placement.plan else ()
        key = (run.signature, shapes)
        if key not in known.plans:
            known.plans[key] = self._plan(run, known)
        return known.plans[key]

    def _plan(self, run: SessionRun, known: _Graph) -> _RunPlan:
        if known.placed is None:
            if trains(run):
                self._stop(self._not_trained(known, has_trained=True))
            return _RunPlan(is_step=False)
        added = known.placed.added
        needed = needed_operations(run, without=added)
        makes_step = known.placed.updates <= needed.keys()
        if self._placement.plan and not makes_step:
            return _RunPlan(is_step=False)
        fed = {reference.deref().op.name for reference in run.feeds}
        if replaced := sorted(fed & known.placed.left_out):
            self._stop(self._feeds_removed_op(replaced[0]))
        if self._placement.plan:
            return self._plan_split_step(run, known)
        if not runs_more(needed, known.placed.changes.waits_for):
            return _RunPlan(makes_step)
        if makes_step and not _unfed(run, needed):
            return _RunPlan(is_step=True)
        self._unordered.append(run.names)
        return _RunPlan(is_step=False, instead=unordered(run.graph, needed, added))

    def _plan_split_step(self, run: SessionRun, known: _Graph) -> _RunPlan:
        """Return how to execute a run of the step if the placement splits ops."""
        try:
            if known.split is None:
                known.split = add_split_step(
                    run,
                    self._placement,
                    order=self._order,
                    devices=self._devices,
                    what=self._what,
                )
                self._check_devices(known.split.changes, run.session)
            copies = known.split.instead_of(run)
        except BadInputError as error:
            self._stop(error)
        if isinstance(copies, str):
            known.ran_whole = copies
            log.warning("%s: a step ran with whole ops: it %s.", self._what, copies)
            return _RunPlan(is_step=False)
        return _RunPlan(is_step=True, instead=copies)

    def _check_devices(self, changes: Changes, session: Any) -> None:
        there = [device.name for device in session.list_devices()]
        check_devices(set(changes.device.values()), there, self._what)

    def _stop(self, failure: BadInputError) -> NoReturn:
        """Record an error and end the program, which cannot handle the error."""
        self.failure = failure
        raise ProgramStopped

    def _not_trained(self, known: _Graph | None, *, has_trained: bool) -> BadInputError:
        if known is None:
            found = "the script did not train, where a program"
        elif not has_trained and known.placed is None:
            found = "no session of the script ran a training step, where a program"
        elif known.placed is not None:
            found = "the script did not run the step that was placed, where a program"
        else:
            found = (
                f"the graph is not the graph of the placement ({known.difference}), where a program"
            )
        return BadInputError(
            f"{self._what}: {found} that trains the placement's graph was expected: capture the"
            f" graph of the script with the same arguments (pesto export {self._what} --capture),"
            " without --optimize, then profile and solve it."
        )

    def _feeds_removed_op(self, name: str) -> BadInputError:
        return BadInputError(
            f"{self._what}: a run feeds {name!r}, which the placement's step does not contain,"
            " because it computes the same as another op; a placement of the graph as built was"
            f" expected: pesto export {self._what} --capture --as-built, then profile and solve"
            " the exported graph."
        )

    def _num_cpus(self) -> int:
        """Return the number of CPU devices that the program's process needs; 0 with a target."""
        if self._target:
            return 0
        used = {self._placement.devices[index] for index in self._placement.device}
        names = [(self._devices or {}).get(name, name) for name in used]
        numbers = [int(name.rpartition("CPU:")[2]) for name in names if "CPU:" in name]
        return max(numbers, default=-1) + 1


def _rank(known: _Graph) -> tuple[int, int]:
    """Return a key that is least for the graph of most steps, then for the most similar one."""
    return -known.num_steps, len(known.difference) if known.placed is None else 0


def _conflicting_settings(config: Any) -> list[str]:
    """Return the settings that a program has chosen and that could change a placed graph."""
    default = tensorflow().compat.v1.ConfigProto()
    return [
        f"{path} = {attrgetter(path)(config)}"
        for path, accepted in SETTINGS.items()
        if attrgetter(path)(config) not in (*accepted, attrgetter(path)(default))
    ]


def _unfed(run: SessionRun, needed: Mapping[str, Any]) -> bool:
    """Return whether a run, because of the order, needs a placeholder that it does not feed."""
    return any(
        operation.type in FED_TYPES and name not in needed
        for name, operation in needed_operations(run).items()
    )
