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

MODELS = ("RNNLM-2-2048", "NMT-4-1024", "Transformer-10-8-1024", "NASNet-4-48")
MACHINE = "v100x2-nvlink"
PRICED, TRIED = (2, 4, 8), (3, 5, 6)
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
    print(f"{'model':24}{'parts':>6}{'error of work':>15}{'within 10 %':>13}")
    for model in MODELS:
        for row in interpolations(api.export(f"zoo:{model}")):
            print(f"{model:24}{row.number:6}{row.work_error:15.2%}{row.close:13.1%}", flush=True)


if __name__ == "__main__":
    main()
