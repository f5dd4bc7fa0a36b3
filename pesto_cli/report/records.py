"""Results as JSON values."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from pesto_cli.data.load import Load
from pesto_cli.data.machine import Machine
from pesto_cli.data.problem import Problem
from pesto_cli.data.result import MemoryPeak, Result
from pesto_cli.data.schedule import shortfall_bytes
from pesto_cli.report.memory import NUM_NAMED
from pesto_cli.report.splits import split_json


def result_json(problem: Problem, result: Result, whole: Load | None = None) -> dict[str, Any]:
    """Return the figures of a result, without its schedule; see `split_json` for `whole`."""
    machine, sampled = problem.machine, result.solution.sampled
    robust = {} if sampled is None else {"robust": asdict(sampled)}
    return {
        "strategy": result.strategy,
        "status": str(result.status),
        "makespan_us": result.makespan_us,
        "lower_bound_us": result.lower_bound_us,
        "bound_holds_for": str(result.solution.bound_holds_for),
        "gap": result.gap,
        "peak_bytes": _by_device(machine, result.schedule.peak_bytes.tolist()),
        "shortfall_bytes": _by_device(machine, shortfall_bytes(problem, result.schedule).tolist()),
        "memory_peaks": list(map(_peak_json, result.memory_peaks)),
        "runtime_s": result.runtime_s,
        "notes": list(result.solution.notes),
        **robust,
        **split_json(result, whole),
    }


def _by_device(machine: Machine, values: Sequence[int]) -> dict[str, int]:
    return {device.name: value for device, value in zip(machine.devices, values, strict=True)}


def _peak_json(peak: MemoryPeak) -> dict[str, Any]:
    return {
        "device": peak.device,
        "peak_bytes": peak.peak_bytes,
        "capacity_bytes": peak.capacity_bytes,
        "at_us": peak.at_us,
        "resident_bytes": peak.resident_bytes,
        "num_held": len(peak.held),
        "largest": [asdict(held) for held in peak.held[:NUM_NAMED]],
    }
