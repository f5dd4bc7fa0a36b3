"""Fit what no op time shows: how the predicted steps differ from the measured ones as a whole.

    step_us = makespan(op times * ops, transfers * transfers) + step overhead * overhead

`ops` covers what is common to all ops, such as the cost of the trace and a machine that has become
slower. `transfers` covers latencies, overheads and delays of transfers and signals. All are fitted
to the measured steps by least squares of relative errors (Gauss-Newton), with a normal prior around
1, so that few steps change little.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from pesto_cli.data.columns import FloatArray
from pesto_cli.data.machine import CommModel, Machine
from pesto_cli.data.problem import Problem
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.tuning.correction import scaled_price
from pesto_cli.tuning.seen import Placed

# Standard deviations of the logarithms of the factors before any step was measured, and of the
# error of a prediction with the right factors.
OPS_PRIOR, TRANSFERS_PRIOR, OVERHEAD_PRIOR, ERROR = 0.1, 0.5, 0.3, 0.02
LARGEST = 4.0
NUM_ITERATIONS = 4
# The change of a logarithm by which derivatives are estimated.
STEP = 0.05


@dataclass(frozen=True)
class Factors:
    """Factors on the times of all ops, of all transfers and signals, and on the step overhead."""

    ops: float = 1.0
    transfers: float = 1.0
    overhead: float = 1.0

    def scaled(self, problem: Problem) -> Problem:
        """Return a problem with its times multiplied."""
        parts = problem.parts
        if parts is not None:
            added = {key: scaled_price(each, self.ops) for key, each in parts.added.items()}
            fallback = scaled_price(parts.fallback, self.ops)
            parts = replace(parts, added=added, fallback=fallback)
        machine, time_us = self._machine(problem.machine), problem.time_us * self.ops
        return replace(problem, time_us=time_us, machine=machine, parts=parts)

    def _machine(self, machine: Machine) -> Machine:
        return replace(
            machine,
            devices=tuple(
                replace(each, op_overhead_us=each.op_overhead_us * self.ops)
                for each in machine.devices
            ),
            links=tuple(
                replace(each, comm=_scaled(each.comm, self.transfers)) for each in machine.links
            ),
            signal_us=machine.signal_us * self.transfers,
            step_overhead_us=machine.step_overhead_us * self.overhead,
        )


def _scaled(comm: CommModel, factor: float) -> CommModel:
    return CommModel(**{each.name: getattr(comm, each.name) * factor for each in fields(comm)})


@dataclass(frozen=True, eq=False)
class MeasuredStep:
    """A placement and its measured step. error: its standard error as a share of the time."""

    placed: Placed
    us: float
    error: float


def predicted_us(placed: Placed, factors: Factors) -> float:
    """Return the predicted step time in us."""
    problem = factors.scaled(placed.problem)
    makespan_us = Simulator(problem).replay(placed.placement).makespan_us
    return makespan_us + problem.machine.step_overhead_us


def fitted(steps: Sequence[MeasuredStep]) -> Factors:
    """Return the factors with which predicted steps are nearest to the measured ones."""
    if not steps:
        return Factors()
    measured = np.log([step.us for step in steps])
    sigma = np.hypot(ERROR, [step.error for step in steps])
    prior = np.array([OPS_PRIOR, TRANSFERS_PRIOR, OVERHEAD_PRIOR])

    def residuals(logs: FloatArray) -> FloatArray:
        factors = Factors(*np.exp(logs).tolist())
        predicted = np.log([predicted_us(step.placed, factors) for step in steps])
        return np.concatenate([(predicted - measured) / sigma, logs / prior])

    logs = np.zeros(len(prior))
    best = residuals(logs)
    for _ in range(NUM_ITERATIONS):
        slopes = [(residuals(logs + STEP * unit) - best) / STEP for unit in np.eye(len(prior))]
        change = np.linalg.lstsq(np.transpose(slopes), -best, rcond=None)[0]
        tried = np.clip(logs + change, -np.log(LARGEST), np.log(LARGEST))
        found = residuals(tried)
        if not found @ found < best @ best:
            break
        logs, best = tried, found
    return Factors(*np.exp(logs).tolist())
