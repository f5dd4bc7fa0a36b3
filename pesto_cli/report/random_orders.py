"""What a placement's order is worth, beside orders that are left to chance."""

from dataclasses import dataclass

import numpy as np

from pesto_cli.data.graph import FloatArray
from pesto_cli.report.layouts import Layouts, layouts
from pesto_cli.report.times import TimeScale


@dataclass(frozen=True)
class Chance:
    """Step times of the same devices in random orders.

    order_is_worth: by which share the placement's own order is shorter than their median.
    """

    num_orders: int
    min_us: float
    median_us: float
    mean_us: float
    max_us: float
    order_is_worth: float


def chance(makespan_us: float, random_us: FloatArray) -> Chance:
    """Compare a placement's makespan with `[count]` others, of its devices in random orders."""
    median_us = float(np.median(random_us))
    return Chance(
        num_orders=len(random_us),
        min_us=float(random_us.min()),
        median_us=median_us,
        mean_us=float(random_us.mean()),
        max_us=float(random_us.max()),
        order_is_worth=1 - makespan_us / median_us if median_us > 0 else 0.0,
    )


def chance_table(makespan_us: float, found: Chance) -> Layouts:
    """The placement's own order, then the distribution of the others."""
    orders = "1 random order" if found.num_orders == 1 else f"{found.num_orders} random orders"
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
