"""Chrome traces follow the trace-event format as Perfetto and chrome://tracing read it."""

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from random_problems import random_placement, random_problem

from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import Schedule
from pesto_cli.evaluation.memory import held_over_time
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.report.trace import chrome_trace, on_grid_us

NUMBER = (int, float)
# Phase -> the fields that the format requires, and their types.
FIELDS: dict[str, dict[str, Any]] = {
    "M": {"name": str, "pid": int, "tid": int, "args": dict},
    "X": {"name": str, "cat": str, "pid": int, "tid": int, "ts": NUMBER, "dur": NUMBER},
    "C": {"name": str, "pid": int, "ts": NUMBER, "args": dict},
    "s": {"name": str, "cat": str, "pid": int, "tid": int, "ts": NUMBER, "id": int},
    "f": {"name": str, "cat": str, "pid": int, "tid": int, "ts": NUMBER, "id": int, "bp": str},
}
Event = dict[str, Any]
Case = tuple[Problem, Schedule, list[Event]]


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    """Return random schedules with their traces; some ops and transfers take no time."""
    made = []
    for seed in range(30):
        plain = random_problem(seed, 15, num_devices=3)
        problem = replace(plain, time_us=plain.time_us * 1.2345678)  # not in whole ns
        rng = np.random.default_rng(seed)
        device = random_placement(problem, seed)
        schedule = Simulator(problem).list_schedule(device, rng.random(15))
        trace = chrome_trace(problem, schedule, held_over_time(problem, schedule))
        assert trace.keys() == {"displayTimeUnit", "traceEvents"}
        made.append((problem, schedule, trace["traceEvents"]))
    return made


def of_phase(events: list[Event], phase: str) -> list[Event]:
    return [event for event in events if event["ph"] == phase]


def test_every_event_has_the_fields_of_its_phase_and_no_negative_time(cases: list[Case]) -> None:
    for _, _, events in cases:
        assert {event["ph"] for event in events} <= FIELDS.keys()
        for event in events:
            for field, kind in FIELDS[event["ph"]].items():
                assert isinstance(event[field], kind), (field, event)
            assert min(event.get("ts", 0), event.get("dur", 0)) >= 0


def test_every_row_has_a_name_and_a_sort_index(cases: list[Case]) -> None:
    for problem, _, events in cases:
        about: dict[tuple[int, int], dict[str, Any]] = defaultdict(dict)
        for event in of_phase(events, "M"):
            about[event["pid"], event["tid"]] |= {event["name"]: event["args"]}
        named = [about[row]["thread_name"]["name"] for row in sorted(about)]
        devices = [device.name for device in problem.machine.devices]
        assert named == devices + list(problem.machine.channel_names)
        for (_, row), args in about.items():
            assert args["thread_sort_index"] == {"sort_index": row}
        # Perfetto treats such a thread as the main one and mixes its slices with those of others.
        assert not any(row in (0, process) for process, row in about)
        assert {(event["pid"], event["tid"]) for event in of_phase(events, "X")} <= about.keys()


def test_every_op_and_transfer_is_a_slice_and_slices_of_a_row_do_not_overlap(
    cases: list[Case],
) -> None:
    for problem, schedule, events in cases:
        slices = of_phase(events, "X")
        assert len(slices) == problem.num_ops + len(schedule.transfers)
        rows = defaultdict(list)
        for event in slices:
            # Perfetto truncates to whole ns.
            start_ns, took_ns = int(event["ts"] * 1000), int(event["dur"] * 1000)
            rows[event["pid"], event["tid"]].append((start_ns, start_ns + took_ns))
        for spans in rows.values():
            assert all(end <= start for (_, end), (start, _) in pairwise(sorted(spans)))


def test_each_arrow_has_two_ends_and_each_end_lies_within_a_slice(cases: list[Case]) -> None:
    count = 0
    for problem, _, events in cases:
        tails, heads = of_phase(events, "s"), of_phase(events, "f")
        assert [end["id"] for end in tails] == [end["id"] for end in heads]
        assert len({end["id"] for end in tails}) == len(tails)
        assert all(end["bp"] == "e" for end in heads)
        joined = [
            (slice_around(tail, events), slice_around(head, events))
            for tail, head in zip(tails, heads, strict=True)
        ]
        for tail, head in joined:
            assert tail["ts"] + tail["dur"] <= head["ts"] + 1e-9
            assert {tail["cat"], head["cat"]} == {"op", "transfer"}
            producer = problem.graph.index_of[tail["name"]]
            consumers = problem.graph.successors[producer].tolist()
            at_consumer = head["cat"] == "op"
            assert not at_consumer or problem.graph.index_of[head["name"]] in consumers
        count += len(joined)
    assert count > 100


def slice_around(end: Event, events: list[Event]) -> Event:
    """Return the slice that contains the time of an arrow's end; slices exclude their own end."""
    (found,) = (
        event
        for event in of_phase(events, "X")
        if (event["pid"], event["tid"]) == (end["pid"], end["tid"])
        and int(event["ts"] * 1000) <= int(end["ts"] * 1000)
        and int(end["ts"] * 1000) < int(event["ts"] * 1000) + int(event["dur"] * 1000)
    )
    return found


def test_memory_counters_run_forward_and_reach_the_peak(cases: list[Case]) -> None:
    for problem, schedule, events in cases:
        for index, device in enumerate(problem.machine.devices):
            name = f"{device.name} memory"
            counter = [event for event in of_phase(events, "C") if event["name"] == name]
            times = [event["ts"] for event in counter]
            assert times[0] == 0
            assert times == sorted(times)
            held = [event["args"]["bytes"] for event in counter]
            assert min(held) >= 0
            assert max(held) == schedule.peak_bytes[index]


def test_times_are_the_same_whether_a_reader_rounds_or_truncates_to_ns() -> None:
    for time_ns in np.random.default_rng(0).integers(0, 10**13, 20_000).tolist():
        time_us = on_grid_us(time_ns)
        assert int(time_us * 1000) == round(time_us * 1000) == time_ns
