"""Step times of a placement with random op times and delays."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pesto_cli.data.graph import FloatArray
from pesto_cli.data.result import Result
from pesto_cli.report.counts import count_text
from pesto_cli.report.layouts import Layouts, layouts
from pesto_cli.report.times import TimeScale


@dataclass(frozen=True)
class SampleFigures:
    """Statistics of sampled makespans, in us; p90 is the 90th percentile."""

    num_samples: int
    mean_us: float
    median_us: float
    p90_us: float


def sample_figures(sampled_us: FloatArray) -> SampleFigures:
    """Return the statistics of sampled makespans, `sampled_us[count]`."""
    return SampleFigures(
        num_samples=len(sampled_us),
        mean_us=float(sampled_us.mean()),
        median_us=float(np.median(sampled_us)),
        p90_us=float(np.quantile(sampled_us, 0.9)),
    )


def samples_table(makespan_us: float, found: SampleFigures) -> Layouts:
    """Return a table of the makespan with the profile's times, and of the sampled makespans."""
    times_us = {
        "as profiled": makespan_us,
        "mean": found.mean_us,
        "median": found.median_us,
        "90 % below": found.p90_us,
    }
    scale = TimeScale.of(times_us.values())
    samples = count_text(found.num_samples, "sample")
    title = f"The same placement in {samples} of op times and delays"
    columns = [f"{name} {scale.unit}" for name in times_us]
    return layouts(title, columns, [[*map(scale.text, times_us.values())]], num_text=0)


def robust_tables(result: Result) -> Iterator[Layouts]:
    """Yield a table for the result of a robust search, which has the means of two placements.

    One is the result, and the other the result of the part of the search without samples.
    """
    sampled = result.solution.sampled
    if sampled is None:
        return
    times_us = {
        "this placement": (result.makespan_us, sampled.mean_us),
        "search without samples": (sampled.plain_makespan_us, sampled.plain_mean_us),
    }
    scale = TimeScale.of(us for row in times_us.values() for us in row)
    title = f"Robust: the mean step in {sampled.num_samples} samples of op times and delays"
    columns = ["placement", f"as profiled {scale.unit}", f"mean {scale.unit}"]
    rows = [[name, *map(scale.text, row)] for name, row in times_us.items()]
    yield layouts(title, columns, rows)
