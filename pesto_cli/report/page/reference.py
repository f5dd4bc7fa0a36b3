"""The step with whole ops that a page compares a step with split ops with."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from pesto_cli.data.load import Load
from pesto_cli.data.result import Result
from pesto_cli.report.page.shown import Shown
from pesto_cli.report.splits import WHOLE


@dataclass(frozen=True, eq=False)
class Reference:
    """A step with whole ops.

    name: its name in tables. text: which step it is. load: its load. result: the result on the
    page, or None if the step is stored with the placement.
    """

    name: str
    text: str
    load: Load
    result: Result | None = None

    @classmethod
    def of(cls, shown: Shown, named: Iterable[tuple[str, Result]]) -> Self | None:
        """Return the reference of a placement; None if the placement has no split ops.

        It is the step that is stored with the placement, else the best step with whole ops on the
        page. A step that does not fit into memory is the best only if no other fits better.

        named: the results on the page, with their names.
        """
        if not shown.result.solution.plan:
            return None
        if shown.whole is not None:
            return cls(WHOLE, "the best step with whole ops that the search found", shown.whole)
        whole = [each for each in named if not each[1].solution.is_rewritten]
        name, best = min(whole, key=lambda each: each[1].solution.objective)
        label = name if name == best.strategy else f"{name} ({best.strategy})"
        text = f"{label}, the best step with whole ops on this page"
        return cls(f"{WHOLE} by {label}", text, Load.of(best.problem, best.schedule), best)
