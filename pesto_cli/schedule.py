"""Placements, schedules, and the independent check of a schedule against its problem."""

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from pesto_cli.graph import FloatArray, IntArray
from pesto_cli.problem import Problem


@dataclass(frozen=True, eq=False)
class Placement:
    """A device for every op, and its place in that device's execution order.

    device: `[num_ops]`, device index.
    rank: `[num_ops]`, counts from 0 on each device.
    """

    device: IntArray
    rank: IntArray


@dataclass(frozen=True, eq=False)
class Transfers:
    """Every transfer of a schedule, as columns of length `num_transfers`.

    tensor: tensor index. dst: device index; the source is the device of the producer.
    start_us, end_us: when the transfer holds its link.
    """

    tensor: IntArray
    dst: IntArray
    start_us: FloatArray
    end_us: FloatArray

    def __len__(self) -> int:
        return len(self.tensor)


@dataclass(frozen=True, eq=False)
class Schedule:
    """Where and when every op and every transfer runs.

    device, rank: as in `Placement`. start_us, end_us: `[num_ops]`.
    peak_bytes: `[num_devices]`, largest sum of what is held at one time.
    """

    device: IntArray
    rank: IntArray
    start_us: FloatArray
    end_us: FloatArray
    transfers: Transfers
    peak_bytes: IntArray

    @property
    def makespan_us(self) -> float:
        """End of the last op: the predicted step time."""
        return float(self.end_us.max(initial=0.0))

    @property
    def placement(self) -> Placement:
        """What of the schedule can be enforced."""
        return Placement(self.device, self.rank)


def shortfall_bytes(problem: Problem, schedule: Schedule) -> IntArray:
    """`[num_devices]`: by how much the peak exceeds the memory that may be used, at least 0."""
    missing = np.ceil(schedule.peak_bytes - problem.capacity_bytes)
    return np.maximum(missing, 0).astype(np.int64)


def sent_bytes(problem: Problem, schedule: Schedule) -> IntArray:
    """`[num_devices, num_devices]`: what the transfers of a step carry, from row to column."""
    graph, transfers = problem.graph, schedule.transfers
    sent = np.zeros((problem.num_devices, problem.num_devices), dtype=np.int64)
    src = schedule.device[graph.tensor_producer[transfers.tensor]]
    np.add.at(sent, (src, transfers.dst), graph.tensor_bytes[transfers.tensor])
    return sent


def transfer_channels(problem: Problem, schedule: Schedule) -> IntArray:
    """`[num_transfers]`: the channel that each transfer queues for."""
    transfers = schedule.transfers
    src = schedule.device[problem.graph.tensor_producer[transfers.tensor]]
    channels: IntArray = problem.machine.channel[src, transfers.dst]
    return channels


def goodness(problem: Problem, schedule: Schedule) -> tuple[int, float]:
    """Sort key, the lower the better: first what fits into memory, then the makespan."""
    return int(shortfall_bytes(problem, schedule).sum()), schedule.makespan_us


@dataclass(frozen=True)
class Violation:
    """A rule of the execution model that a schedule breaks, and where."""

    rule: str
    message: str


# Sums of doubles in another order differ by rounding.
TOLERANCE_US = 1e-6


def violations(problem: Problem, schedule: Schedule) -> list[Violation]:
    """Everything that is wrong with a schedule; empty if nothing is.

    Written for clarity from the execution model alone, and shares no code with the simulator.
    Rules: affinity, colocation, duration, order, overlap, precedence, transfer, peak, memory.
    """
    devices = _Devices(problem, schedule)
    found = [
        *_affinity(problem, schedule),
        *_colocation(problem, schedule),
        *_duration(problem, schedule, devices),
        *_order(problem, schedule, devices),
        *_device_overlap(problem, schedule, devices),
        *_transfer(problem, schedule, devices),
        *_link_overlap(problem, schedule),
        *_precedence(problem, schedule, devices),
        *_memory(problem, schedule),
    ]
    return [Violation(rule, message) for rule, message in found]


Finding = tuple[str, str]


def _later(first_us: float, second_us: float) -> bool:
    return first_us > second_us + TOLERANCE_US * max(1.0, abs(second_us))


def _name(problem: Problem, op: int) -> str:
    return repr(problem.graph.names[op])


def _affinity(problem: Problem, schedule: Schedule) -> list[Finding]:
    found = []
    for op, device in enumerate(schedule.device.tolist()):
        if not 0 <= device < problem.num_devices or not problem.allowed[op, device]:
            found.append(("affinity", f"op {_name(problem, op)} may not run on device {device}"))
    return found


