"""The training of an unmodified script, some steps at a time, each under a given placement.

The script runs in a thread of the client process. It waits before each training step until a call
says how the step is to run, so that the caller decides what is measured.
"""

import signal
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np

from pesto_cli.apply import NextStep, SwitchedProgram, hooked
from pesto_cli.cluster import Connection
from pesto_cli.errors import PestoError
from pesto_cli.files import PlacementFile
from pesto_cli.graphdef.programs.replaced import replaced
from pesto_cli.graphdef.programs.run import ProgramStopped, run_program
from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.runtime.comparison import RealRun
from pesto_cli.runtime.interleaved import Turns
from pesto_cli.runtime.scripts import real_run

# The key of the training in `Connection.kept`.
LIVE_TRAINING = "live training"
_set_handler = signal.signal


class ScriptEndedError(PestoError):
    """The script ended before all steps were made for which it was asked."""


@dataclass(frozen=True)
class _Ended:
    """What the thread of the script sends last. error: why the script failed, if it did."""

    error: BaseException | None


class _Use(Enum):
    """What a step is used for."""

    WARM_UP = auto()
    TRACED = auto()
    TIMED = auto()


class LiveTraining:
    """A script whose training steps are run on request."""

    def __init__(self, connection: Connection, path: Path, argv: Sequence[str]) -> None:
        """Start the script."""
        self._names = connection.device_names
        self._path, self._num_steps = path, 0
        self._next: SimpleQueue[NextStep | None] = SimpleQueue()
        self._results: SimpleQueue[float | PestoError | _Ended] = SimpleQueue()
        self._program = SwitchedProgram(
            self._following,
            self._results.put,
            self._results.put,
            target=connection.target,
            devices=connection.device_names,
            what=str(path),
        )
        self._thread = threading.Thread(target=self._run, args=(path, argv), daemon=True)
        self._thread.start()

    def _run(self, path: Path, argv: Sequence[str]) -> None:
        error: BaseException | None = None
        try:
            with hooked(self._program), replaced(signal, signal=_own_handler_stays):
                run_program(path, argv)
        except BaseException as failure:
            error = failure
        self._results.put(_Ended(error))

    def _following(self) -> NextStep:
        following = self._next.get()
        if following is None:
            self._next.put(None)  # for other threads of the script that train
            raise ProgramStopped
        return following

    def stop(self) -> None:
        """End the script before its next training step, as if it had called `sys.exit`."""
        self._next.put(None)
        self._thread.join()

    def steps(self, placements: Sequence[PlacementFile], turns: Turns) -> list[RealRun]:
        """Run the next training steps of the script under some placements, by turns.

        Raises:
            PestoError: the script failed, or a placement cannot run. In the second case, the script
                goes on with the next call.
            ScriptEndedError: the script ended.
        """
        try:
            return self._by_turns(placements, turns)
        finally:
            self._program.forget()

    def _by_turns(self, placements: Sequence[PlacementFile], turns: Turns) -> list[RealRun]:
        us: list[list[float]] = [[] for _ in placements]
        traced: list[list[Any]] = [[] for _ in placements]
        for index, use in _order(len(placements), turns):
            trace = tensorflow().compat.v1.RunMetadata() if use is _Use.TRACED else None
            step_us = self._step(NextStep(placements[index], trace))
            if use is _Use.TIMED:
                us[index].append(step_us)
            elif use is _Use.TRACED:
                traced[index].append(trace)
        runs = []
        for placement, times, traces in zip(placements, us, traced, strict=True):
            report = self._program.report(placement)
            assert report is not None
            by_turn = np.reshape(times, (-1, turns.num_in_a_row))
            runs.append(real_run(report, placement, self._names, by_turn, traces))
        return runs

    def finish(self, placement: PlacementFile) -> RealRun | None:
        """Run the script to its end under a placement; None if it made no further step."""
        traced = tensorflow().compat.v1.RunMetadata()
        before = self._program.report(placement)
        try:
            traced_us = self._step(NextStep(placement, traced))
        except ScriptEndedError:
            return None
        self._program.forget()
        self._next.put(NextStep(placement, is_settled=True))
        while not isinstance(result := self._results.get(), _Ended):
            pass
        if result.error is not None:
            raise result.error
        report = self._program.report(placement)
        assert report is not None
        num_before = 0 if before is None else len(before.step_us)
        us = report.step_us[num_before + 1 :] or (traced_us,)
        return real_run(report, placement, self._names, np.array([us]), [traced])

    def _step(self, following: NextStep) -> float:
        """Run one step; return its wall time in us."""
        self._next.put(following)
        result = self._results.get()
        if isinstance(result, float):
            self._num_steps += 1
            return result
        if isinstance(result, PestoError):
            raise result
        self._results.put(result)  # for a later call
        if result.error is not None:
            raise result.error
        raise ScriptEndedError(
            f"{self._path}: the script ended after {self._num_steps} training steps, where more"
            " were expected: let it train longer, or tune in fewer steps (--tune)."
        )


def _own_handler_stays(number: int, handler: Any) -> Any:
    """Set no handler, as only the main thread may, and return that of the process.

    The process is ended by a kill, so a handler of the script would never be called.
    """
    if threading.current_thread() is threading.main_thread():
        return _set_handler(number, handler)
    return signal.getsignal(number)


def _order(num_placements: int, turns: Turns) -> Iterator[tuple[int, _Use]]:
    """Yield the placement of each step, and what the step is used for.

    The untimed steps of a placement come first, and in a row, because each change of the placement
    takes time.
    """
    for index in range(num_placements):
        yield from [(index, _Use.WARM_UP)] * turns.num_warm_up
        yield from [(index, _Use.TRACED)] * turns.num_traced
    random = np.random.default_rng(0)
    for _ in range(turns.num_steps // turns.num_in_a_row):
        for index in random.permutation(num_placements).tolist():
            yield from [(index, _Use.TIMED)] * turns.num_in_a_row


def begin(connection: Connection, path: Path, argv: Sequence[str]) -> None:
    """Start a script; it waits before its first training step."""
    connection.kept[LIVE_TRAINING] = LiveTraining(connection, path, argv)


def steps(
    connection: Connection, placements: Sequence[PlacementFile], turns: Turns
) -> list[RealRun]:
    """Run training steps of the script that was started; see `LiveTraining.steps`."""
    training: LiveTraining = connection.kept[LIVE_TRAINING]
    return training.steps(placements, turns)


def finish(connection: Connection, placement: PlacementFile) -> RealRun | None:
    """Run the script that was started to its end; see `LiveTraining.finish`."""
    training: LiveTraining = connection.kept[LIVE_TRAINING]
    return training.finish(placement)


def stop(connection: Connection) -> None:
    """End the script that was started, if it still runs."""
    if LIVE_TRAINING in connection.kept:
        connection.kept.pop(LIVE_TRAINING).stop()
