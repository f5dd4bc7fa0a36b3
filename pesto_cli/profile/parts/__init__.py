"""Prices of parts: the times of parts of ops as ratios, and of the ops that a rewriting adds.

Every time comes from the analytic source, which estimates each distinct op once, on its own. The
whole op is estimated in the same way, so a ratio compares like with like. A plan multiplies it by
the op's time in the profile, whatever source that came from.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from pesto_cli.data.graph import BoolArray, FloatArray, IntArray
from pesto_cli.data.parts import Parts, PartTimes
from pesto_cli.data.problem import Problem
from pesto_cli.data.specs import ELEMENT_BYTES, OpSpec
from pesto_cli.graphdef.op_specs import op_specs
from pesto_cli.graphdef.read import StepGraph
from pesto_cli.profile.analytic.loose import TimesOfSpecs, loose_us
from pesto_cli.profile.parts.added import FALLBACK, Added, added_types, byte_prices
from pesto_cli.profile.parts.kinds import kinds_of_parts
from pesto_cli.profile.parts.programs import Split, helpers, splits
from pesto_cli.sharding.rules import HANDLES


def priced_parts(
    step: StepGraph, problem: Problem, numbers: Sequence[int], *, cpu_offload: bool
) -> Parts:
    """Return the prices of all parts of a step's ops.

    problem: the problem of the step. numbers: the numbers of parts to price, ascending.
        cpu_offload: ops that a GPU can run may run on the CPU too.

    Raises:
        BadInputError: the machine does not describe a device kind.
        EnvironmentFailedError: the process of TensorFlow's virtual cluster died.
    """
    specs, spec_of = op_specs(step)
    can_run = _can_run(problem, spec_of, len(specs))
    found = {index: tuple(splits(spec, numbers)) for index, spec in enumerate(specs)}
    of_programs = sorted(chain.from_iterable(map(helpers, specs)), key=_size)
    examples = dict(of_programs)  # The largest one of each type.
    added = added_types(_dtypes(specs), examples)
    wanted = _Wanted(problem.kinds)
    for index, splits_of_spec in found.items():
        wanted.add(chain.from_iterable(map(_estimated, splits_of_spec)), can_run[index])
    runs_on = {
        key: _added_runs_on(problem, each, cpu_offload or key == FALLBACK)
        for key, each in added.items()
    }
    for key, each in added.items():
        wanted.add(each.samples, runs_on[key])
    times = _Times(problem.kinds, loose_us(wanted.specs, kinds_of_parts(problem.machine)))
    by_bytes = byte_prices(added, times.us, runs_on)
    fallback = by_bytes.pop(FALLBACK)
    return Parts(
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
    )


class _Wanted:
    """The specs to estimate on each kind."""

    def __init__(self, kinds: Sequence[str]) -> None:
        self.specs: dict[str, dict[OpSpec, None]] = {kind: {} for kind in kinds}

    def add(self, specs: Iterable[OpSpec], can_run: Iterable[bool]) -> None:
        """Add specs that some of the kinds can run; can_run: `[num_kinds]`."""
        specs = tuple(specs)
        for of_kind, able in zip(self.specs.values(), can_run, strict=True):
            if able:
                of_kind.update(dict.fromkeys(specs))


@dataclass(frozen=True)
class _Times:
    """The estimated times: kind -> spec -> us."""

    kinds: Sequence[str]
    estimated: Mapping[str, TimesOfSpecs]

    def us(self, spec: OpSpec) -> FloatArray:
        """`[num_kinds]`, NaN where the spec was not estimated."""
        return np.array([self.estimated[kind].get(spec, np.nan) for kind in self.kinds])


def _size(of_program: tuple[tuple[str, str], OpSpec]) -> int:
    return of_program[1].num_bytes


def _can_run(problem: Problem, spec_of: IntArray, num_specs: int) -> BoolArray:
    """`[num_specs, num_kinds]`: whether an op with this spec has a time on the kind."""
    able = np.zeros((num_specs, len(problem.kinds)), dtype=np.bool_)
    has_spec = spec_of >= 0
    np.logical_or.at(able, spec_of[has_spec], ~np.isnan(problem.time_us[has_spec]))
    return able


def _added_runs_on(problem: Problem, added: Added, cpu_offload: bool) -> BoolArray:
    """`[num_kinds]`: whether an added op gets a time on the kind; as in `profile.affinity`."""
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
    return any(each.dtype in HANDLES for each in operands) or not all(
        each.is_static for each in spec.inputs
    )


def _ratios(split: Split, times: _Times) -> FloatArray:
    """Return `PartTimes.ratio`.

    What an op does with the data behind a handle is unknown to the estimate: such an op is priced
    in proportion to its other bytes.
    """

    def us(spec: OpSpec) -> FloatArray:
        if _is_opaque(split.whole):
            return np.full(len(times.kinds), float(spec.num_bytes))
        return times.us(spec)

    whole = us(split.whole)
    columns = [sum(map(us, parts), np.zeros(len(whole))) for parts in split.parts]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.column_stack(columns) / whole[:, None]
    ratio[whole == 0] = 1.0
    return ratio
