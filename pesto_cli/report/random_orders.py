"""Step times of random execution orders, compared with the order of a placement."""

from dataclasses import dataclass

import numpy as np

from pesto_cli.data.graph import FloatArray
from pesto_cli.report.counts import count_text
from pesto_cli.report.layouts import Layouts, layouts
from pesto_cli.report.times import TimeScale


@dataclass(frozen=True)
class RandomOrderFigures:
    """Statistics of the step times of random orders on the same devices, in us.

    order_is_worth: the share by which the placement's own order is shorter than their median.
    """

    num_orders: int
    min_us: float
    median_us: float
    mean_us: float
    max_us: float
    order_is_worth: float


def random_order_figures(makespan_us: float, random_us: FloatArray) -> RandomOrderFigures:
    """Compare a placement's makespan with those of random orders, `random_us[count]`."""
    median_us = float(np.median(random_us))
    return RandomOrderFigures(
        num_orders=len(random_us),
        min_us=float(random_us.min()),
        median_us=median_us,
        mean_us=float(random_us.mean()),
        max_us=float(random_us.max()),
        order_is_worth=1 - makespan_us / median_us if median_us > 0 else 0.0,
    )


def random_orders_table(makespan_us: float, found: RandomOrderFigures) -> Layouts:
    """Return a table of the makespan in the placement's own order and in random orders."""
    orders = count_text(found.num_orders, "random order")
    times_us = {
        "own order": makespan_us,
        "min": found.min_us,
        "median": found.median_us,
        "mean": found.mean_us,
        "max": found.max_us,
    }
    scale = TimeScale.of(times_us.values())
    columns = [*(f"{name} {scale.unit}" for name in times_us), "order is worth"]
    row = [*map(scale.text, times_us.values()), f"{found.order_is_worth:.1%}"]
    return layouts(f"The same devices in {orders}", columns, [row], num_text=0)
