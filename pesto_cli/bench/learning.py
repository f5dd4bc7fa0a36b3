"""How a policy learns in a run: its training on other graphs before, and its curve."""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from pesto_cli.bench.record import CurvePoint, Learning
from pesto_cli.data.limits import Limits
from pesto_cli.data.problem import Problem
from pesto_cli.data.result import Progress, RewardPoint
from pesto_cli.strategies import Strategy
from pesto_cli.strategies.context import learns

# An iteration without a better placement is kept after so many times the placements of the last
# one that was kept.
KEPT_APART = 1.05


@dataclass(frozen=True)
class Start:
    """A strategy with the weights that it has learned; see `Learning`."""

    strategy: Strategy
    trained_s: float = 0.0
    num_trained: int = 0


@contextmanager
def trained_on(problems: Iterable[Problem], strategy: Strategy, limits: Limits) -> Iterator[Start]:
    """Train a policy on problems, which take turns, and yield it with its weights.

    Without problems, nothing is trained.

    limits: for each problem.
    """
    problems = list(problems)
    if not problems:
        yield Start(strategy)
        return
    from pesto_cli.learned.policy import Policy
    from pesto_cli.learned.pretraining import pretrained
    from pesto_cli.learned.weights import write_weights

    if not isinstance(strategy, Policy):
        raise TypeError(f"{strategy} does not learn")
    began_s = time.perf_counter()
    trained = pretrained(strategy, problems, limits)
    trained_s = time.perf_counter() - began_s
    with TemporaryDirectory() as folder:
        path = Path(folder) / "weights.npz"
        write_weights(path, trained)
        learned = replace(strategy, weights=str(path))
        yield Start(learned, trained_s, trained.state.num_placements)


class Watch:
    """Records how a policy learns; the clock starts when it is made."""

    def __init__(self) -> None:
        self._began_s = time.perf_counter()
        self._first: tuple[float, Progress] | None = None
        self._curve: list[tuple[float, RewardPoint]] = []

    def progress(self, progress: Progress) -> None:
        """Keep the first placement."""
        if self._first is None:
            self._first = time.perf_counter() - self._began_s, progress

    def reward(self, point: RewardPoint) -> None:
        """Keep an iteration."""
        self._curve.append((time.perf_counter() - self._began_s, point))

    def learning(self, start: Start) -> Learning | None:
        """Return how the policy learned; None if the strategy is no policy."""
        if self._first is None or not learns(start.strategy):
            return None
        first_s, first = self._first
        curve = [
            CurvePoint(
                seconds=seconds,
                num_placements=point.num_placements - start.num_trained,
                mean_us=point.mean_us,
                best_us=point.best_us,
            )
            for seconds, point in self._curve
        ]
        return Learning(
            trained_s=start.trained_s,
            num_trained=start.num_trained,
            first_us=first.makespan_us,
            first_fits=not first.shortfall_bytes,
            first_s=first_s,
            curve=list(thinned(curve)),
        )


def thinned(curve: Iterable[CurvePoint]) -> Iterator[CurvePoint]:
    """Yield the points with a better placement, and of the others ever fewer; the last one too."""
    last = kept = None
    for point in curve:
        last = point
        if (
            kept is None
            or point.best_us < kept.best_us
            or (point.num_placements >= KEPT_APART * kept.num_placements)
        ):
            kept = point
            yield point
    if last is not None and last is not kept:
        yield last
