"""`intra-op`: an integer program chooses how each op is split over one mesh of all accelerators.

As Alpa (Zheng et al., OSDI '22, Section 4.2) and PyTorch's autoparallel do, it minimises the sum of
the times of ops and of conversions between their layouts; see `layout_program`. Data and tensor
parallelism, sharded optimisers, and mixtures of them are solutions. Departures from Alpa:

- The mesh has one axis.
- An op may also stay whole, on one device. Variables that are not split have one owner, and the
  owners are dealt over the devices.
- Ops that differ only in numbers in their names take the same way.
- A tensor that several ops take in the same layout is converted once, but counted for each of them.
- The parts are scheduled op by op, and transfers are simulated beside computation.
- On several hosts, sums and copies are made flat or once for each host, whichever is faster.

As in Alpa, the program does not limit memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from pesto_cli.data.columns import FloatArray
from pesto_cli.data.limits import Limits
from pesto_cli.data.plan import Plan
from pesto_cli.data.problem import Problem
from pesto_cli.data.solution import Solution
from pesto_cli.errors import OutOfTimeError, UnfitError
from pesto_cli.ilp.pairwise import cheapest_options
from pesto_cli.strategies.context import Context
from pesto_cli.strategies.data_parallel import best_of_sums, propagation_prices
from pesto_cli.strategies.devices import accelerators, islands
from pesto_cli.strategies.layout_program import Exposed, LayoutProgram
from pesto_cli.strategies.meshes import devices_of_equal_parts, weights_of_parts

ALPA = Exposed(data=1.0, variables=1.0)
# Most transfers run beside computation, and those of variables and gradients more than others.
# These shares led to the shortest steps on average (`docs/search.md`).
HIDDEN = Exposed(data=0.25, variables=0.02)
MOSTLY_HIDDEN = replace(HIDDEN, data=0.1)
# For steps of long chains, where nothing runs beside the transfers of data.
DATA_EXPOSED = Exposed(data=1.0, variables=0.02)


@dataclass(frozen=True)
class IntraOp:
    """Choose the layouts of all ops by one integer program.

    exposed: which shares of the times of conversions count. Alpa counts all of them.
    proportional: the sizes of parts are in proportion to the speeds of their devices.
    concurrency: see `LayoutProgram`.
    relays: whether a share of the variables is sent to each island once; see `Plan`.
    """

    name: ClassVar[str] = "intra-op"
    splits: ClassVar[bool] = True
    needs_parts: ClassVar[bool] = True
    exposed: Exposed = ALPA
    proportional: bool = False
    concurrency: float = 1.0
    relays: bool = False

    def __call__(self, problem: Problem, context: Context) -> Solution:
        """Choose, deal the variables, and order by upward rank.

        Raises:
            UnfitError: the profile has no prices of parts, there is only one accelerator, or no op
                is worth splitting.
            OutOfTimeError: the time limit is too short.
        """
        devices = devices_of_equal_parts(problem)
        if len(devices) < 2:
            raise UnfitError(
                "there is one accelerator, so no op can be split over several; two or more were "
                "expected: use another strategy."
            )
        weights = weights_of_parts(problem, devices, proportional=self.proportional)
        plan = layouts_plan(problem, weights, self.exposed, context.limits, self.concurrency)
        if not plan:
            raise UnfitError(
                "the integer program of layouts splits no op, since no part is worth its "
                "conversions; longer ops were expected: use another strategy."
            )
        if self.relays and islands(problem):
            island = dict(zip(accelerators(problem), islands(problem), strict=True))
            plan = replace(plan, islands=tuple(island[device] for device in devices))
        return best_of_sums(problem, plan, devices)


def layouts_plan(
    problem: Problem,
    weights: Sequence[float],
    exposed: Exposed,
    limits: Limits,
    concurrency: float | FloatArray = 1.0,
) -> Plan:
    """Return the plan that the integer program chooses; weights, concurrency: see `LayoutProgram`.

    Raises:
        UnfitError: the profile has no prices of parts.
        OutOfTimeError: the time limit is too short.
    """
    program = LayoutProgram(problem, weights, propagation_prices(problem), exposed, concurrency)
    found = cheapest_options(program.costs(), program.pairs(), limits)
    if not found.options:
        raise OutOfTimeError(
            f"{limits.time_limit_s:g} s were too short for the integer program of layouts; a "
            "longer time limit was expected."
        )
    return program.plan(found.options)
