"""Cutting a sequence of layers into contiguous parts, one for each device, with balanced work."""

from collections.abc import Callable

import numpy as np

from pesto_cli.data.columns import BoolArray, FloatArray, IntArray


def balanced_cuts(work_us: FloatArray) -> list[int]:
    """Cut a sequence of layers into one part for each device so that the greatest load is minimal.

    Args:
        work_us: work of each layer on the device of each part, `[num_layers, num_parts]`.

    Returns:
        `num_parts - 1` cuts: part p has the layers from `cuts[p - 1]` to `cuts[p]`, the latter
        excluded.
    """
    num_layers, num_parts = work_us.shape
    before = np.vstack((np.zeros(num_parts), np.cumsum(work_us, axis=0)))
    load = before[:, 0].copy()  # by number of layers: minimal greatest load of the parts so far
    choice: list[IntArray] = []
    for part in range(1, num_parts):
        cut = _best_cuts(before[:, part], load)
        choice.append(cut)
        load = np.maximum(before[:, part] - before[cut, part], load[cut])
    cuts, end = [], num_layers
    for cut_for in reversed(choice):
        end = int(cut_for[end])
        cuts.append(end)
    return cuts[::-1]


def _best_cuts(before: FloatArray, load: FloatArray) -> IntArray:
    """Return for each end the first cut that minimises the greatest load, `[num_layers + 1]`.

    With a later cut, the load of the last part falls and the load of the parts before it rises. So
    the best cut is the first one at which the parts before have at least as much load, or the cut
    before it. Of equally good cuts, the first is taken.

    Args:
        before: total work of the layers before each index, on the device of the last part,
            `[num_layers + 1]`.
        load: minimal greatest load of the parts before, `[num_layers + 1]`.
    """
    end = np.arange(len(before))
    crossing = _first(end, lambda cut: load[cut] >= before - before[cut])
    sooner = np.maximum(crossing - 1, 0)
    own = before - before[sooner]
    as_good = _first(crossing, lambda cut: before - before[cut] <= own)
    best: IntArray = np.where((crossing > 0) & (own <= load[crossing]), as_good, crossing)
    return best


def _first(last: IntArray, holds: Callable[[IntArray], BoolArray]) -> IntArray:
    """Return for each entry of `last` the first index from which a condition holds, or the entry.

    Once the condition holds, it must hold for all later indices up to the entry: it is a bisection.
    """
    low, high = np.zeros_like(last), last.copy()
    while (low < high).any():
        middle = (low + high) >> 1
        held = holds(middle)
        low, high = np.where(held, low, np.minimum(middle + 1, high)), np.where(held, middle, high)
    return low
