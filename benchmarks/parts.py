"""Interpolated times of parts against the times of the same parts, priced directly.

python -m benchmarks parts
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pesto_cli import api
from pesto_cli.data.graph import FloatArray
from pesto_cli.data.parts import Parts
from pesto_cli.data.problem import Problem
from pesto_cli.graphdef.read import read_step
from pesto_cli.profile.parts import priced_parts

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
    problem, step = api.profile(meta, MACHINE).problem, read_step(meta)
    stored, direct = (
        priced_parts(step, problem, numbers, cpu_offload=False) for numbers in (priced, tried)
    )
    for place, number in enumerate(tried):
        pairs = np.array(list(_pairs(problem, stored, direct, place)))
        expected, found, count = pairs.T
        is_close = np.abs(found - expected) <= CLOSE * expected
        yield Interpolation(
            number,
            float(abs((found * count).sum() / (expected * count).sum() - 1)),
            float(count[is_close].sum() / count.sum()),
        )


def _pairs(
    problem: Problem, stored: Parts, direct: Parts, place: int
) -> Iterator[tuple[float, float, int]]:
    """Yield expected and interpolated time in us, and the number of ops, for each way to split."""
    whole_us: FloatArray = np.nanmin(problem.time_us, axis=1)
    for (index, alternative), times in direct.times.items():
        ops = np.flatnonzero(stored.spec_of == index)
        kind = int(np.nanargmin(problem.time_us[ops[0]]))
        expected = times.ratio[kind, place]
        if times.size >= max(stored.numbers) and not np.isnan(expected):
            share = times.size // direct.numbers[place] / times.size
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
