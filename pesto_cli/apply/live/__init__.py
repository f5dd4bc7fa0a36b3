"""Run unmodified v1 programs with a placement.

    with placed_program(placement) as program:
        ...  # builds a graph, opens a session, trains
    program.report()

The placement is applied to the training graph before a session first runs it, because TensorFlow
ignores later changes to ops that a session has run. Training without the placement raises an error.
Sessions get the settings that keep the placed graph unchanged.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from pesto_cli.apply.edits import Order
from pesto_cli.apply.live.hooks import hooked
from pesto_cli.apply.live.keras_training import placed_keras
from pesto_cli.apply.live.program import Program, ProgramReport
from pesto_cli.files import PlacementFile
from pesto_cli.graphdef.programs.run import run_program


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

    The step is that of v1 sessions, or of a Keras model. Arguments and errors are those of
    `placed_program` and `placed_keras`. BadInputError is also raised if the script
    fails, or ends without running a step of the placement.
    """
    what = str(path)
    with (
        placed_program(
            placement, target=target, devices=device_names, order=order, trace=trace, what=what
        ) as program,
        placed_keras(placement, devices=device_names, order=order, what=what) as models,
    ):
        run_program(path, argv)
    return models.report() or program.report()


@contextmanager
def placed_program(
    placement: PlacementFile,
    *,
    target: str = "",
    devices: Mapping[str, str] | None = None,
    order: Order = "full",
    trace: bool = False,
    what: str = "the program",
) -> Iterator[Program]:
    """Apply a placement to the graph that v1 sessions train within the context.

    Args:
        placement: a placement of the program's training graph, as written by `capture`.
        target: address of the server for sessions for which the program names none.
        devices: planned device -> TensorFlow device; by default `/device:GPU:0` for `GPU:0`. It may
            have more devices than the placement.
        order: "full" or "none", see `planned_changes`.
        trace: record a full trace of the second step, or of the only one.
        what: names the program in errors.

    Raises:
        BadInputError: the program trains another graph, a device does not exist, or the placement
            does not fit the graph or the sizes of what the program feeds.
    """
    program = Program(placement, target, devices, order, trace, what)
    with hooked(program):
        yield program
