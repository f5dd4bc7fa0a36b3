"""Fit what no op time shows: how the predicted steps differ from the measured ones as a whole.

    step_us = makespan(costs of ops and transfers * factors) + step overhead * factor

The factors are fitted to the measured steps by least squares of relative errors (Gauss-Newton),
with a normal prior around 1, so that few steps change little.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np

from pesto_cli.data.columns import FloatArray
from pesto_cli.data.machine import CommModel, Machine
from pesto_cli.data.problem import Problem
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.tuning.correction import scaled_price
from pesto_cli.tuning.seen import Placed

# Standard deviations of the logarithms of the factors before any step was measured, and of the
# error of a prediction with the right factors.
PRIORS = {"ops": 0.1, "contention": 0.5, "transfers": 0.5, "network": 0.5, "overhead": 0.3}
ERROR = 0.02
LARGEST = 4.0
NUM_ITERATIONS = 4
# The change of a logarithm by which derivatives are estimated.
STEP = 0.05
# Shorter steps count as this long, so that their logarithm is finite.
LEAST_US = 1e-3


@dataclass(frozen=True)
class Factors:
    """Factors on the costs of a problem.

    ops: on all op times; it also covers the cost of the trace, and a machine that has become
        slower.
    contention: on the slow-down of ops while other devices compute.
    transfers: on latencies, overheads and delays of transfers and signals within a host.
    network: on those between hosts.
    overhead: on the step overhead.
    """

    ops: float = 1.0
    contention: float = 1.0
    transfers: float = 1.0
    network: float = 1.0
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
        host = {each.name: each.host for each in machine.devices}
        links = tuple(
            replace(each, comm=_scaled(each.comm, self._of_link(host[each.src], host[each.dst])))
            for each in machine.links
        )
        return replace(
            machine,
            devices=tuple(
                replace(each, op_overhead_us=each.op_overhead_us * self.ops)
                for each in machine.devices
            ),
            links=links,
            signal_us=machine.signal_us * self._of_link(*_farthest(host.values())),
            step_overhead_us=machine.step_overhead_us * self.overhead,
            contention={
                kind: {op_type: each * self.contention for op_type, each in slow_downs.items()}
                for kind, slow_downs in machine.contention.items()
            },
        )

    def _of_link(self, src_host: str, dst_host: str) -> float:
        return self.transfers if src_host == dst_host else self.network


def _farthest(hosts: Iterable[str]) -> tuple[str, str]:
    """Return two hosts, which differ if there are several."""
    ordered = sorted(hosts)
    return ordered[0], ordered[-1]


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


@dataclass(frozen=True)
class Fit:
    """Fitted factors. deviation: name of a factor -> its standard deviation, as a share of it.

    A factor without an effect on the machine has no deviation, and is 1.
    """

    factors: Factors = Factors()
    deviation: Mapping[str, float] = field(default_factory=dict)


def fitted(steps: Sequence[MeasuredStep]) -> Fit:
    """Return the factors with which predicted steps are nearest to the measured ones.

    All steps are of the same machine.
    """
    if not steps:
        return Fit()
    names = _effective(steps[0].placed.problem.machine)
    measured = np.log([step.us for step in steps])
    sigma = np.hypot(ERROR, [step.error for step in steps])
    prior = np.array([PRIORS[name] for name in names])

    def factors(logs: FloatArray) -> Factors:
        return Factors(**dict(zip(names, np.exp(logs).tolist(), strict=True)))

    def residuals(logs: FloatArray) -> FloatArray:
        tried = factors(logs)
        predicted = [max(predicted_us(step.placed, tried), LEAST_US) for step in steps]
        return np.concatenate([(np.log(predicted) - measured) / sigma, logs / prior])

    logs = np.zeros(len(prior))
    best = residuals(logs)
    for _ in range(NUM_ITERATIONS):
        columns = [(residuals(logs + STEP * unit) - best) / STEP for unit in np.eye(len(prior))]
        slopes = np.transpose(columns)
        change = np.linalg.lstsq(slopes, -best, rcond=None)[0]
        tried = np.clip(logs + change, -np.log(LARGEST), np.log(LARGEST))
        found = residuals(tried)
        if not found @ found < best @ best:
            break
        logs, best = tried, found
    variance = np.diag(np.linalg.inv(slopes.T @ slopes))  # the prior makes it regular
    return Fit(factors(logs), dict(zip(names, np.sqrt(variance).tolist(), strict=True)))


def _effective(machine: Machine) -> list[str]:
    """Return the names of the factors that change a cost of a machine."""
    hosts = [each.host for each in machine.devices]
    is_without_effect = {
        "contention": not machine.has_contention,
        "transfers": len(set(hosts)) == len(hosts),
        "network": len(set(hosts)) == 1,
    }
    return [name for name in PRIORS if not is_without_effect.get(name, False)]