def _colocation(problem: Problem, schedule: Schedule) -> list[Finding]:
    devices = defaultdict(set)
    for group, device in zip(problem.graph.colocation_group, schedule.device, strict=True):
        devices[int(group)].add(int(device))
    return [
        ("colocation", f"group {group} is spread over devices {sorted(used)}")
        for group, used in devices.items()
        if len(used) > 1
    ]


def _duration(problem: Problem, schedule: Schedule, devices: "_Devices") -> list[Finding]:
    found = []
    lost = _lost_us(problem, schedule, devices)
    for op, device in enumerate(schedule.device):
        start, end = schedule.start_us[op], schedule.end_us[op]
        least, most = (float(problem.duration_us[op, device] + us[op]) for us in lost)
        if start < 0:
            found.append(("duration", f"op {_name(problem, op)} starts at {start} us"))
        slack = TOLERANCE_US * max(1.0, abs(end))
        if not least - slack <= end - start <= most + slack:
            expected = f"{least}" if least == most else f"{least} to {most}"
            found.append(
                ("duration", f"op {_name(problem, op)} takes {end - start} us, not {expected}")
            )
    return found


def _lost_us(
    problem: Problem, schedule: Schedule, devices: "_Devices"
) -> tuple[FloatArray, FloatArray]:
    """What each op loses to transfers, `[num_ops]` at least and at most.

    To one that queues at t loses the op of the sender with start <= t < end; to one that arrives at
    t the op of the receiver with start < t < end. Where transfers may take no time, one arrives
    within the rounds of an instant, before or after an op starts there.
    """
    least, most = np.zeros(problem.num_ops), np.zeros(problem.num_ops)
    machine, transfers = problem.machine, schedule.transfers
    if not machine.lost_us.any():
        return least, most
    for row, (tensor, dst) in enumerate(
        zip(transfers.tensor.tolist(), transfers.dst.tolist(), strict=True)
    ):
        producer = int(problem.graph.tensor_producer[tensor])
        src, size = int(schedule.device[producer]), int(problem.graph.tensor_bytes[tensor])
        made_us, sent_us = float(schedule.end_us[producer]), float(transfers.start_us[row])
        # Where ends keep tensors waiting, the times do not tell when one queued.
        queued_us = (made_us, sent_us) if machine.wait_us[src, dst] > 0 else (made_us, made_us)
        arrived_us = float(transfers.end_us[row])
        for is_receiver, here, (from_us, to_us) in (
            (False, src, queued_us),
            (True, dst, (arrived_us, arrived_us)),
        ):
            constant, per_byte = machine.lost_us[int(is_receiver), :, src, dst]
            lost_us = constant + per_byte * size
            for op in devices.running(here, from_us, to_us):
                is_tied = schedule.start_us[op] == to_us
                if not is_tied or devices.have_rounds or not is_receiver:
                    most[op] += lost_us
                is_sure = from_us == to_us or schedule.start_us[op] <= from_us
                is_sure &= to_us < schedule.end_us[op]
                if is_sure and (not is_tied or not (devices.have_rounds or is_receiver)):
                    least[op] += lost_us
    return least, most


class _Devices:
    """When devices run what.

    rows: device -> its ops by rank.
    have_rounds: transfers may take no time, and several things happen one after the other in an
        instant.
    """

    def __init__(self, problem: Problem, schedule: Schedule) -> None:
        self._schedule, machine = schedule, problem.machine
        joined = machine.channel >= 0
        least_us = np.maximum(machine.min_us, machine.latency_us)[joined]
        self.have_rounds = bool((least_us == 0).any())
        self.rows = _by_device(problem, schedule)
        self._starts = {
            device: [float(schedule.start_us[op]) for op in ops]
            for device, ops in self.rows.items()
        }

    def running(self, device: int, from_us: float, to_us: float) -> list[int]:
        """The ops that run at some time from the one to the other, both included."""
        starts = self._starts.get(device, [])
        first = max(0, bisect_right(starts, from_us) - 1)
        rows = self.rows.get(device, [])[first : bisect_right(starts, to_us)]
        return [op for op in rows if self._schedule.end_us[op] > from_us]

    def kept_until_us(self, device: int, at_us: float, wait_us: float, *, tied: bool) -> float:
        """Until when at least an end keeps a tensor waiting that it has from some instant on.

        tied: whether it computes if it starts an op at that instant.
        """
        running = self.running(device, at_us, at_us)
        if not running or (self._schedule.start_us[running[-1]] == at_us and not tied):
            return at_us
        return min(at_us + wait_us, float(self._schedule.end_us[running[-1]]))


