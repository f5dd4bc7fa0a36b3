"""A schedule as a Chrome trace: opens in Perfetto or chrome://tracing."""

from typing import Any

from pesto_cli.problem import Problem
from pesto_cli.schedule import Schedule


def chrome_trace(problem: Problem, schedule: Schedule) -> dict[str, Any]:
    """One row for each device and each link channel; times in us, as the format has them."""
    graph, machine = problem.graph, problem.machine
    rows = [device.name for device in machine.devices] + list(machine.channel_names)
    events: list[dict[str, Any]] = [
        {"ph": "M", "pid": 0, "tid": row, "name": "thread_name", "args": {"name": name}}
        for row, name in enumerate(rows)
    ]
    for op, name in enumerate(graph.names):
        start_us, end_us = float(schedule.start_us[op]), float(schedule.end_us[op])
        events.append(
            _event(int(schedule.device[op]), name, start_us, end_us, {"type": graph.types[op]})
        )
    transfers = schedule.transfers
    for tensor, dst, start_us, end_us in zip(
        transfers.tensor.tolist(),
        transfers.dst.tolist(),
        transfers.start_us.tolist(),
        transfers.end_us.tolist(),
        strict=True,
    ):
        producer = int(graph.tensor_producer[tensor])
        channel = int(machine.channel[schedule.device[producer], dst])
        details = {"bytes": int(graph.tensor_bytes[tensor]), "to": machine.devices[dst].name}
        row = machine.num_devices + channel
        events.append(_event(row, graph.names[producer], start_us, end_us, details))
    return {"displayTimeUnit": "ms", "traceEvents": events}


def _event(
    row: int, name: str, start_us: float, end_us: float, details: dict[str, Any]
) -> dict[str, Any]:
    return {
        "ph": "X",
        "pid": 0,
        "tid": row,
        "name": name,
        "ts": start_us,
        "dur": end_us - start_us,
        "args": details,
    }
