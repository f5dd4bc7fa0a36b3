"""Read an XSpace (`*.xplane.pb`) of TensorFlow's profiler: planes, lines and events."""

from collections.abc import Mapping
from typing import Any

from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.profile.traces.lines import Event, TraceLine


def parse_xspace(data: bytes) -> Any:
    """Parse an XSpace; return None if the data is something else."""
    tensorflow()
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
    from tensorflow.tsl.profiler.protobuf.xplane_pb2 import XSpace

    try:
        space = XSpace.FromString(data)
    except DecodeError:
        return None
    # Other protocol buffers may parse too, as planes without a name.
    return space if space.planes and all(plane.name for plane in space.planes) else None


def xplane_lines(space: Any) -> list[TraceLine]:
    """Return the lines of all planes; times are in us on the clock of the trace."""
    return [_line(plane, line) for plane in space.planes for line in plane.lines]


def _line(plane: Any, line: Any) -> TraceLine:
    stat_names = {number: metadata.name for number, metadata in plane.stat_metadata.items()}
    event_names = {number: metadata.name for number, metadata in plane.event_metadata.items()}
    events = tuple(
        Event(
            name=event_names.get(event.metadata_id, ""),
            start_us=line.timestamp_ns / 1e3 + event.offset_ps / 1e6,
            us=event.duration_ps / 1e6,
            stats={
                stat_names.get(stat.metadata_id, ""): _value(stat, stat_names)
                for stat in event.stats
            },
        )
        for event in line.events
    )
    return TraceLine(plane.name, line.display_name or line.name, events)


def _value(stat: Any, stat_names: Mapping[int, str]) -> Any:
    """Return the value of a stat; a long text is stored once, as the name of a stat."""
    kind = stat.WhichOneof("value")
    if kind == "ref_value":
        return stat_names.get(stat.ref_value, "")
    return None if kind is None else getattr(stat, kind)