def _by_device(problem: Problem, schedule: Schedule) -> dict[int, list[int]]:
    rows = defaultdict(list)
    for op in np.lexsort((schedule.rank, schedule.device)).tolist():
        rows[int(schedule.device[op])].append(op)
    return rows


def _order(problem: Problem, schedule: Schedule, devices: "_Devices") -> list[Finding]:
    found = []
    for device, ops in devices.rows.items():
        if [int(schedule.rank[op]) for op in ops] != list(range(len(ops))):
            found.append(("order", f"ranks on device {device} are not 0 to {len(ops) - 1}"))
    return found


def _device_overlap(problem: Problem, schedule: Schedule, devices: "_Devices") -> list[Finding]:
    found = []
    for device, ops in devices.rows.items():
        for before, after in pairwise(ops):
            if _later(schedule.end_us[before], schedule.start_us[after]):
                names = f"{_name(problem, before)} and {_name(problem, after)}"
                found.append(("overlap", f"ops {names} overlap on device {device}"))
    return found


def _needed_transfers(problem: Problem, schedule: Schedule) -> set[tuple[int, int]]:
    """(tensor, destination) of all data that a consumer on another device takes."""
    graph = problem.graph
    needed = set()
    for tensor, consumer, on_host in zip(
        graph.consumer_tensor.tolist(),
        graph.consumers.tolist(),
        graph.consumer_on_host.tolist(),
        strict=True,
    ):
        src = int(schedule.device[graph.tensor_producer[tensor]])
        dst = int(schedule.device[consumer])
        if src != dst and not on_host:
            needed.add((tensor, dst))
    return needed


def _transfer(problem: Problem, schedule: Schedule, devices: "_Devices") -> list[Finding]:
    transfers, machine = schedule.transfers, problem.machine
    made = list(zip(transfers.tensor.tolist(), transfers.dst.tolist(), strict=True))
    found = []
    if len(made) != len(set(made)):
        found.append(("transfer", "a tensor is sent twice to one device"))
    for tensor, dst in sorted(_needed_transfers(problem, schedule) ^ set(made)):
        how = "sent without need" if (tensor, dst) in made else "not sent"
        found.append(("transfer", f"tensor {tensor} is {how} to device {dst}"))
    for row, (tensor, dst) in enumerate(made):
        producer = int(problem.graph.tensor_producer[tensor])
        src = int(schedule.device[producer])
        start, end = transfers.start_us[row], transfers.end_us[row]
        latency, slope = machine.latency_us[src, dst], machine.us_per_byte[src, dst]
        size = int(problem.graph.tensor_bytes[tensor])
        expected = max(machine.min_us[src, dst], latency + slope * size)
        if not abs(end - start - expected) <= TOLERANCE_US * max(1.0, abs(end)):
            found.append(("transfer", f"tensor {tensor} takes {end - start} us, not {expected}"))
        kept_until_us = devices.kept_until_us(
            src,
            float(schedule.end_us[producer]),
            float(machine.wait_us[src, dst]),
            tied=not devices.have_rounds,
        )
        if _later(schedule.end_us[producer], start):
            found.append(("transfer", f"tensor {tensor} is sent before it is produced"))
        elif _later(kept_until_us, start):
            found.append(("transfer", f"tensor {tensor} is sent while its device computes"))
    return found


def _link_overlap(problem: Problem, schedule: Schedule) -> list[Finding]:
    queues = defaultdict(list)
    transfers = schedule.transfers
    for row, (tensor, dst) in enumerate(
        zip(transfers.tensor.tolist(), transfers.dst.tolist(), strict=True)
    ):
        src = int(schedule.device[problem.graph.tensor_producer[tensor]])
        interval = (float(transfers.start_us[row]), float(transfers.end_us[row]), tensor)
        queues[int(problem.machine.channel[src, dst])].append(interval)
    found = []
    for channel, queue in queues.items():
        for (_, end, first), (start, _, second) in pairwise(sorted(queue)):
            if _later(end, start):
                name = problem.machine.channel_names[channel]
                found.append(("overlap", f"tensors {first} and {second} overlap on {name}"))
    return found


