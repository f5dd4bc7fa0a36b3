"""The ways in which HeteroG replicates ops: parts of a batch, and what happens to gradients.

Source: Yi et al., CoNEXT '20, Section 4.1.2. The decisions are those of `ev-ps`, `ev-ar`, `cp-ps`
and `cp-ar`, so a step in which all groups take one way is a step of these strategies.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np

from pesto_cli.data.columns import IntArray
from pesto_cli.data.parts import Parts
from pesto_cli.data.plan import WHOLE_OPS, Plan
from pesto_cli.data.problem import Problem
from pesto_cli.data.specs import OpSpec
from pesto_cli.errors import BadInputError, UnfitError
from pesto_cli.learned.graph_attention import NUM_WAYS
from pesto_cli.sharding.alternative import aligned_shares
from pesto_cli.sharding.decisions import Decision, decisions
from pesto_cli.sharding.problems import Rewritten, prices_of, rewritten
from pesto_cli.sharding.times import check_priced
from pesto_cli.sharding.variables import choices_of
from pesto_cli.strategies.data_parallel import (
    VariableLayout,
    batch_plan,
    decisions_on_variables,
    hosts_of,
    input_extents,
)
from pesto_cli.strategies.devices import accelerators, differ
from pesto_cli.strategies.meshes import devices_of_equal_parts, weights_of_parts
from pesto_cli.strategies.plan_mapping import fitting
from pesto_cli.strategies.replicated_updates import with_replicated_updates

# Split problems that are kept, because a policy that has learned often samples the same plan.
NUM_KEPT = 8

# The ways with copies of variables: the second and the fourth.
ALL_REDUCE = frozenset({1, 3})

Ways = Sequence[Mapping[int, Decision]]


@dataclass(frozen=True, eq=False)
class Replication:
    """The decisions for the ops of a problem.

    devices: those of the parts. specs: `[num_ops]`. chosen: the decisions of the user, by op.
    ways: for `ev-ps`, `ev-ar`, `cp-ps` and `cp-ar` the decision for each op that is split; empty if
        no op can be split so, or if the profile does not price the parts.
    notes: why ways are empty.
    """

    problem: Problem
    devices: Sequence[int]
    specs: Sequence[OpSpec | None]
    chosen: Mapping[int, Decision]
    ways: Ways
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, problem: Problem) -> "Replication":
        """Return the decisions that split most work along the batch."""
        devices = accelerators(problem)
        specs: Sequence[OpSpec | None] = ()
        chosen = dict[int, Decision]()
        try:
            parts, devices = prices_of(problem), devices_of_equal_parts(problem)
            specs = parts.op_specs
            chosen = decisions(problem.chosen, problem.graph, specs)
            ways, notes = _priced(parts, _ways(problem, devices, specs, chosen))
        except UnfitError as error:
            ways, notes = ({},) * NUM_WAYS, (f"no group is replicated: {error}",)
        return cls(problem, devices, specs, chosen, ways, notes)

    def split(self, way: IntArray) -> Rewritten:
        """Return the problem, split by the way of each op, `[num_ops]`; -1: the op is whole.

        An op that takes open sums stays whole if the ops that compute them do.
        """
        return self._kept(way.astype(np.int8).tobytes())

    @cached_property
    def _kept(self) -> Callable[[bytes], Rewritten]:
        return lru_cache(NUM_KEPT)(self._split)

    def _split(self, way: bytes) -> Rewritten:
        decided = {
            op: self.ways[number][op]
            for op, number in enumerate(np.frombuffer(way, dtype=np.int8).tolist())
            if number >= 0 and op in self.ways[number]
        }
        decided = dict(fitting(self.problem.graph, self.specs, {**decided, **self.chosen}))
        if not decided:
            return _whole(self.problem)
        reduces = not ALL_REDUCE.isdisjoint(way)
        plan = Plan(choices_of(self.problem.graph, decided), self._hosts if reduces else ())
        return rewritten(self.problem, plan)

    @cached_property
    def _hosts(self) -> tuple[int, ...]:
        """The host of each part, if sums can be added on each host first."""
        hosts = hosts_of(self.problem, self.devices)
        return hosts if 1 < len(set(hosts)) < len(hosts) else ()


def _ways(
    problem: Problem,
    devices: Sequence[int],
    specs: Sequence[OpSpec | None],
    chosen: Mapping[int, Decision],
) -> Ways:
    graph = problem.graph
    even = decisions(batch_plan(problem, devices), graph, specs)
    copies = decisions_on_variables(graph, specs, VariableLayout.MIRRORED, len(devices), chosen)
    mirrored = with_replicated_updates({**even, **copies}, graph, specs, len(devices))

    def proportional(way: Mapping[int, Decision]) -> Mapping[int, Decision]:
        if not differ(problem, devices):
            return way
        split = {op: each for op, each in way.items() if op not in chosen}
        return {**way, **_proportional(problem, split, devices)}

    return even, mirrored, proportional(even), proportional(mirrored)


def _priced(parts: Parts, ways: Ways) -> tuple[Ways, tuple[str, ...]]:
    """Return the ways; those with a part that has no price are empty, and notes say why."""
    priced, notes = list(ways), dict[str, None]()
    for number, way in enumerate(ways):
        try:
            for decision, op in {decision: op for op, decision in way.items()}.items():
                check_priced(parts, op, decision)
        except BadInputError as error:
            priced[number] = {}
            notes[f"a way to replicate is left out: {error}"] = None
    return priced, tuple(notes)


def _proportional(
    problem: Problem, even: Mapping[int, Decision], devices: Sequence[int]
) -> dict[int, Decision]:
    """Return the decisions for parts of the batch in proportion to the speeds of devices."""
    equal, weights = [1.0] * len(devices), weights_of_parts(problem, devices)

    def is_share_of(batch: int, decision: Decision) -> bool:
        size = decision.alternative.size
        return size is not None and decision.sizes == aligned_shares(size, equal, (batch,))

    num_ops = Counter(even.values())

    def num_shares_of(batch: int) -> int:
        return sum(count for each, count in num_ops.items() if is_share_of(batch, each))

    batch = max(input_extents(problem, len(devices)), key=num_shares_of)
    shares = {
        each: replace(each, sizes=aligned_shares(each.alternative.size or 0, weights, (batch,)))
        for each in num_ops
        if is_share_of(batch, each)
    }
    found = {op: shares[each] for op, each in even.items() if each in shares}
    return {op: each for op, each in found.items() if min(each.sizes) > 0}


def _whole(problem: Problem) -> Rewritten:
    """Return a problem of which no op is split."""
    none = np.full(problem.num_ops, -1, dtype=np.int64)
    itself = np.arange(problem.num_ops)
    is_priced = np.zeros(problem.num_ops, dtype=np.bool_)
    return Rewritten(problem, WHOLE_OPS, itself, none, none, none, itself, is_priced)
