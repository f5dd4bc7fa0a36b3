"""Chrome's trace format, as TensorFlow writes it.

`tensorflow.python.client.timeline.Timeline` writes one step, from its step stats: a process named
`DEVICE Compute` for each device, with events of category `Op` whose `args` have the node's name and
type. The durations are whole microseconds.

TensorBoard's trace viewer writes the whole profile: a process for each plane, a thread for each
line. The name of an op is `args.long_name`, or the entry of `stackFrames` with the number `sf`.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pesto_cli.errors import BadInputError
from pesto_cli.files import loads
from pesto_cli.profile.traces.lines import Event, TraceLine
from pesto_cli.profile.traces.step_rows import StepRow

_COMPUTE = " Compute"
# Later than the time of any clock, also of one that counts ns since 1970.
LATEST_US = 1e24


def read_chrome(path: Path, data: bytes) -> Mapping[str, Any] | None:
    """Parse a Chrome trace; return None if the data is not JSON.

    Raises:
        BadInputError: the JSON is incomplete, or it is no Chrome trace.
    """
    if not data.lstrip().startswith((b"{", b"[")):
        return None
    try:
        value = loads(data)
    except ValueError as error:
        raise BadInputError(
            f"{path} is JSON that is cut short or damaged ({error}); a complete Chrome trace was "
            "expected: write or copy it again."
        ) from None
    trace = value if isinstance(value, dict) else {"traceEvents": value}
    events = trace.get("traceEvents")
    if not isinstance(events, list) or not all(map(_is_event, events)):
        raise BadInputError(
            f"{path} is JSON without traceEvents; the Chrome trace of a TensorFlow step was "
            "expected: give the file that Timeline or TensorBoard's trace viewer wrote."
        )
    return trace


def _is_event(value: Any) -> bool:
    """Whether a value is an event whose process and thread are valid keys."""
    return isinstance(value, dict) and not any(
        isinstance(value.get(key), list | dict) for key in ("pid", "tid")
    )


def timeline_rows(trace: Mapping[str, Any]) -> list[StepRow]:
    """Return the rows of a trace that `Timeline` wrote; empty for any other trace."""
    device_of = {
        process: name.removesuffix(_COMPUTE)
        for process, name in _process_names(trace).items()
        if name.endswith(_COMPUTE)
    }
    return [
        StepRow(
            device_of[event["pid"]],
            str(args["name"]),
            str(args["op"]),
            float(event["dur"]),
            start_ns=round(event["ts"] * 1e3),
        )
        for event, args in _complete(trace)
        if event.get("cat") == "Op" and event["pid"] in device_of and {"name", "op"} <= args.keys()
    ]


def viewer_lines(trace: Mapping[str, Any]) -> list[TraceLine]:
    """Return the lines of a trace that TensorBoard's trace viewer wrote."""
    planes = _process_names(trace)
    names = {
        (event.get("pid"), event.get("tid")): str(_args(event).get("name", ""))
        for event in trace["traceEvents"]
        if event.get("name") == "thread_name"
    }
    frames = _table(trace.get("stackFrames"))
    events: dict[tuple[Any, Any], list[Event]] = {}
    for event, args in _complete(trace):
        frame = _table(frames.get(str(event.get("sf")))).get("name")
        name = str(args.get("long_name") or frame or event.get("name", ""))
        stats = {key: stat for key, stat in args.items() if not isinstance(stat, list | dict)}
        found = Event(name, float(event["ts"]), float(event["dur"]), stats)
        events.setdefault((event["pid"], event.get("tid")), []).append(found)
    return [
        TraceLine(planes.get(process, ""), names.get((process, thread), ""), tuple(found))
        for (process, thread), found in events.items()
    ]


def _process_names(trace: Mapping[str, Any]) -> dict[Any, str]:
    return {
        event.get("pid"): str(_args(event).get("name", ""))
        for event in trace["traceEvents"]
        if event.get("name") == "process_name"
    }


def _complete(trace: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Yield the events that have a start and a duration, each with its args."""
    for event in trace["traceEvents"]:
        timed = all(_is_time(event.get(key)) for key in ("ts", "dur"))
        if event.get("ph") == "X" and "pid" in event and timed:
            yield event, _args(event)


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and abs(value) < LATEST_US


def _args(event: Mapping[str, Any]) -> Mapping[str, Any]:
    return _table(event.get("args"))


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
