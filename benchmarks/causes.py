"""Why real steps take longer than predicted: `python -m benchmarks.causes --comm FIT [MODEL]...`.

Every model of `fidelity_models` is profiled on two workers of this host and placed by pesto. The
placement is run with TensorFlow's trace. In each traced step, the critical path is followed back
from the op that ends last: an op starts when the previous op on its device ends, or when a tensor
arrives from the other device. Each segment of this path is compared with its time in the schedule,
so the differences, by cause, add up to the difference between the traced step and the model's time
of the same path. What remains is how much longer the schedule's own critical path is.
"""

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.fidelity import MACHINE, exported
from benchmarks.fidelity_models import MODELS
from pesto_cli import api as pesto
from pesto_cli.apply import planned_changes, with_changes
from pesto_cli.cluster import Connection
from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import Schedule
from pesto_cli.graphdef.read import StepGraph
from pesto_cli.runtime.comparison import device_names
from pesto_cli.runtime.spans import Span, spans
from pesto_cli.runtime.step import opened

CAUSES = ("op times", "gaps between ops", "transfers", "signals")
# An op that starts later than this after the previous op on its device waited for a transfer.
GAP_US = 300.0


@dataclass(frozen=True)
class Traced:
    """Traced and untraced steps: RunMetadata of some steps, and times in us of others."""

    metadata: Sequence[Any]
    untraced_us: Sequence[float]
    traced_us: Sequence[float]


def traced_steps(connection: Connection, meta: Any, count: int) -> Traced:
    """Run steps with and without a trace, alternately."""
    import time

    with opened(connection, meta) as step:
        for _ in range(5):
            step.run()
        metadata, untraced_us, traced_us = [], [], []
        for _ in range(count):
            untraced_us.append(step.run().us)
            began = time.perf_counter()
            metadata.append(step.traced())
            traced_us.append((time.perf_counter() - began) * 1e6)
    return Traced(metadata, untraced_us, traced_us)


@dataclass(frozen=True)
class Plan:
    """A schedule, and for each op of its graph the names of its nodes."""

    problem: Problem
    schedule: Schedule
    nodes: Sequence[Sequence[str]]

    @classmethod
    def of(cls, problem: Problem, schedule: Schedule, step: StepGraph) -> "Plan":
        """Match the ops of a problem with the nodes of the step that was read."""
        nodes = dict(zip(step.graph.names, step.nodes, strict=True))
        return cls(problem, schedule, [nodes[name] for name in problem.graph.names])

    def path_ms(self, ran: Sequence[Span]) -> Mapping[str, float]:
        """Return the real and the scheduled ms of each cause on the critical path of a step."""
        span_of = {span.node: span for span in ran}
        start, end = (np.full(self.problem.num_ops, np.nan) for _ in range(2))
        for op, names in enumerate(self.nodes):
            own = [span_of[name] for name in names if name in span_of]
            if own:
                start[op] = min(span.start_us for span in own)
                end[op] = max(span.end_us for span in own)
        return _Path(self.problem, self.schedule, start, end).sums_ms()


