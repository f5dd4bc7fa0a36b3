"""Traces of TensorFlow's profiler: lines of events on the planes of the host and of GPUs.

    /host:CPU       One line for each thread. Events `node:Op` lie within an
                    `ExecutorState::Process` event, whose `id` is that of the step. An op that ends
                    on another thread than it began on (While, If) is a pair of the events
                    `ExecutorState::ProcessAsync::Start` and `::Done`. The cheapest ops are missing.
    /device:GPU:0   One line for each stream (`Stream #13(Compute)`), with kernels and copies. A
                    stat of a kernel has the `node:Op` that launched it. TensorBoard derives two
                    further lines from these: one of events `node:Op`, and `Steps`.

Source of the names: `xplane_schema.cc`, `cupti_collector.cc` and `derived_timeline.cc` in
TensorFlow.
"""

import re
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pesto_cli.graphdef.bodies import NO_BODIES, Bodies, Recorded
from pesto_cli.profile.measured import HOST_THREAD, Measured
from pesto_cli.profile.measured.copies import HOST, TimedTransfer, copied
from pesto_cli.profile.traces.node_steps import NodeSteps
from pesto_cli.profile.traces.step_rows import PLUMBING_TYPES
from pesto_cli.profile.traces.steps import Run, steps_by_number, steps_by_repetition, steps_from

_HOST_PLANE, _GPU_PLANE = re.compile(r"/host:CPU\b"), re.compile(r"/device:GPU:\d+")
# Names of derived lines; older versions of TensorFlow use the second one for ops.
_OPS, _STEPS = ("Framework Ops", "TensorFlow Ops"), "Steps"
# Stats of a kernel that name the op that launched it; older versions of TensorFlow use the second.
_LAUNCHED_BY = ("tf_op", "annotation")
_PROCESS = "ExecutorState::Process"
_START, _DONE = f"{_PROCESS}Async::Start", f"{_PROCESS}Async::Done"
# `node:Op` as in `ParseTfOpFullname` of TensorFlow's tf_op_utils.cc, after annotations of an outer
# scope and before `#attributes#`.
_NODE = re.compile(r"(?:.*::)?([A-Za-z0-9.][\w./>-]*):([A-Z_]\w*)(?:#.*)?")


@dataclass(frozen=True)
class Event:
    """An event of a line: it starts at `start_us` and takes `us`."""

    name: str
    start_us: float
    us: float
    stats: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TraceLine:
    """Events of one thread or stream. plane: its name; in some files after the host's name."""

    plane: str
    name: str
    events: tuple[Event, ...]


def measured(lines: Sequence[TraceLine], bodies: Bodies = NO_BODIES) -> Measured | None:
    """Return the measured node times; None if no line belongs to the host or a GPU.

    bodies: identifies runs of nodes in function bodies; those on the host are left out.
    """
    gpus: dict[str, list[TraceLine]] = defaultdict(list)
    host = []
    for line in lines:
        gpu = _GPU_PLANE.search(line.plane)
        if gpu:
            gpus[gpu[0]].append(line)
        elif _HOST_PLANE.search(line.plane):
            host.append(line)
    if not gpus and not host:
        return None
    # Events of host threads look the same, whether the op runs on the host or on a GPU.
    place = HOST_THREAD if gpus else "CPU"
    traced = [(HOST, place, _host_steps(host, bodies))]
    traced += [(gpu, "GPU", _gpu_steps(on_gpu)) for gpu, on_gpu in gpus.items()]
    times = NodeSteps(max(len(steps) for _, _, steps in traced))
    device = {}
    for name, place, steps in traced:
        for number, runs in enumerate(steps):
            for run in runs:
                times.add(number, run.node, place, run.us)
                device[run.node] = name
    copies = (copy for gpu, on_gpu in gpus.items() for copy in _copies(gpu, on_gpu))
    return Measured(times.num_steps, times.columns(), transfers=tuple(copies), device=device)


def _gpu_steps(lines: Sequence[TraceLine]) -> list[list[Run]]:
    """Return the runs of a GPU's nodes in each step.

    The runs are the kernels; if no kernel has the name of a node, they are the events of the op
    line.
    """
    kernels = (event for line in lines for event in line.events if "kernel_details" in event.stats)
    ops = (event for line in lines if line.name in _OPS for event in line.events)
    runs = list(_runs((event, _launched_by(event)) for event in kernels))
    runs = runs or list(_runs((event, event.name) for event in ops))
    starts = [event.start_us for line in lines if line.name == _STEPS for event in line.events]
    return steps_from(starts, runs) if starts else steps_by_repetition(runs)


def _launched_by(kernel: Event) -> str:
    return next((str(kernel.stats[stat]) for stat in _LAUNCHED_BY if kernel.stats.get(stat)), "")


def _copies(gpu: str, lines: Sequence[TraceLine]) -> Iterator[TimedTransfer]:
    for line in lines:
        for event in line.events:
            details = event.stats.get("memcpy_details")
            copy = copied(f"{event.name} {details}", gpu, event.us) if details else None
            if copy is not None:
                yield copy


def _host_steps(lines: Sequence[TraceLine], bodies: Bodies) -> list[list[Run]]:
    found = [run for line in lines for run in _thread_runs(line)]
    found += _asynchronous_runs([event for line in lines for event in line.events])
    recorded = [Recorded(run.node, HOST, run.start_us, run.start_us + run.us) for run in found]
    runs = [run for run, own in zip(found, bodies.is_own(recorded), strict=True) if own]
    if any(run.step is not None for run in runs):
        return steps_by_number(runs)
    return steps_by_repetition(runs)


def _thread_runs(line: TraceLine) -> Iterator[Run]:
    """Yield the runs of nodes on a thread; their step is that of the enclosing executor event."""
    executors: list[Event] = []
    for event in sorted(line.events, key=lambda event: (event.start_us, -event.us)):
        while executors and executors[-1].start_us + executors[-1].us < event.start_us:
            executors.pop()
        if event.name == _PROCESS:
            executors.append(event)
        else:
            step = executors[-1].stats.get("id") if executors else None
            yield from _runs([(event, event.name)], step)


def _asynchronous_runs(events: Iterable[Event]) -> Iterator[Run]:
    """Yield the runs of nodes that began on one thread and ended on another, with their step."""
    began: dict[tuple[object, object], deque[float]] = defaultdict(deque)
    for event in sorted(events, key=lambda event: event.start_us):
        key = event.stats.get("step_id"), event.stats.get("name")
        if event.stats.get("kernel_type") in PLUMBING_TYPES or None in key:
            continue
        if event.name == _START:
            began[key].append(event.start_us)
        elif event.name == _DONE and began[key]:
            start_us = began[key].popleft()
            yield Run(str(key[1]), start_us, event.start_us - start_us, key[0])


def _runs(named: Iterable[tuple[Event, str]], step: object = None) -> Iterator[Run]:
    """Yield a run for each event with the name of a node; sends and receives are left out."""
    for event, name in named:
        node = _NODE.fullmatch(name)
        if node and node[2] not in PLUMBING_TYPES:
            yield Run(node[1], event.start_us, event.us, step)
