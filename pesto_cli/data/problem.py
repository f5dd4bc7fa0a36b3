"""Problem: an op graph with its op times and a machine, validated once."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np

from pesto_cli.data.graph import BoolArray, FloatArray, IntArray, OpGraph
from pesto_cli.data.labels import Role
from pesto_cli.data.machine import MAX_TIME_US, MIN_TIME_US, Machine, short_list
from pesto_cli.data.parts import Parts
from pesto_cli.data.plan import WHOLE_OPS, Local, Plan
from pesto_cli.data.totals import check_totals
from pesto_cli.errors import BadInputError, InfeasibleError


@dataclass(frozen=True, eq=False)
class Problem:
    """The input of a strategy: an op graph, op times, a machine and the user's constraints.

    kinds: the device kinds with op times, `[num_kinds]`.
    time_us: `[num_ops, num_kinds]`, time of an op on a device of speed 1; NaN where it cannot run.
    permitted: `[num_ops, num_devices]`, whether the user's constraints allow the op on the device.
    headroom: the share of every device's memory that a placement may use, in (0, 1].
    parts: the prices of parts of ops; None if they are unknown, so that ops stay whole.
    chosen: how some ops are split by the user's constraints; a strategy decides on all others.
    local: what parts of ops may compute in another way than whole ops.
    """

    graph: OpGraph
    kinds: tuple[str, ...]
    time_us: FloatArray
    machine: Machine
    permitted: BoolArray
    headroom: float = 1.0
    parts: Parts | None = None
    chosen: Plan = WHOLE_OPS
    local: frozenset[Local] = frozenset()

    def __post_init__(self) -> None:
        """Check the op times, and that every op and colocation group has a device.

        Raises:
            BadInputError: a time is negative or infinite, a table has the wrong shape, or a total
                over the graph overflows.
            InfeasibleError: no device can run an op, or all members of a group.
        """
        num_ops, num_devices = self.graph.num_ops, self.machine.num_devices
        for name, found, expected in (
            ("time_us", self.time_us.shape, (num_ops, len(self.kinds))),
            ("permitted", self.permitted.shape, (num_ops, num_devices)),
            *(() if self.parts is None else [("parts", self.parts.spec_of.shape, (num_ops,))]),
        ):
            if found != expected:
                raise BadInputError(f"{name} has shape {found}; {expected} was expected.")
        if not 0 < self.headroom <= 1:
            raise BadInputError(
                f"headroom is {self.headroom}; a share of the memory in (0, 1] was expected."
            )
        self._check_times()
        check_totals(self.graph, self.machine, self.duration_us)
        self._check_affinity()

    @classmethod
    def build(
        cls,
        graph: OpGraph,
        time_us: Mapping[str, FloatArray | list[float]],
        machine: Machine,
        parts: Parts | None = None,
    ) -> Self:
        """Build from times in us by device kind; NaN where this kind cannot run the op."""
        kinds = tuple(time_us)
        columns = [np.asarray(time_us[kind], dtype=np.float64) for kind in kinds]
        for kind, column in zip(kinds, columns, strict=True):
            if column.shape != (graph.num_ops,):
                raise BadInputError(
                    f"ops.time_us.{kind} has {column.size} entries, {graph.num_ops} were "
                    "expected: one for each op, null where this kind cannot run it."
                )
        return cls(
            graph=graph,
            kinds=kinds,
            time_us=np.column_stack(columns) if columns else np.zeros((graph.num_ops, 0)),
            machine=machine,
            permitted=np.ones((graph.num_ops, machine.num_devices), dtype=np.bool_),
            parts=parts,
        )

    def __repr__(self) -> str:
        return f"<Problem: {self.num_ops:,} ops on {short_list(self.machine.index_of)}>"

    @property
    def num_ops(self) -> int:
        """Number of ops."""
        return self.graph.num_ops

    @property
    def num_devices(self) -> int:
        """Number of devices."""
        return self.machine.num_devices

    @cached_property
    def is_feed(self) -> BoolArray:
        """`[num_ops]`: whether the op has the role feed: it provides an input of the step."""
        return self.graph.labels.has_role(Role.FEED)

    @cached_property
    def is_fetch(self) -> BoolArray:
        """`[num_ops]`: whether the op has the role fetch: it returns a tensor to the host."""
        return self.graph.labels.has_role(Role.FETCH)

    @cached_property
    def is_hosted(self) -> BoolArray:
        """`[num_ops]`: whether the op is a feed or fetch with a time on the host's kind.

        The host alone runs these ops, and their time there is 0.
        """
        host = self.machine.host
        kind = None if host is None else self.machine.devices[host].kind
        if kind not in self.kinds:
            return np.zeros(self.num_ops, dtype=np.bool_)
        timed = ~np.isnan(self.time_us[:, self.kinds.index(kind)])
        hosted: BoolArray = (self.is_feed | self.is_fetch) & timed
        return hosted

    @cached_property
    def is_given(self) -> BoolArray:
        """`[num_ops]`: whether the op is a hosted feed without predecessors; it runs at time 0."""
        given: BoolArray = self.is_feed & self.is_hosted & (self.graph.predecessors.degree == 0)
        return given

    @cached_property
    def duration_us(self) -> FloatArray:
        """`[num_ops, num_devices]`: time of an op on a device; inf where it cannot run."""
        duration = np.full((self.num_ops, self.num_devices), np.inf)
        for index, device in enumerate(self.machine.devices):
            if device.kind in self.kinds:
                time_us = self.time_us[:, self.kinds.index(device.kind)]
                overhead_us = device.op_overhead_us * self.graph.num_members
                duration[:, index] = time_us / device.speed + overhead_us
        if self.machine.host is not None:
            duration[self.is_hosted] = np.inf
            duration[self.is_hosted, self.machine.host] = 0.0
        return np.where(np.isnan(duration), np.inf, duration)

    @cached_property
    def slow_down(self) -> FloatArray:
        """`[num_ops, num_devices]`: slow-down of an op by each other device of the same host."""
        machine, types = self.machine, self.graph.types
        slow_down = np.zeros((self.num_ops, self.num_devices))
        for index, device in enumerate(machine.devices if machine.has_contention else ()):
            of_type = {each: machine.slow_down(device.kind, each) for each in set(types)}
            slow_down[:, index] = [of_type[each] for each in types]
        slow_down[self.is_hosted] = 0.0
        return slow_down

    @cached_property
    def allowed(self) -> BoolArray:
        """`[num_ops, num_devices]`: whether the op's whole colocation group may use the device."""
        alone = np.isfinite(self.duration_us) & self.permitted
        group = np.ones((self.graph.num_groups, self.num_devices), dtype=np.bool_)
        np.logical_and.at(group, self.graph.colocation_group, alone)
        return group[self.graph.colocation_group]

    @cached_property
    def group_allowed(self) -> BoolArray:
        """`[num_groups, num_devices]`: `allowed` for each colocation group."""
        return self.allowed[self.graph.groups.indices[self.graph.groups.offsets[:-1]]]

    @cached_property
    def group_time_us(self) -> FloatArray:
        """`[num_groups, num_devices]`: time of a colocation group; inf where it may not run."""
        total = np.zeros(self.group_allowed.shape)
        np.add.at(total, self.graph.colocation_group, self.duration_us)
        return np.where(self.group_allowed, total, np.inf)

    @cached_property
    def has_choice(self) -> BoolArray:
        """`[num_groups]`: whether several devices are allowed for a colocation group."""
        several: BoolArray = self.group_allowed.sum(axis=1) > 1
        return several

    @cached_property
    def min_duration_us(self) -> FloatArray:
        """`[num_ops]`: time of an op on the fastest device that is allowed for it."""
        fastest: FloatArray = np.where(self.allowed, self.duration_us, np.inf).min(axis=1)
        return fastest

    @cached_property
    def capacity_bytes(self) -> FloatArray:
        """`[num_devices]`: bytes of memory that a placement may use."""
        memory = [device.memory_bytes for device in self.machine.devices]
        return np.array(memory, dtype=np.float64) * self.headroom

    def transfer_table_us(self, src: int, dst: int) -> FloatArray:
        """Return each tensor's transfer time between two different devices, `[num_tensors]`."""
        return self.machine.transfer_us(self.graph.tensor_bytes, src, dst)

    def limited(self, max_parts: int) -> Self:
        """Return the problem with prices of at most `max_parts` parts; 1 keeps all ops whole."""
        parts = None if self.parts is None else self.parts.limited(max_parts)
        return replace(self, parts=parts)

    def with_whole_variables(self) -> Self:
        """Return the problem without prices for parts of variables; so variables stay whole."""
        parts = self.parts
        if parts is None:
            return self
        specs = parts.op_specs
        variables = [
            op
            for op, spec in enumerate(specs)
            if spec is not None and any(operand.is_handle for operand in spec.outputs)
        ]
        return replace(self, parts=parts.without(variables))

    def constrained(
        self,
        *,
        permitted: BoolArray | None = None,
        colocation_group: IntArray | None = None,
        headroom: float | None = None,
    ) -> Self:
        """Return the same problem with more constraints; an argument of None changes nothing.

        `permitted` is intersected with the present `permitted`; the other arguments replace the
        present values.
        """
        graph = self.graph
        if colocation_group is not None:
            graph = replace(graph, colocation_group=colocation_group)
        return replace(
            self,
            graph=graph,
            permitted=self.permitted if permitted is None else self.permitted & permitted,
            headroom=self.headroom if headroom is None else headroom,
        )

    def _check_times(self) -> None:
        most_us = MAX_TIME_US * np.maximum(self.graph.num_members, 1)[:, None]
        out_of_range = (self.time_us < 0) | (self.time_us > most_us)
        too_short = (self.time_us > 0) & (self.time_us < MIN_TIME_US)
        for bad, expected in (
            (out_of_range, f"a number from 0 to {MAX_TIME_US:g}, or null,"),
            (too_short, f"0, or a time of at least {MIN_TIME_US:g},"),
        ):
            if bad.any():
                op, kind = np.argwhere(bad)[0]
                raise BadInputError(
                    f"op {self.graph.names[op]!r} has time_us {self.time_us[op, kind]:g} on "
                    f"{self.kinds[kind]}; {expected} was expected."
                )

    def _check_affinity(self) -> None:
        alone = np.isfinite(self.duration_us) & self.permitted
        if not alone.any(axis=1).all():
            op = int(np.argmin(alone.any(axis=1)))
            raise InfeasibleError(
                f"op {self.graph.names[op]!r} ({self.graph.types[op] or 'no type'}) can run on no "
                f"device: {self._where(op)}; add a device of a kind that can run it, or its time "
                "on one, or relax the constraints."
            )
        together = self.allowed.any(axis=1)
        if not together.all():
            members = self.graph.groups[int(self.graph.colocation_group[np.argmin(together)])]
            # For the message, one op for each distinct set of devices is enough.
            op_by_devices: dict[bytes, int] = {}
            for op in members:
                op_by_devices.setdefault(alone[op].tobytes(), op)
            conflict = "; ".join(
                f"{self.graph.names[op]!r}: {self._where(op)}" for op in op_by_devices.values()
            )
            raise InfeasibleError(
                f"a colocation group of {len(members)} ops has no device that can run all of them: "
                f"{conflict}; a common device was expected: relax the constraints, or give "
                "the ops a time on a common kind."
            )

    def _where(self, op: int) -> str:
        able = np.isfinite(self.duration_us[op])
        names = [device.name for device in self.machine.devices]
        can = [name for name, flag in zip(names, able, strict=True) if flag]
        may = [name for name, flag in zip(names, able & self.permitted[op], strict=True) if flag]
        if not can:
            timed = [
                kind
                for kind, time_us in zip(self.kinds, self.time_us[op], strict=True)
                if not np.isnan(time_us)
            ]
            known = ", ".join(timed) or "no kind"
            return f"it has a time on {known}, the machine has {', '.join(names)}"
        if not may:
            return f"it can run on {', '.join(can)}, the constraints forbid these"
        return f"may run on {', '.join(may)}"