class _Path:
    """The critical path of a real step.

    start, end: `[num_ops]`, us on the clock of the host; NaN for ops that the trace lacks.
    """

    def __init__(self, problem: Problem, schedule: Schedule, start: Any, end: Any) -> None:
        self._problem, self._schedule = problem, schedule
        self._start, self._end = start, end
        self._tensors: list[list[int]] = [[] for _ in range(problem.num_ops)]
        graph = problem.graph
        for consumer, tensor in zip(graph.consumers, graph.consumer_tensor, strict=True):
            self._tensors[consumer].append(int(tensor))
        self._control: list[list[int]] = [[] for _ in range(problem.num_ops)]
        for before, after in graph.control_edges.tolist():
            self._control[after].append(before)
        self._before = np.full(problem.num_ops, -1)
        for device in range(problem.num_devices):
            queue = np.flatnonzero((schedule.device == device) & ~np.isnan(start))
            queue = queue[np.argsort(schedule.rank[queue])]
            self._before[queue[1:]] = queue[:-1]
        rows = zip(schedule.transfers.tensor, schedule.transfers.dst, strict=True)
        self._row = {(int(tensor), int(dst)): row for row, (tensor, dst) in enumerate(rows)}

    def sums_ms(self) -> Mapping[str, float]:
        sums = {f"{kind} {cause}": 0.0 for cause in CAUSES for kind in ("real", "planned")}
        op = int(np.nanargmax(self._end))
        sums["real total"] = float(self._end[op] - np.nanmin(self._start))
        while op >= 0:
            scheduled = self._schedule.end_us[op] - self._schedule.start_us[op]
            self._add(sums, "op times", self._end[op] - self._start[op], scheduled)
            cause, earlier, planned = self._cause(op)
            if earlier >= 0:
                self._add(sums, cause, self._start[op] - self._end[earlier], planned)
            op = earlier
        return {name: value / 1e3 for name, value in sums.items()}

    def _add(self, sums: dict[str, float], cause: str, real: float, planned: float) -> None:
        sums[f"real {cause}"] += real
        sums[f"planned {cause}"] += planned

    def _cause(self, op: int) -> tuple[str, int, float]:
        """Return the cause, the op that ended, and the scheduled time from its end to the start."""
        schedule, device = self._schedule, self._schedule.device[op]
        local = int(self._before[op])
        remote = []
        for tensor in self._tensors[op]:
            producer = int(self._problem.graph.tensor_producer[tensor])
            if schedule.device[producer] != device and not np.isnan(self._end[producer]):
                row = self._row.get((tensor, int(device)))
                if row is not None:
                    planned = schedule.transfers.end_us[row] - schedule.end_us[producer]
                    remote.append(("transfers", producer, float(planned)))
        for producer in self._control[op]:
            if schedule.device[producer] != device and not np.isnan(self._end[producer]):
                remote.append(("signals", producer, self._problem.machine.signal_us))
        gap = np.inf if local < 0 else self._start[op] - self._end[local]
        if gap <= GAP_US or not remote:
            return "gaps between ops", local, 0.0
        last = max(remote, key=lambda row: self._end[row[1]] + row[2])
        if local >= 0 and self._end[local] > self._end[last[1]] + last[2]:
            # The tensor should have arrived before: the device was late to take it.
            return "transfers", local, 0.0
        return last


def main() -> None:
    """Measure and print a table for each model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=list(MODELS), metavar="MODEL")
    parser.add_argument("--comm", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--strategy", default="pesto")
    parser.add_argument("--time-limit", type=float, default=15.0)
    options = parser.parse_args()
    fits = pesto.read_comm(options.comm)
    limits = pesto.Limits(time_limit_s=options.time_limit, workers=os.cpu_count() or 1)
    print("| model | predicted | untraced | traced | " + " | ".join(CAUSES) + " | other path |")
    for model in options.models:
        with pesto.connected(MACHINE) as cluster:
            meta = exported(model)
            profile = pesto.profile_by_run(meta, cluster, steps=options.steps, comm=fits)
            result = pesto.solve(profile, options.strategy, pesto.Context(limits))
            devices = cluster.call(device_names)
            placed = pesto.placement(profile, result)
            changes = planned_changes(meta, placed, devices=devices)
            traced = cluster.call(traced_steps, with_changes(meta, changes), options.steps)
        assert changes.step is not None
        plan = Plan.of(profile.problem, result.schedule, changes.step)
        print(row_of(model, plan, traced, meta, profile.problem.machine.step_overhead_us))


def row_of(model: str, plan: Plan, traced: Traced, meta: Any, overhead_us: float) -> str:
    """Return the table row of a model; the columns of causes are in per cent of the real step."""
    found = [plan.path_ms(spans(metadata, meta.graph_def)) for metadata in traced.metadata]
    mean = {name: float(np.mean([each[name] for each in found])) for name in found[0]}
    real, planned = mean["real total"], plan.schedule.makespan_us / 1e3
    shares = [(mean[f"real {cause}"] - mean[f"planned {cause}"]) / real for cause in CAUSES]
    rest = (real - planned) / real - sum(shares)
    cells = [
        f"{planned + overhead_us / 1e3:.1f}",
        f"{np.median(traced.untraced_us) / 1e3:.1f}",
        f"{real:.1f}",
        *(f"{share:+.1%}" for share in (*shares, rest)),
    ]
    return f"| {model} | {' | '.join(cells)} |"


if __name__ == "__main__":
    from benchmarks.causes import main as imported  # its functions are found by their module

    imported()
