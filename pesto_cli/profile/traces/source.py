"""Read op times from a trace that TensorFlow recorded elsewhere: `--source trace:PATH`.

PATH is a file, whose format is found from its content, or a folder:
    a `RunMetadata` of one step (protocol buffer)
    an XSpace of TensorFlow's profiler (`*.xplane.pb`)
    a Chrome trace of TensorFlow's Timeline or TensorBoard's trace viewer (JSON)
    an event file of TensorBoard, with the `RunMetadata` that TensorFlow 1's FileWriter added
    a folder of `RunMetadata` or Timeline files, one for each step
    a log directory of TensorBoard: its newest run of the profiler, else its event files
All except event files may be compressed (gzip).
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pesto_cli.errors import BadInputError
from pesto_cli.files import read_bytes
from pesto_cli.graphdef.bodies import NO_BODIES, Bodies
from pesto_cli.graphdef.event_files.events import event_files, run_metadata
from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.profile import measured as measurement
from pesto_cli.profile.measured import Measured
from pesto_cli.profile.source import CostRequest, Costs
from pesto_cli.profile.traces import lines, step_stats
from pesto_cli.profile.traces.chrome_timeline import read_chrome, timeline_rows, viewer_lines
from pesto_cli.profile.traces.step_rows import RecordedStep, measured_steps
from pesto_cli.profile.traces.xplane import parse_xspace, xplane_lines

EXPECTED = (
    "a RunMetadata (protocol buffer), an *.xplane.pb, a Chrome trace (JSON) or a folder of these"
)
# The files that the profiler writes for each host, most detailed first.
_PROFILER_FILES = ("*.xplane.pb", "*.trace.json.gz", "*.trace.json")


def costs(request: CostRequest) -> Costs:
    """Return the measured costs from the trace that the source's argument names.

    Raises:
        BadInputError: no trace is named, the trace cannot be read, or it is of another graph.
    """
    if not request.argument:
        raise BadInputError("cost source trace names no file; give one: --source trace:FILE.")
    path = Path(request.argument)
    taken, notes = _newest_run(path)
    bodies = Bodies.of(request.meta_graph.graph_def)
    found = measurement.costs(read_trace(taken, bodies), request, what=str(taken))
    return replace(found, notes=(*notes, *found.notes))


def read_trace(path: Path, bodies: Bodies = NO_BODIES) -> Measured:
    """Read a trace file, or a folder with a file for each step.

    bodies: identifies runs of nodes in function bodies, which are left out.

    Raises:
        BadInputError: the path does not exist, is incomplete, or is not a trace.
    """
    events = event_files(path)
    if events:
        return _read_events(path, events, bodies)
    if not path.is_dir():
        found = _read_file(path, bodies)
        return found if isinstance(found, Measured) else measured_steps([found], bodies=bodies)
    paths = sorted(file for file in path.iterdir() if file.is_file() and file.name[0] != ".")
    if not paths:
        raise BadInputError(f"{path} has no file in it; {EXPECTED} was expected.")
    steps = []
    for file in paths:
        step = _read_file(file, bodies)
        if isinstance(step, Measured):
            raise BadInputError(
                f"{file} has several steps; one step in each file of a folder was expected: give "
                f"the file itself, --source trace:{file}."
            )
        steps.append(step)
    return measured_steps(steps, bodies=bodies)


def _newest_run(path: Path) -> tuple[Path, list[str]]:
    """Return the trace to read from a path, and notes on the choice.

    In a log directory, TensorFlow's profiler makes a folder for each run, named by its time.
    """
    if not path.is_dir():
        return path, []
    for pattern in _PROFILER_FILES:
        files = [*path.glob(pattern), *path.rglob(f"plugins/profile/*/{pattern}")]
        if files:
            newest = max(file.parent.name for file in files)
            taken = sorted(file for file in files if file.parent.name == newest)
            is_run = path.parent.name == "profile" or taken[0].parent != path
            if pattern == "*.trace.json" and not is_run:
                return path, []  # a folder with a timeline of each step
            if len(taken) > 1:
                raise BadInputError(
                    f"{taken[0].parent} has traces of {len(taken)} hosts; the trace of one host was"
                    f" expected: name its file, --source trace:{taken[0]}."
                )
            runs = len({file.parent for file in files})
            return taken[0], [f"the trace is {taken[0]}, from the newest of {runs} profiler runs."]
    return path, []


def _read_events(path: Path, files: Sequence[Path], bodies: Bodies) -> Measured:
    stats = (step.step_stats for file in files for step in run_metadata(file))
    steps = [step_stats.recorded_step(step) for step in stats if step.dev_stats]
    if not steps:
        raise BadInputError(
            f"{path} has event files without any op time; run metadata of a step "
            "(FileWriter.add_run_metadata), or a run of TensorFlow's profiler in the same log "
            "directory, was expected: record one with tf.profiler.experimental.start(LOGDIR)."
        )
    return measured_steps(steps, bodies=bodies)


def _read_file(path: Path, bodies: Bodies) -> RecordedStep | Measured:
    """Read one step, or all steps of a profiler's trace; the content decides the format."""
    data = read_bytes(path)
    if not data:
        raise BadInputError(f"{path} is empty; {EXPECTED} was expected.")
    trace = read_chrome(path, data)
    if trace is not None:
        rows = timeline_rows(trace)
        found = RecordedStep(rows) if rows else lines.measured(viewer_lines(trace), bodies)
    else:
        space = parse_xspace(data)
        found = (
            _run_metadata(data) if space is None else lines.measured(xplane_lines(space), bodies)
        )
    if found is None:
        raise BadInputError(
            f"{path} ({len(data):,} bytes) is cut short, or is not a trace of TensorFlow; "
            f"{EXPECTED} was expected: record or copy it again."
        )
    if isinstance(found, Measured) and not found.us:
        raise BadInputError(
            f"{path} has no op; the trace of a training step was expected: run steps between the "
            "start and the stop of the profiler, and without XLA (jit_compile=False), because XLA "
            "leaves no ops in the trace."
        )
    return found


def _run_metadata(data: bytes) -> RecordedStep | None:
    tf1 = tensorflow().compat.v1
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        metadata = tf1.RunMetadata.FromString(data)
    except DecodeError:
        return None
    stats = metadata.step_stats
    return step_stats.recorded_step(stats) if stats.dev_stats else None
