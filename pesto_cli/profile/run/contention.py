"""Measure contention: how much slower ops are while other devices of their host compute.

The step runs on one device with its trace, alternately alone and while every other device of the
same kind and host runs the same step over and over. Each pair of steps gives a ratio for each op
type: the time of its ops beside the others, divided by their time alone. A machine that changes its
speed during the measurement changes both.
"""

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from threading import Event
from typing import Any

import numpy as np

from pesto_cli.cluster import Connection
from pesto_cli.data.graph import FloatArray
from pesto_cli.data.machine import Machine
from pesto_cli.profile.source import CostRequest, Live
from pesto_cli.runtime.repetitions import repetitions
from pesto_cli.runtime.spans import spans
from pesto_cli.runtime.step import Step, opened

# A pair is one step alone and one beside the others, which takes two or three steps on each.
FEWEST_PAIRS = 5
# Types with less than this share of the work are counted together.
SMALL_SHARE = 0.01
# Each of them holds a copy of the model.
MOST_PEERS = 7
ALONE, BESIDE = 0, 1

PairTimes = Mapping[str, FloatArray]
"""Op type -> `[num_pairs, 2]`, the time of its ops in us: alone, and beside other devices."""


def peers_of(machine: Machine, device: int) -> list[int]:
    """Return other CPUs of a device's host, at most MOST_PEERS; GPUs have memory of their own."""
    if machine.device_type(machine.devices[device].kind) != "CPU":
        return []
    others = np.flatnonzero(machine.peer_group == machine.peer_group[device]).tolist()
    return [other for other in others if other != device][:MOST_PEERS]


def measured_contention(
    request: CostRequest, live: Live, metas: Sequence[Any]
) -> Mapping[str, float]:
    """Return op type -> slow-down, see `Machine.contention`.

    metas: the step placed on the measured device, and on each other device of its kind and host.
    """
    types = {node.name: node.type for node in request.step.wiring.nodes}
    num_pairs = max(FEWEST_PAIRS, live.num_steps // 2)
    limits = num_pairs, live.num_warm_up, live.limit_s
    times = live.cluster.call(pairs, metas, types, *limits, live.feeds)
    return slow_downs(times, len(metas) - 1)


def slow_downs(times: PairTimes, num_others: int) -> Mapping[str, float]:
    """Return op type -> slow-down by each other device, from the times in pairs of steps.

    It is 0 unless three of four pairs agree that the ops are slower. The type "" stands for all
    types with a small share of the work.
    """
    alone_us = {op_type: float(us[:, ALONE].sum()) for op_type, us in times.items()}
    least_us = SMALL_SHARE * sum(alone_us.values())
    large = {op_type: us for op_type, us in times.items() if alone_us[op_type] >= least_us}
    small = [us for op_type, us in times.items() if op_type not in large]
    grouped = {**large, **({"": sum(small, np.zeros(2))} if small else {})}
    return {key: _slow_down(us) / num_others for key, us in grouped.items() if us[:, ALONE].any()}


def _slow_down(us: FloatArray) -> float:
    us = us[us[:, ALONE] > 0]
    low, median = np.quantile(us[:, BESIDE] / us[:, ALONE], (0.25, 0.5))
    return float(median) - 1 if low > 1 else 0.0


def pairs(
    connection: Connection,
    metas: Sequence[Any],
    types: Mapping[str, str],
    num_pairs: int,
    num_warm_up: int,
    limit_s: float,
    feeds: str | None,
) -> PairTimes:
    """Run pairs of traced steps of the first MetaGraphDef; runs in the client process.

    types: node -> its type. limit_s: no more pairs begin after so many seconds, except for the
        fewest.
    """
    found: dict[str, FloatArray] = defaultdict(lambda: np.zeros((num_pairs, 2)))
    deadline_s, num_ran = time.monotonic() + limit_s, 0
    with ExitStack() as stack:
        step, *others = [stack.enter_context(opened(connection, meta, feeds)) for meta in metas]
        for each in (step, *others):
            for _ in repetitions(num_warm_up, 1, deadline_s):
                each.run()
        for pair in repetitions(num_pairs, FEWEST_PAIRS, deadline_s):
            num_ran = pair + 1
            for which in (ALONE, BESIDE):
                with _running(others if which == BESIDE else []):
                    traced = step.traced()
                for span in spans(traced, metas[0].graph_def):
                    if span.node in types:
                        found[types[span.node]][pair, which] += span.busy_us
    return {op_type: us[:num_ran] for op_type, us in found.items()}


@contextmanager
def _running(steps: Sequence[Step]) -> Iterator[None]:
    """Run steps over and over, each in a thread of its own, until the context ends."""
    stop = Event()

    def run(step: Step, has_begun: Event) -> None:
        while not stop.is_set():
            has_begun.set()
            step.run()

    with ThreadPoolExecutor(max(1, len(steps))) as threads:
        begun = [Event() for _ in steps]
        ran = [threads.submit(run, *each) for each in zip(steps, begun, strict=True)]
        try:
            for has_begun in begun:
                has_begun.wait()
            yield
        finally:
            stop.set()
    for each in ran:
        each.result()  # raises the error of a step


def text(kind: str, found: Mapping[str, float]) -> str:
    """Return the slow-downs in one sentence."""
    named = sorted(((c, name) for name, c in found.items() if name and c > 0), reverse=True)
    rest = found.get("", 0.0)
    several = [f"{name} {c:.0%}" for c, name in named[:5]]
    parts = [*several, *([f"types with little work {rest:.0%}"] if rest > 0 else [])]
    if not parts:
        return f"ops are not slower while another {kind} of the host computes."
    return f"ops are slower while another {kind} of the host computes: {', '.join(parts)}."
