"""Earliest task first as `baechi/earliest.py` describes it, in a plain and slow implementation.

Each step tests all ready nodes on all devices. It shares no code with the kernels.
"""

import numpy as np

from pesto_cli.data.problem import Problem
from pesto_cli.strategies.baechi.memory import needs, plan_bytes
from pesto_cli.strategies.baechi.placement_graph import PlacementGraph
from pesto_cli.strategies.baechi.settings import Settings

INF = float("inf")


class Earliest:
    """A schedule while it is built; `run` completes it."""

    def __init__(
        self, problem: Problem, placed: PlacementGraph, settings: Settings, favourite: list[int]
    ) -> None:
        self.placed, self.settings, self.favourite = placed, settings, favourite
        self.machine, self.need = problem.machine, needs(problem, placed)
        self.nodes, self.devices = range(placed.num_nodes), range(problem.num_devices)
        self.reserve = self.need.group_variables + self.need.group_outputs
        self.device = [-1] * placed.num_nodes
        self.start, self.end = ([0.0] * placed.num_nodes for _ in range(2))
        self.room = plan_bytes(problem, settings.memory_fraction).tolist()
        self.busy, self.free = ([0.0] * problem.num_devices for _ in range(2))
        self.running: list[int | None] = [None] * problem.num_devices
        self.last: list[int | None] = [None] * problem.num_devices
        self.group_device: dict[int, int] = {}
        self.credit = [0.0] * placed.num_groups
        self.received: dict[tuple[int, int], float] = {}
        self.ended: set[int] = set()
        self.arrival: dict[int, list[float]] = {}
        self.waits_for_links: dict[int, bool] = {}
        self.now, self.num_forced = 0.0, 0

    def run(self) -> None:
        while -1 in self.device:
            self.end_ops()
            choices = [self.choice(here) for here in self.devices if self.running[here] is None]
            found = [choice for choice in choices if choice[0] is not None]
            if found:
                node, _, where = min(
                    found, key=lambda c: (c[0], self.placed.duration_us[c[0], c[2]], c[2])
                )
                self.schedule(node, where)
                continue
            ends = [self.end[node] for node in self.running if node is not None]
            later = min([*ends, *(at for _, at, _ in choices)])
            if later < INF:
                self.now = later
            else:
                self.num_forced += 1
                node = min(self.arrival)
                self.schedule(node, self.roomiest(node))

    def end_ops(self) -> None:
        for here in self.devices:
            node = self.running[here]
            if node is not None and self.end[node] <= self.now:
                self.running[here] = None
                self.ended.add(node)
        for node in self.nodes:
            if self.device[node] < 0 and node not in self.arrival:
                rows = self.inputs(node)
                if all(source in self.ended for source, _, _ in rows):
                    self.estimate_arrivals(node)

    def inputs(self, node: int) -> list[tuple[int, int, bool]]:
        """Return (source, tensor, whether it crosses as a signal) of each input."""
        graph = self.placed
        rows = slice(*graph.input_offsets[node : node + 2])
        by_link = self.settings.signals_cost_transfers
        return [
            (source, tensor, is_signal and not by_link)
            for source, tensor, is_signal in zip(
                graph.input_source[rows].tolist(),
                graph.input_tensor[rows].tolist(),
                graph.input_is_signal[rows].tolist(),
                strict=True,
            )
        ]

    def takes_us(self, src: int, dst: int, tensor: int) -> float:
        machine, factor = self.machine, self.settings.comm_factor
        linear = machine.latency_us[src, dst] * factor
        linear += machine.us_per_byte[src, dst] * factor * self.placed.tensor_bytes[tensor]
        return float(max(machine.min_us[src, dst] * factor, linear))

    def estimate_arrivals(self, node: int) -> None:
        """Estimate the arrival at each device; tensors of one source count as one transfer."""
        self.arrival[node], self.waits_for_links[node] = [], False
        for here in self.devices:
            arrival, to_send = 0.0, {}
            for source, tensor, is_signal in self.inputs(node):
                there = self.device[source]
                if there == here:
                    arrival = max(arrival, self.end[source])
                elif is_signal:
                    arrival = max(arrival, self.end[source] + float(self.machine.signal_us))
                elif (tensor, here) in self.received:
                    arrival = max(arrival, self.received[tensor, here])
                else:
                    takes_us = self.takes_us(there, here, tensor)
                    to_send[source] = to_send.get(source, 0.0) + takes_us
            for source, takes_us in to_send.items():
                if takes_us > 0.0:
                    idle = max(self.end[source], self.busy[self.device[source]], self.busy[here])
                    arrival = max(arrival, idle + takes_us)
                    self.waits_for_links[node] = True
            self.arrival[node].append(arrival)

    def may_go(self, node: int, here: int) -> bool:
        own = int(self.placed.group[node])
        pinned = self.group_device.get(own)
        if pinned is None:
            reserves = self.settings.reserve_memory
            claim = self.reserve[own] if reserves else self.need.group_variables[own]
            if not self.placed.group_allowed[own, here] or claim > self.room[here]:
                return False
            if reserves:
                return True
        elif pinned != here:
            return False
        taken = self.need.variables[node] + self.need.outputs[node]
        return bool(taken <= self.room[here] + self.credit[own])

    def start_us(self, node: int, here: int) -> float:
        if not self.may_go(node, here):
            return INF
        return max(self.arrival[node][here], self.free[here], self.now)

    def choice(self, here: int) -> tuple[int | None, float, int]:
        """Return (node, time, device): the node that a free device starts now, or the next time."""
        starts = {node: self.start_us(node, here) for node in self.arrival}
        awaited = self.awaited(here)
        if awaited is None:
            node = min(starts, key=lambda node: (starts[node], node), default=None)
        else:
            latest = {
                node: max(at for at in (self.start_us(node, d) for d in self.devices) if at < INF)
                for node, start in starts.items()
                if start < INF
            }
            node = min(latest, key=lambda node: (latest[node], node))
            if latest[node] > self.now and starts[awaited] <= self.now:
                return awaited, self.now, here
            starts = (
                {node: min(latest[node], starts[awaited])} if latest[node] > self.now else starts
            )
        if node is None:
            return None, INF, here
        return (node if starts[node] <= self.now else None), starts[node], here

    def awaited(self, here: int) -> int | None:
        last = self.last[here]
        child = -1 if last is None else self.favourite[last]
        if child not in self.arrival or int(self.placed.group[child]) in self.group_device:
            return None
        starts = [self.start_us(child, device) for device in self.devices]
        return child if starts[here] < INF and starts[here] == min(starts) else None

    def roomiest(self, node: int) -> int:
        own = int(self.placed.group[node])
        able = [here for here in self.devices if self.placed.group_allowed[own, here]]
        return self.group_device.get(own, max(able, key=lambda here: (self.room[here], -here)))

    def schedule(self, node: int, here: int) -> None:
        own = int(self.placed.group[node])
        if own not in self.group_device:
            self.group_device[own] = here
            if self.settings.reserve_memory:
                self.credit[own] = self.reserve[own]
                self.room[here] -= self.reserve[own]
        there_us, has_sent = self.send(node, here)
        self.device[node] = here
        self.start[node] = max(there_us, self.free[here], self.now)
        self.end[node] = self.start[node] + float(self.placed.duration_us[node, here])
        self.free[here] = self.end[node]
        self.running[here] = self.last[here] = node
        self.hold(node)
        del self.arrival[node]
        if has_sent:
            for ready in self.arrival:
                if self.waits_for_links[ready]:
                    self.estimate_arrivals(ready)

    def send(self, node: int, here: int) -> tuple[float, bool]:
        arrival, has_sent = 0.0, False
        for source, tensor, is_signal in self.inputs(node):
            there = self.device[source]
            if there == here:
                arrival = max(arrival, self.end[source])
            elif is_signal:
                arrival = max(arrival, self.end[source] + float(self.machine.signal_us))
            else:
                if (tensor, here) not in self.received:
                    takes_us = self.takes_us(there, here, tensor)
                    begin = max(self.end[source], self.busy[there])
                    self.busy[there] = begin + takes_us
                    self.busy[here] = max(begin, self.busy[here]) + takes_us
                    self.received[tensor, here] = self.busy[here]
                    has_sent = True
                arrival = max(arrival, self.received[tensor, here])
        return arrival, has_sent

    def hold(self, node: int) -> None:
        group, need = self.placed.group, self.need
        own, here = int(group[node]), self.device[node]
        taken = need.variables[node] + need.outputs[node]
        from_credit = max(0.0, min(taken, self.credit[own]))
        self.credit[own] -= from_credit
        self.room[here] -= taken - from_credit
        for used in dict.fromkeys(source for source, _, _ in self.inputs(node)):
            if all(self.device[child] >= 0 for child in self.placed.successors[used]):
                of = int(group[used])
                goes_on = any(self.device[n] < 0 for n in np.flatnonzero(group == of))
                # The node that is being scheduled still counts.
                goes_on |= of == own
                back = 0.0
                if self.settings.reserve_memory and goes_on:
                    back = min(need.outputs[used], self.reserve[of] - self.credit[of])
                self.credit[of] += back
                self.room[self.device[used]] += need.outputs[used] - back
        if all(self.device[n] >= 0 for n in np.flatnonzero(group == own)):
            self.room[here] += self.credit[own]
            self.credit[own] = 0.0
