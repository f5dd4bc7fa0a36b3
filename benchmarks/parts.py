"""Interpolated times of parts against the times of the same parts, priced directly.

python -m benchmarks parts
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pesto_cli import api
from pesto_cli.data.parts import Parts
from pesto_cli.data.problem import Problem

MODELS = ("RNNLM-2-2048", "NMT-4-1024", "Transformer-10-8-1024", "NASNet-4-212")
MACHINE = "v100x2-nvlink"
PRICED, TRIED = (2, 4, 8), (3, 5, 6)
# Four parts on four GPUs, whose times are interpolated between those of two and of eight parts.
MACHINE_OF_PLANS, PRICED_FOR_PLANS = "v100x4-nvlink", (2, 8)
CLOSE = 0.1


@dataclass(frozen=True)
class Interpolation:
    """The error of interpolated times, over all ways to split each op in `number` parts.

    work_error: relative error of the sum of the times of parts.
    close: share of ops and ways to split them whose part has an error of at most CLOSE.
    """

    number: int
    work_error: float
    close: float


def interpolations(
    meta: Any, priced: Sequence[int] = PRICED, tried: Sequence[int] = TRIED
) -> Iterator[Interpolation]:
    """Yield the errors for each number of parts in `tried`, on the machine MACHINE."""
    problem = api.profile(meta, MACHINE, parts=sorted({*priced, *tried})).problem
    assert problem.parts is not None
    stored = _with_numbers(problem.parts, priced)
    for number in tried:
        direct = _with_numbers(problem.parts, (number,))
        pairs = np.array(list(_pairs(problem, stored, direct)))
        expected, found, count = pairs.T
        is_close = np.abs(found - expected) <= CLOSE * expected
        yield Interpolation(
            number,
            float(abs((found * count).sum() / (expected * count).sum() - 1)),
            float(count[is_close].sum() / count.sum()),
        )


@dataclass(frozen=True)
class PlanError:
    """The difference between a split problem and the profile of its rewritten graph.

    num_ops: ops of the split problem. work_error: relative error of the sum of their times.
    close: share of ops whose times differ by at most CLOSE.
    """

    num_ops: int
    work_error: float
    close: float


def plan_error(meta: Any) -> PlanError:
    """Split a step along the batch with interpolated times; profile the rewritten graph."""
    profile = api.profile(meta, MACHINE_OF_PLANS, parts=PRICED_FOR_PLANS)
    result = api.solve(profile, "data-parallel")
    rewritten = api.apply(meta, api.placement(profile, result), order="none")
    found, expected = result.problem, api.profile(rewritten, MACHINE_OF_PLANS).problem
    expected_us = dict(zip(expected.graph.names, np.nanmin(expected.time_us, axis=1), strict=True))
    pairs = np.array(
        [
            (time_us, expected_us[name])
            for name, time_us in zip(
                found.graph.names, np.nanmin(found.time_us, axis=1), strict=True
            )
        ]
    )
    is_close = np.abs(pairs[:, 0] - pairs[:, 1]) <= CLOSE * pairs[:, 1]
    total_us, expected_total_us = pairs.sum(axis=0)
    return PlanError(
        found.num_ops, float(abs(total_us / expected_total_us - 1)), float(is_close.mean())
    )


def _with_numbers(parts: Parts, numbers: Sequence[int]) -> Parts:
    """Return the prices for some of the numbers of parts only."""
    places = [parts.numbers.index(number) for number in numbers]
    times = {key: replace(each, ratio=each.ratio[:, places]) for key, each in parts.times.items()}
    return replace(parts, numbers=tuple(numbers), times=times)


def _pairs(problem: Problem, stored: Parts, direct: Parts) -> Iterator[tuple[float, float, int]]:
    """Yield expected and interpolated time in us, and the number of ops, for each way to split."""
    whole_us = np.nanmin(problem.time_us, axis=1)
    for (index, alternative), times in direct.times.items():
        ops = np.flatnonzero(stored.spec_of == index)
        kind = int(np.nanargmin(problem.time_us[ops[0]]))
        expected = times.ratio[kind, 0]
        if times.size >= max(stored.numbers) and not np.isnan(expected):
            share = times.size // direct.numbers[0] / times.size
            found = stored.part_ratio(int(ops[0]), alternative, share)[kind]
            mean_us = float(whole_us[ops].mean())
            yield mean_us * expected, mean_us * found, len(ops)


def main() -> None:
    """Print the errors for the models of the zoo."""
    for model in MODELS:
        meta = api.export(f"zoo:{model}")
        for row in interpolations(meta):
            print(
                f"{model}: {row.number} parts, interpolated and priced directly: work differs by "
                f"{row.work_error:.2%}, {row.close:.1%} of ops within {CLOSE:.0%}",
                flush=True,
            )
        plan = plan_error(meta)
        print(
            f"{model}: {plan.num_ops} ops of a plan with 4 parts, and its graph profiled: work "
            f"differs by {plan.work_error:.2%}, {plan.close:.1%} of ops within {CLOSE:.0%}",
            flush=True,
        )


if __name__ == "__main__":
    main()
