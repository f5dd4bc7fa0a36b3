"""Times of parts that are measured on real devices, one device of each kind."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from pesto_cli.cluster import Cluster
from pesto_cli.data.graph import FloatArray, IntArray
from pesto_cli.data.machine import Machine, short_list
from pesto_cli.data.problem import Problem
from pesto_cli.data.specs import OpSpec
from pesto_cli.profile.analytic.loose import TimesOfSpecs
from pesto_cli.profile.parts.alone import NUM_STEPS, timed_alone

LEAST_SHARE = 1e-3
"""Share of the work of a step. Parts of ops that are equal and together take less are estimated."""


@dataclass(frozen=True)
class Account:
    """What was measured on a device kind.

    device: pesto's name of the device. num_specs: distinct ops, parts and added ops that were
        measured. failed: types of those that TensorFlow failed to run alone. num_estimated: others,
        which were not measured. num_steps: number of steps of each, in words.
    """

    kind: str
    device: str
    num_specs: int
    failed: tuple[str, ...]
    num_estimated: int
    num_steps: str = str(NUM_STEPS)

    @property
    def text(self) -> str:
        """The account in one sentence."""
        words = [
            f"the times of {self.num_specs} ops, parts and ops that a split adds were measured "
            f"alone on {self.device}, as minima of {self.num_steps} steps"
        ]
        if self.num_estimated:
            words.append(
                f"those of {self.num_estimated} others, which cannot run alone or take less than "
                f"{LEAST_SHARE:.1%} of the work, are estimated as shares of their op's time"
            )
        if self.failed:
            words.append(
                f"{len(self.failed)} failed ({short_list(sorted(set(self.failed)))}), and are "
                "estimated too"
            )
        return f"{'; '.join(words)}."


def measured_alone(
    cluster: Cluster | None,
    machine: Machine,
    wanted: Mapping[str, Collection[OpSpec]],
    num_estimated: Mapping[str, int],
    limit_s: float = math.inf,
) -> tuple[dict[str, TimesOfSpecs], tuple[Account, ...]]:
    """Measure distinct ops on the first device of each kind; ops that fail have no time.

    cluster: without it nothing is measured. wanted: device kind -> distinct specs. num_estimated:
        device kind -> number of other specs. limit_s: for the ops of each kind, see `timed_alone`.

    Raises:
        EnvironmentFailedError: a process of the cluster has ended.
    """
    first = {device.kind: device.name for device in reversed(machine.devices)}
    times: dict[str, TimesOfSpecs] = {}
    accounts: list[Account] = []
    if cluster is None:
        return times, ()
    for kind, specs in wanted.items():
        us = cluster.call(timed_alone, first[kind], list(specs), limit_s).tolist()
        times[kind] = {
            spec: each for spec, each in zip(specs, us, strict=True) if not np.isnan(each)
        }
        failed = tuple(spec.type for spec in specs if spec not in times[kind])
        num_steps = f"{'up to ' if limit_s < math.inf else ''}{NUM_STEPS}"
        count = num_estimated[kind]
        accounts.append(Account(kind, first[kind], len(times[kind]), failed, count, num_steps))
    return times, tuple(accounts)


def can_measure(spec: OpSpec) -> bool:
    """Return whether an op on its own does what it does in a step.

    An op with a state may not. The spec of a Const does not contain its value, and the spec of a
    call does not contain its function.
    """
    return not spec.is_stateful and spec.type != "Const" and spec.body is None


def shares(problem: Problem, spec_of: IntArray, num_specs: int) -> FloatArray:
    """`[num_specs, num_kinds]`: the time of all ops of a spec / that of all ops of the step."""
    work_us = np.zeros((num_specs, len(problem.kinds)))
    has_spec = spec_of >= 0
    np.add.at(work_us, spec_of[has_spec], np.nan_to_num(problem.time_us[has_spec]))
    total_us = np.nansum(problem.time_us, axis=0)
    return work_us / np.where(total_us > 0, total_us, 1.0)
