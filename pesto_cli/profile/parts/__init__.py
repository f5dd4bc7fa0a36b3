"""Prices of parts: the times of parts of ops as ratios, and of the ops that a rewriting adds.

Each distinct op is timed once, on its own: by the analytic source, and on real devices by running
it. The whole op is timed in the same way, so a ratio compares like with like. A plan multiplies it
by the op's time in the profile, whatever source that came from.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from pesto_cli.cluster import Cluster
from pesto_cli.data.graph import BoolArray, FloatArray, IntArray
from pesto_cli.data.parts import Parts, PartTimes
from pesto_cli.data.problem import Problem
from pesto_cli.data.specs import CUTS, ELEMENT_BYTES, HANDLES, OpSpec
from pesto_cli.graphdef.op_specs import op_specs
from pesto_cli.graphdef.read import StepGraph
from pesto_cli.profile.analytic.loose import TimesOfSpecs, loose_us
from pesto_cli.profile.parts.added import FALLBACK, Added, Key, added_types, byte_prices
from pesto_cli.profile.parts.kinds import kinds_of_parts
from pesto_cli.profile.parts.measured import (
    LEAST_SHARE,
    Account,
    can_measure,
    measured_alone,
    shares,
)
from pesto_cli.profile.parts.programs import Split, helpers, splits
from pesto_cli.profile.parts.samples import ELEMENTS, MEASURED_ELEMENTS


@dataclass(frozen=True)
class Priced:
    """Prices of parts, and what was measured for them on each device kind."""

    parts: Parts
    accounts: tuple[Account, ...]


def priced_parts(
    step: StepGraph,
    problem: Problem,
    numbers: Sequence[int],
    *,
    cpu_offload: bool,
    cluster: Cluster | None = None,
    limit_s: float = math.inf,
) -> Priced:
    """Return the prices of all parts of a step's ops.

    problem: the problem of the step. numbers: the numbers of parts to price, ascending.
        cpu_offload: ops that a GPU can run may run on the CPU too. cluster: the devices of the
        machine; without them all times are estimated. limit_s: for the ops of each device kind, see
        `timed_alone`.

    Raises:
        BadInputError: the machine does not describe a device kind.
        EnvironmentFailedError: the process of TensorFlow's virtual cluster, or one of the cluster,
            has ended.
    """
    specs, spec_of = op_specs(step)
    found = {index: tuple(splits(spec, numbers)) for index, spec in enumerate(specs)}
    added = _added(specs, problem, cpu_offload, is_measured=cluster is not None)
    wanted = _wanted(problem, spec_of, found, added)
    estimated = loose_us(wanted.specs, kinds_of_parts(problem.machine))
    measured, accounts = measured_alone(
        cluster, problem.machine, wanted.to_measure, wanted.num_estimated, limit_s
    )
    times = _Times(problem.kinds, estimated, measured)
    by_bytes = byte_prices(added.types, times.us, added.runs_on)
    fallback = by_bytes.pop(FALLBACK)
    parts = Parts(
        names=problem.graph.names,
        specs=specs,
        spec_of=spec_of,
        numbers=tuple(numbers),
        times={
            (index, split.alternative): PartTimes(split.size, _ratios(split, times))
            for index, splits_of_spec in found.items()
            for split in splits_of_spec
        },
        added=by_bytes,
        fallback=fallback,
        targets=step.targets,
    )
    return Priced(parts, accounts)


@dataclass(frozen=True)
class _AddedTypes:
    """The op types that a rewriting may add; runs_on: `[num_kinds]`, where each gets a time."""

    types: Mapping[Key, Added]
    runs_on: Mapping[Key, BoolArray]


def _added(
    specs: Sequence[OpSpec], problem: Problem, cpu_offload: bool, *, is_measured: bool
) -> _AddedTypes:
    of_programs = sorted(chain.from_iterable(map(helpers, specs)), key=_size)
    examples = dict(of_programs)  # The largest one of each type.
    types = added_types(_dtypes(specs), examples, MEASURED_ELEMENTS if is_measured else ELEMENTS)
    runs_on = {
        key: _added_runs_on(problem, each, cpu_offload or key == FALLBACK or key[0] in CUTS)
        for key, each in types.items()
    }
    return _AddedTypes(types, runs_on)


class _Wanted:
    """The specs to estimate on each kind, and those of them that are worth a measurement."""

    def __init__(self, kinds: Sequence[str]) -> None:
        self.specs: dict[str, dict[OpSpec, None]] = {kind: {} for kind in kinds}
        self.to_measure: dict[str, dict[OpSpec, None]] = {kind: {} for kind in kinds}

    def add(self, specs: Iterable[OpSpec], can_run: BoolArray, is_worth: BoolArray) -> None:
        """Add specs on the kinds that can run them.

        can_run, is_worth: `[num_kinds]`, the latter: whether a kind measures them.
        """
        new = dict.fromkeys(specs)
        for kind, able, worth in zip(self.specs, can_run, is_worth, strict=True):
            if able:
                self.specs[kind].update(new)
            if able and worth:
                self.to_measure[kind].update(new)

    @property
    def num_estimated(self) -> dict[str, int]:
        """Device kind -> number of specs that are not measured."""
        return {kind: len(self.specs[kind]) - len(self.to_measure[kind]) for kind in self.specs}


def _wanted(
    problem: Problem,
    spec_of: IntArray,
    found: Mapping[int, Sequence[Split]],
    added: _AddedTypes,
) -> _Wanted:
    wanted = _Wanted(problem.kinds)
    can_run = _can_run(problem, spec_of, len(found))
    has_work = shares(problem, spec_of, len(found)) >= LEAST_SHARE
    for index, splits_of_spec in found.items():
        is_worth = has_work[index] & all(can_measure(split.whole) for split in splits_of_spec)
        specs = chain.from_iterable(map(_estimated, splits_of_spec))
        wanted.add(specs, can_run[index], is_worth)
    for key, each in added.types.items():
        is_worth = added.runs_on[key] & all(map(can_measure, each.samples))
        wanted.add(each.samples, added.runs_on[key], is_worth)
    return wanted


@dataclass(frozen=True)
class _Times:
    """The estimated and the measured times: kind -> spec -> us."""

    kinds: Sequence[str]
    estimated: Mapping[str, TimesOfSpecs]
    measured: Mapping[str, TimesOfSpecs]

    def us(self, specs: Sequence[OpSpec]) -> FloatArray:
        """`[num_specs, num_kinds]`, NaN where a spec has no time.

        The times on a kind are comparable: all are measured, or if one was not, all are estimated.
        """
        columns = []
        for kind in self.kinds:
            times = self.measured.get(kind, {})
            if not all(spec in times for spec in specs):
                times = self.estimated[kind]
            columns.append([times.get(spec, np.nan) for spec in specs])
        return np.array(columns, dtype=np.float64).T


def _size(of_program: tuple[tuple[str, str], OpSpec]) -> int:
    return of_program[1].num_bytes


def _can_run(problem: Problem, spec_of: IntArray, num_specs: int) -> BoolArray:
    """`[num_specs, num_kinds]`: whether an op with this spec has a time on the kind."""
    able = np.zeros((num_specs, len(problem.kinds)), dtype=np.bool_)
    has_spec = spec_of >= 0
    np.logical_or.at(able, spec_of[has_spec], ~np.isnan(problem.time_us[has_spec]))
    return able


def _added_runs_on(problem: Problem, added: Added, cpu_offload: bool) -> BoolArray:
    """`[num_kinds]`: whether an added op gets a time on the kind; as in `profile.affinity`.

    cpu_offload: on the CPU too if a GPU can run it. So it is for ops of `CUTS`: what a host feeds
        is cut there if this is faster.
    """
    types = [problem.machine.device_type(kind) for kind in problem.kinds]
    on_gpu = "GPU" in types and "GPU" in added.device_types
    able = [
        name in added.device_types and (name == "GPU" or cpu_offload or not on_gpu)
        for name in types
    ]
    return np.array(able, dtype=np.bool_)


def _dtypes(specs: Iterable[OpSpec]) -> set[str]:
    """Return the data types of the tensors that may be split."""
    operands = (operand for spec in specs for operand in (*spec.inputs, *spec.outputs))
    return {each.dtype for each in operands if each.dtype} & set(ELEMENT_BYTES) - HANDLES


def _estimated(split: Split) -> tuple[OpSpec, ...]:
    """Return the whole op and its parts, if the estimate knows all that they read."""
    return () if _is_opaque(split.whole) else (split.whole, *chain.from_iterable(split.parts))


def _is_opaque(spec: OpSpec) -> bool:
    """Return whether an op has an operand without a known size: a handle, or scratch memory."""
    operands = (*spec.inputs, *spec.outputs)
    return any(each.is_handle for each in operands) or not all(
        each.is_static for each in spec.inputs
    )


def _ratios(split: Split, times: _Times) -> FloatArray:
    """Return `PartTimes.ratio`.

    What an op does with the data behind a handle is unknown to the estimate: such an op is priced
    in proportion to its other bytes.
    """
    specs = tuple(dict.fromkeys((split.whole, *chain.from_iterable(split.parts))))
    if _is_opaque(split.whole):
        rows = np.array([[float(spec.num_bytes)] * len(times.kinds) for spec in specs])
    else:
        rows = times.us(specs)
    us = dict(zip(specs, rows, strict=True))
    whole = us[split.whole]
    columns = [sum((us[part] for part in parts), np.zeros(len(whole))) for parts in split.parts]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.column_stack(columns) / whole[:, None]
    ratio[whole == 0] = 1.0
    return np.asarray(ratio, dtype=np.float64)
