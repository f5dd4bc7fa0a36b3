"""Run the training of an unmodified v1 program under one placement after the other.

A session cannot get another placement once it has run. So the program's session keeps the graph as
built, and from the first training step on, another session runs in its place: on a copy of the
graph with a placement. To change the placement, the state is carried to the session of the next
placement (see `state`). The program does not notice, because all its runs go to that session:
steps, evaluations, summaries and savers.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pesto_cli.apply.live.graph_copy import GraphCopy
from pesto_cli.apply.live.program import Program, ProgramReport
from pesto_cli.apply.live.state import IteratorStarts, StateOps, check_carried
from pesto_cli.errors import BadInputError, EnvironmentFailedError, PestoError
from pesto_cli.files import PlacementFile
from pesto_cli.graphdef.failures import reason
from pesto_cli.graphdef.programs.run import ProgramStopped
from pesto_cli.graphdef.programs.session_runs import Proceed, SessionRun
from pesto_cli.graphdef.programs.training_step import trains
from pesto_cli.graphdef.tensorflow import tensorflow


@dataclass(frozen=True, eq=False)
class NextStep:
    """How the next training step is to run.

    placement: the same object for all steps of one placement. traced: a RunMetadata to fill.
    is_settled: whether all further steps run under this placement, without being asked for.
    """

    placement: PlacementFile
    traced: Any = None
    is_settled: bool = False


@dataclass(frozen=True, eq=False)
class StandIn:
    """A session with a placed copy of a program's graph."""

    placement: PlacementFile
    session: Any
    copy: GraphCopy
    program: Program

    def of(self, run: SessionRun) -> SessionRun:
        """Return the same run in this session."""
        return self.copy.in_copy(run, self.session)

    def execute(self, run: SessionRun, proceed: Proceed, traced: Any = None) -> list[Any]:
        """Execute a run of the program; traced: a RunMetadata to be filled if it is a step."""
        return self.program.around(self.of(run), proceed, traced)

    def execute_extra(self, run: SessionRun, proceed: Proceed) -> list[Any]:
        """Execute a run that is not the program's own."""
        return self.execute(run, lambda run, traced=None, is_extra=True: proceed(run, traced, True))


class _Place:
    """The sessions that run in place of one session of the program, one at a time."""

    def __init__(self, session: Any) -> None:
        self.session, self.state_ops = session, StateOps(session)
        self.current: StandIn | None = None
        self.open: dict[int, StandIn] = {}