def _precedence(problem: Problem, schedule: Schedule, devices: "_Devices") -> list[Finding]:
    graph, transfers = problem.graph, schedule.transfers
    source = schedule.device[graph.tensor_producer]
    there = {
        (tensor, dst): devices.kept_until_us(
            dst, end_us, float(problem.machine.wait_us[source[tensor], dst]), tied=False
        )
        for tensor, dst, end_us in zip(
            transfers.tensor.tolist(),
            transfers.dst.tolist(),
            transfers.end_us.tolist(),
            strict=True,
        )
    }
    waits = []  # (before, after, when the wait is over)
    for before, after in graph.control_edges.tolist():
        across = schedule.device[before] != schedule.device[after]
        signal_us = problem.machine.signal_us if across else 0.0
        waits.append((before, after, schedule.end_us[before] + signal_us))
    for tensor, consumer, on_host in zip(
        graph.consumer_tensor.tolist(),
        graph.consumers.tolist(),
        graph.consumer_on_host.tolist(),
        strict=True,
    ):
        producer = int(graph.tensor_producer[tensor])
        dst = int(schedule.device[consumer])
        over = schedule.end_us[producer]
        if schedule.device[producer] != dst:
            over = over + problem.machine.signal_us if on_host else there.get((tensor, dst), over)
        waits.append((producer, consumer, over))
    return [
        (
            "precedence",
            f"op {_name(problem, after)} starts at {schedule.start_us[after]} us, before what it "
            f"takes from {_name(problem, before)} is there at {over} us",
        )
        for before, after, over in waits
        if _later(over, schedule.start_us[after])
    ]


def _memory(problem: Problem, schedule: Schedule) -> list[Finding]:
    found = []
    peaks = _peak_bytes(problem, schedule)
    for device, (peak, capacity) in enumerate(zip(peaks, problem.capacity_bytes, strict=True)):
        name = problem.machine.devices[device].name
        if peak != schedule.peak_bytes[device]:
            found.append(
                ("peak", f"peak on {name} is {peak} bytes, not {schedule.peak_bytes[device]}")
            )
        if peak > capacity:
            found.append(("memory", f"peak on {name} is {peak} bytes, {int(capacity)} may be used"))
    return found


def _peak_bytes(problem: Problem, schedule: Schedule) -> list[int]:
    """Largest sum over time of what each device holds, from the execution model's words."""
    graph, transfers = problem.graph, schedule.transfers
    device = schedule.device.tolist()
    held: dict[tuple[int, int], list[float]] = {}  # (tensor, device) -> [from, to]
    for tensor, producer in enumerate(graph.tensor_producer.tolist()):
        start, end = float(schedule.start_us[producer]), float(schedule.end_us[producer])
        held[tensor, device[producer]] = [start, end]
    for tensor, dst, start, end in zip(
        transfers.tensor.tolist(),
        transfers.dst.tolist(),
        transfers.start_us.tolist(),
        transfers.end_us.tolist(),
        strict=True,
    ):
        held[tensor, dst] = [start, end]
        home = held[tensor, device[graph.tensor_producer[tensor]]]
        home[1] = max(home[1], end)
    for tensor, consumer in zip(
        graph.consumer_tensor.tolist(), graph.consumers.tolist(), strict=True
    ):
        copy = held.get((tensor, device[consumer]))
        if copy is not None:
            copy[1] = max(copy[1], float(schedule.end_us[consumer]))
    position = np.argsort(graph.topological_order)
    for tensor in sorted(
        range(graph.num_tensors), key=lambda t: -int(position[graph.tensor_producer[t]])
    ):
        source = int(graph.alias_source[tensor])
        here = device[graph.tensor_producer[tensor]]
        root = held.get((source, here))
        if root is not None:
            root[1] = max(root[1], held.pop((tensor, here))[1])
    changes: list[list[tuple[float, int]]] = [[] for _ in range(problem.num_devices)]
    for (tensor, where), (start, end) in held.items():
        producer = int(graph.tensor_producer[tensor])
        is_resident = graph.alias_of[producer] == producer and where == device[producer]
        size = 0 if is_resident else int(graph.tensor_bytes[tensor])
        changes[where] += [(start, size), (end, -size)] if end > start else []
    resident = [0] * problem.num_devices
    for op, size in enumerate(graph.resident_bytes.tolist()):
        resident[device[op]] += size
    peaks = []
    for where, base in enumerate(resident):
        peak = now = base
        for _, change in sorted(changes[where]):  # at one time, frees (negative) come first
            now += change
            peak = max(peak, now)
        peaks.append(peak)
    return peaks
