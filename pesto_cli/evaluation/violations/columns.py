"""Checks of lengths, types and ranges of a schedule's columns, before the rules read them."""

from typing import Any

import numpy as np

from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import Schedule
from pesto_cli.evaluation.violations.observed import Finding


def malformed(problem: Problem, schedule: Schedule) -> list[Finding]:
    """Return findings: wrong types or lengths, indices out of range, times that are not finite."""
    ops, devices, sent = problem.num_ops, problem.num_devices, schedule.transfers
    rows = np.size(sent.tensor)
    found = [
        _indices("affinity", "device", schedule.device, ops, devices),
        _indices("order", "rank", schedule.rank, ops, ops),
        _times("duration", "start_us", schedule.start_us, ops),
        _times("duration", "end_us", schedule.end_us, ops),
        _indices("transfer", "transfers.tensor", sent.tensor, rows, problem.graph.num_tensors),
        _indices("transfer", "transfers.dst", sent.dst, rows, devices),
        _times("transfer", "transfers.start_us", sent.start_us, rows),
        _times("transfer", "transfers.end_us", sent.end_us, rows),
        _shape("peak", "peak_bytes", schedule.peak_bytes, devices, np.integer),
    ]
    return [finding for findings in found for finding in findings]


def _shape(rule: str, name: str, column: Any, length: int, kind: type[Any]) -> list[Finding]:
    values = np.asarray(column)
    if values.shape == (length,) and (np.issubdtype(values.dtype, kind) or not length):
        return []
    words = "whole numbers" if kind is np.integer else "numbers"
    return [
        (rule, f"{name} is {values.dtype} of shape {values.shape}; {length} {words} were expected")
    ]


def _indices(rule: str, name: str, column: Any, length: int, count: int) -> list[Finding]:
    wrong = _shape(rule, name, column, length, np.integer)
    return wrong or [
        (rule, f"{name}[{row}] is {column[row]}; an index from 0 to {count - 1} was expected")
        for row in np.flatnonzero((column < 0) | (column >= count)).tolist()
    ]


def _times(rule: str, name: str, column: Any, length: int) -> list[Finding]:
    wrong = _shape(rule, name, column, length, np.floating)
    return wrong or [
        (rule, f"{name}[{row}] is {column[row]}; a finite number was expected")
        for row in np.flatnonzero(~np.isfinite(column)).tolist()
    ]
