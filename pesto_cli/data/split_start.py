"""A start of a search that splits ops."""

from dataclasses import dataclass

from pesto_cli.data.plan import Plan
from pesto_cli.data.schedule import Placement


@dataclass(frozen=True, eq=False)
class SplitStart:
    """A plan, and a placement of the ops that it makes.

    plan: the plan, which fits the problem of the search.
    placement: a placement of the ops of the problem after it was split by the plan.
    """

    plan: Plan
    placement: Placement