class SwitchedProgram:
    """A program whose training changes its placement between steps.

    Its hooks are those of `hooks.Hooks`.
    """

    def __init__(
        self,
        next_step: Callable[[], NextStep],
        on_step: Callable[[float], None],
        on_failure: Callable[[PestoError], None],
        *,
        target: str,
        devices: Mapping[str, str],
        what: str,
    ) -> None:
        """Create the hooks.

        Args:
            next_step: called before each training step until it returns a settled one.
            on_step: receives the wall time of each such step in us.
            on_failure: receives the error if a placement cannot run; the state is then as before,
                and `next_step` is called again.
            target: address of the server for sessions for which the program names none.
            devices: planned device -> TensorFlow device.
            what: names the program in errors.
        """
        self.failure: PestoError | None = None
        self._next_step, self._on_step, self._on_failure = next_step, on_step, on_failure
        self._target, self._devices, self._what = target, devices, what
        self._places: dict[Any, _Place] = {}
        self._programs: dict[Any, Program] = {}
        self._next: NextStep | None = None
        self._trains: dict[object, bool] = {}
        self._starts = IteratorStarts()
        self._lock = threading.RLock()

    def session_arguments(self, target: Any, graph: Any, config: Any) -> tuple[Any, Any, Any]:
        """Return the constructor arguments of a session: its own, or those of a placed graph."""
        if graph in self._programs:
            return self._programs[graph].session_arguments(target, graph, config)
        own = tensorflow().compat.v1.ConfigProto()
        if config is not None:
            own.CopyFrom(config)
        own.isolate_session_state = bool(target or self._target)
        return target or self._target, graph, own

    def place_before_run(self, session: Any) -> None:
        """Place the graph of a stand-in before its first run."""
        if session.graph in self._programs:
            self._programs[session.graph].place_before_run(session)

    def as_built(self, graph: Any, graph_def: Any) -> Any:
        """Return the GraphDef of the program's own graph, which is not placed, unchanged."""
        del graph
        return graph_def

    def around(self, run: SessionRun, proceed: Proceed) -> list[Any]:
        """Execute a run: in the program's own session before its first step, then in another."""
        with self._lock:
            if self.failure is not None:
                raise ProgramStopped
            self._starts.note(run)
            place = self._places.get(run.session)
            is_training = self._known_to_train(run)
            if place is None and not is_training:
                return proceed(run)
            if place is None or not self._is_settled(place):
                return self._unsettled(run, proceed, is_training)
        assert place.current is not None
        return place.current.execute(run, proceed)

    def report(self, placement: PlacementFile) -> ProgramReport | None:
        """Return the steps under a placement since the last `forget`; None if there were none."""
        for place in self._places.values():
            stand_in = place.open.get(id(placement))
            if stand_in is not None and stand_in.program.step_us:
                return stand_in.program.report()
        return None

    def forget(self) -> None:
        """Close all sessions but those that hold the state; called while no step runs."""
        for place in self._places.values():
            for key, stand_in in [*place.open.items()]:
                if stand_in is not place.current:
                    stand_in.session.close()
                    del place.open[key], self._programs[stand_in.copy.graph]

    def _is_settled(self, place: _Place) -> bool:
        following = self._next
        return (
            following is not None
            and following.is_settled
            and place.current is not None
            and place.current.placement is following.placement
        )

    def _known_to_train(self, run: SessionRun) -> bool:
        key = run.signature
        if key not in self._trains:
            self._trains[key] = trains(run)
        return self._trains[key]

    def _unsettled(self, run: SessionRun, proceed: Proceed, is_training: bool) -> list[Any]:
        """Execute a run while placements change: a training step, or a run between steps."""
        place = self._places.get(run.session)
        if place is None:
            try:
                check_carried(run, self._what)
            except BadInputError as error:
                self.failure = error
                raise ProgramStopped from error
            place = self._places[run.session] = _Place(run.session)
        current = place.current
        if current is not None and not (is_training and current.program.is_step(current.of(run))):
            return current.execute(run, proceed)
        while True:
            following = self._next = self._next or self._next_step()
            try:
                return self._step(run, proceed, place, following)
            except _CannotRunError as failure:
                if following.is_settled:
                    self.failure = failure.error
                    raise ProgramStopped from failure
                self._next = None
                self._on_failure(failure.error)

    def _step(
        self, run: SessionRun, proceed: Proceed, place: _Place, following: NextStep
    ) -> list[Any]:
        before = place.current
        is_new = before is None or before.placement is not following.placement
        if is_new:
            self._switch(place, following.placement, proceed)
        stand_in = place.current
        assert stand_in is not None
        num_steps = len(stand_in.program.step_us)
        try:
            values = stand_in.execute(run, proceed, following.traced)
        except (ProgramStopped, tensorflow().errors.OpError) as error:
            failure = _failure(stand_in, error)
            if failure is None or not is_new:
                self.failure = stand_in.program.failure
                raise
            # The session before still has the state: no step was made since.
            place.current = before
            raise _CannotRunError(failure) from error
        if len(stand_in.program.step_us) > num_steps:
            if not following.is_settled:
                self._next = None
            self._on_step(stand_in.program.step_us[-1])
        return values

    def _switch(self, place: _Place, placement: PlacementFile, proceed: Proceed) -> None:
        """Carry the state to a session with a placement, which is opened if need be."""
        before = place.current
        stand_in = place.open.get(id(placement))
        try:
            state = place.state_ops.read(
                lambda run: (
                    proceed(run, is_extra=True)
                    if before is None
                    else before.execute_extra(run, proceed)
                )
            )
            if stand_in is None:
                stand_in = self._opened(place.session, placement)
                place.open[id(placement)] = stand_in
            stand_in.program.place_before_run(stand_in.session)
            starts = self._starts.of(place.session)
            place.state_ops.write(state, starts, lambda run: stand_in.execute_extra(run, proceed))
        except BadInputError as error:
            raise _CannotRunError(error) from error
        except (ProgramStopped, tensorflow().errors.OpError) as error:
            failure = None if stand_in is None else _failure(stand_in, error)
            if failure is None:
                raise
            raise _CannotRunError(failure) from error
        place.current = stand_in

    def _opened(self, session: Any, placement: PlacementFile) -> StandIn:
        copy = GraphCopy(session.graph)
        program = Program(placement, self._target, self._devices, "full", False, self._what)
        self._programs[copy.graph] = program
        tf = tensorflow()
        target = tf.compat.as_str(session.sess_str)
        opened = tf.compat.v1.Session(target, graph=copy.graph, config=session._config)
        return StandIn(placement, opened, copy, program)


class _CannotRunError(Exception):
    """A placement cannot run, and no step was made under it."""

    def __init__(self, error: PestoError) -> None:
        super().__init__(str(error))
        self.error = error


def _failure(stand_in: StandIn, error: ProgramStopped | Exception) -> PestoError | None:
    """Return the error of a placement that cannot run; None if the program was stopped for else."""
    if isinstance(error, ProgramStopped):
        return stand_in.program.failure
    errors = tensorflow().errors
    if isinstance(error, errors.UnavailableError | errors.AbortedError | errors.OutOfRangeError):
        return None
    if isinstance(error, errors.ResourceExhaustedError):
        return EnvironmentFailedError(f"the devices could not run the step: {reason(error)}")
    return BadInputError(f"TensorFlow cannot run the step: {reason(error)}")
