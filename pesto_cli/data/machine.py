"""Machine: devices and the links between them."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TypeVar

import numpy as np

from pesto_cli.data.graph import FloatArray, IntArray
from pesto_cli.errors import BadInputError

# Names shown in one line.
MOST_NAMES = 8
# For one op or transfer: eleven days. Sums of longer times are not exact to a nanosecond.
MAX_TIME_US = 1e12
# The shortest time of an op, other than 0. Solvers divide by times, and shorter ones overflow.
MIN_TIME_US = 1e-30
MAX_SPEED = 1e9
MAX_MEMORY_BYTES = 2**60
MAX_SLOW_DOWN = 1e3

Time = TypeVar("Time", float, FloatArray)


@dataclass(frozen=True)
class CommModel:
    """A transfer takes `max(min_us, latency_us + us_per_byte * bytes)` (Pesto, Section 3.1).

    Overhead: the op that runs on the sender while the transfer is on its link ends later by
    `sender_us + sender_us_per_byte * bytes`, and the op that runs on the receiver by `receiver_us +
    receiver_us_per_byte * bytes`. Both are 0 for GPUs, whose copy engines do the work; a CPU
    serialises and copies on the cores that compute. A signal has the overhead of 0 bytes.

    wait_us: longest delay of a tensor or signal by an endpoint that computes: at the sender before
        it queues, and again at the receiver after it has arrived. The delay ends when the endpoint
        is idle.
        Measured as an average, because a CPU handles a transfer between ops or within them; 0 for
        copy engines.
    """

    latency_us: float
    us_per_byte: float
    min_us: float = 0.0
    sender_us: float = 0.0
    sender_us_per_byte: float = 0.0
    receiver_us: float = 0.0
    receiver_us_per_byte: float = 0.0
    wait_us: float = 0.0


@dataclass(frozen=True)
class Device:
    """An executor of ops: an op takes `time_us / speed + op_overhead_us` on it.

    host: devices with the same host share its caches, its memory and its power.
    """

    name: str
    kind: str
    memory_bytes: int
    speed: float = 1.0
    op_overhead_us: float = 0.0
    host: str = ""

    @property
    def task(self) -> str:
        """The task whose device it is: `worker:0` for `worker:0/CPU:0`, and "" for `GPU:0`."""
        return self.name.rpartition("/")[0]


@dataclass(frozen=True)
class Link:
    """A one-way connection from `src` to `dst`; links of the same channel share one queue."""

    src: str
    dst: str
    comm: CommModel
    channel: str = ""


@dataclass(frozen=True)
class Efficiency:
    """The speed of the kernels of an op type, relative to the peak rates of their device.

    arithmetic: rate of operations, divided by its peak; above 1 if the device has units for them
        that its description does not count, such as tensor cores.
    memory: rate of bytes read and written, divided by its peak; far below 1 if kernels move more
        bytes than TensorFlow's cost model counts.
    start_us: time of each kernel in addition, in us: a small kernel does not fill its device, and
        even a large one fills and drains it.
    """

    arithmetic: float = 1.0
    memory: float = 1.0
    start_us: float = 0.0

    def estimate_us(self, arithmetic_us: Time, memory_us: Time) -> Time:
        """Return the estimate of a kernel from its terms at the peak rates, in us."""
        return arithmetic_us / self.arithmetic + memory_us / self.memory + self.start_us


@dataclass(frozen=True)
class DeviceKind:
    """The data of a device kind that the analytic cost source uses.

    type: TensorFlow's device type; kernels are registered by it.
    launch_us: least time of an op that launches a kernel.
    no_launch_us: time of an op that launches none.
    efficiency: op type -> what its ops reach. The type "" stands for all types that are not named;
        without it, they reach the peak rates.
    """

    type: str
    frequency_mhz: int
    num_cores: int
    bandwidth_gb_s: float
    architecture: str = ""
    launch_us: float = 0.0
    no_launch_us: float = 0.0
    efficiency: Mapping[str, Efficiency] = field(default_factory=dict, hash=False)

    def efficiency_of(self, op_type: str) -> Efficiency:
        """Return what ops of a type reach."""
        return self.efficiency.get(op_type, self.efficiency.get("", Efficiency()))


@dataclass(frozen=True, eq=False)
class Machine:
    """Devices and links. A link is needed from every device to every other.

    signal_us: delay of a control edge between devices.
    step_overhead_us: time of a step beyond its makespan: the call, and a message to every device.
    kinds: data of device kinds, by name.
    contention: device kind -> op type -> slow-down: an op takes 1 + k * slow-down times as long
        while k other devices of its kind and host run ops. The type "" stands for all types that
        are not named.
    """

    devices: tuple[Device, ...]
    links: tuple[Link, ...]
    signal_us: float = 7.0
    step_overhead_us: float = 0.0
    kinds: Mapping[str, DeviceKind] = field(default_factory=dict)
    contention: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check names, numbers, and that every pair of devices is linked.

        Raises:
            BadInputError: a device, a link or a time breaks a rule.
        """
        if not self.devices:
            raise BadInputError("the machine has no device; at least one was expected.")
        names = [device.name for device in self.devices]
        for name in names:
            if names.count(name) > 1:
                raise BadInputError(f"the machine has two devices named {name!r}; rename one.")
        for device in self.devices:
            _check_device(device)
        linked = set()
        for link in self.links:
            _check_link(link, names)
            if (link.src, link.dst) in linked:
                raise BadInputError(
                    f"the machine has two links {link.src} -> {link.dst}; one link from each "
                    "device to each other was expected: remove one of the two, or swap src and dst "
                    "of one."
                )
            linked.add((link.src, link.dst))
        for src in names:
            for dst in names:
                if src != dst and (src, dst) not in linked:
                    raise BadInputError(
                        f"the machine has no link {src} -> {dst}; a link from every device to "
                        "every other was expected: add one with its latency_us and us_per_byte "
                        "(for a route over several links, their sum)."
                    )
        for name in ("signal_us", "step_overhead_us"):
            if not 0 <= getattr(self, name) <= MAX_TIME_US:
                raise BadInputError(
                    f"{name} is {getattr(self, name)}; a number from 0 to {MAX_TIME_US:g} was "
                    "expected."
                )
        for kind, slow_downs in self.contention.items():
            _check_slow_downs(kind, slow_downs)

    def __repr__(self) -> str:
        return f"<Machine: {short_list(self.index_of)}>"

    @property
    def num_devices(self) -> int:
        """Number of devices."""
        return len(self.devices)

    @cached_property
    def index_of(self) -> dict[str, int]:
        """Device index by name."""
        return {device.name: index for index, device in enumerate(self.devices)}

    def device_type(self, kind: str) -> str:
        """Return TensorFlow's device type of a kind; the kind itself if it is not in `kinds`."""
        return self.kinds[kind].type if kind in self.kinds else kind

    @cached_property
    def host(self) -> int | None:
        """Index of the device where feeds and fetches run: the first CPU, or None."""
        for index, device in enumerate(self.devices):
            if self.device_type(device.kind) == "CPU":
                return index
        return None

    @cached_property
    def peer_group(self) -> IntArray:
        """`[num_devices]`: devices with equal numbers are of one kind and on one host."""
        keys = [(device.kind, device.host) for device in self.devices]
        return np.array([keys.index(key) for key in keys], dtype=np.int64)

    @cached_property
    def has_contention(self) -> bool:
        """Whether devices can make each other slower."""
        contends = [any(self.contention.get(each.kind, {}).values()) for each in self.devices]
        return bool(contends) and bool((np.bincount(self.peer_group[contends]) > 1).any())

    @cached_property
    def contention_factor(self) -> float:
        """An upper bound on the factor by which contention multiplies the time of an op."""
        if not self.has_contention:
            return 1.0
        most = max(value for row in self.contention.values() for value in row.values())
        return 1 + (int(np.bincount(self.peer_group).max()) - 1) * most

    def slow_down(self, kind: str, op_type: str) -> float:
        """Return the slow-down of ops of a type by each other device of a kind on the same host."""
        slow_downs = self.contention.get(kind, {})
        return slow_downs.get(op_type, slow_downs.get("", 0.0))

    @cached_property
    def latency_us(self) -> FloatArray:
        """`CommModel.latency_us` of links (src, dst), `[num_devices, num_devices]`; diagonal 0."""
        return self._matrix("latency_us")

    @cached_property
    def us_per_byte(self) -> FloatArray:
        """`CommModel.us_per_byte` of links (src, dst), `[num_devices, num_devices]`; diagonal 0."""
        return self._matrix("us_per_byte")

    @cached_property
    def min_us(self) -> FloatArray:
        """`CommModel.min_us` of links (src, dst), `[num_devices, num_devices]`; diagonal 0."""
        return self._matrix("min_us")

    @cached_property
    def transfer_overhead_us(self) -> FloatArray:
        """`[2, 2, num_devices, num_devices]`: overhead of transfers at their endpoints.

        The axes are: sender or receiver; constant (us) or per byte (us per byte); src; dst.
        """
        names = ("sender_us", "sender_us_per_byte", "receiver_us", "receiver_us_per_byte")
        matrices = np.stack([self._matrix(name) for name in names])
        return matrices.reshape(2, 2, self.num_devices, self.num_devices)

    @cached_property
    def wait_us(self) -> FloatArray:
        """`CommModel.wait_us` of links (src, dst), `[num_devices, num_devices]`; diagonal 0."""
        return self._matrix("wait_us")

    @cached_property
    def channel(self) -> IntArray:
        """`[num_devices, num_devices]`: number of the queue from src to dst; -1 on the diagonal."""
        numbers: dict[tuple[str, ...], int] = {}
        channel = np.full((self.num_devices, self.num_devices), -1, dtype=np.int64)
        for link in self.links:
            key = (link.channel,) if link.channel else (link.src, link.dst)
            number = numbers.setdefault(key, len(numbers))
            channel[self.index_of[link.src], self.index_of[link.dst]] = number
        return channel

    @cached_property
    def channel_names(self) -> tuple[str, ...]:
        """The name of every channel; a channel without a name is called `src -> dst`."""
        names = [""] * (int(self.channel.max(initial=-1)) + 1)
        for link in self.links:
            number = self.channel[self.index_of[link.src], self.index_of[link.dst]]
            names[number] = link.channel or f"{link.src} -> {link.dst}"
        return tuple(names)

    def transfer_us(self, num_bytes: float | IntArray, src: int, dst: int) -> FloatArray:
        """Return the duration in us of transfers of `num_bytes` between two different devices."""
        pair = src, dst
        return _linear(num_bytes, self.latency_us[pair], self.us_per_byte[pair], self.min_us[pair])

    def transfers_us(
        self, num_bytes: float | IntArray, pairs: Iterable[tuple[int, int]]
    ) -> Iterator[FloatArray]:
        """Yield `transfer_us` for each pair (src, dst).

        Equal links share a cached table. All tables of a machine with thousands of pairs might not
        fit into memory.
        """

        @lru_cache(maxsize=8)
        def floored(latency_us: float, us_per_byte: float, min_us: float) -> FloatArray:
            return _linear(num_bytes, latency_us, us_per_byte, min_us)

        for pair in pairs:
            yield floored(self.latency_us[pair], self.us_per_byte[pair], self.min_us[pair])

    def _matrix(self, attribute: str) -> FloatArray:
        matrix = np.zeros((self.num_devices, self.num_devices))
        for link in self.links:
            row, column = self.index_of[link.src], self.index_of[link.dst]
            matrix[row, column] = getattr(link.comm, attribute)
        return matrix


def _linear(
    num_bytes: float | IntArray, latency_us: float, us_per_byte: float, min_us: float
) -> FloatArray:
    return np.asarray(np.maximum(min_us, latency_us + us_per_byte * np.asarray(num_bytes)))


def _check_device(device: Device) -> None:
    for attribute, least, most in (
        ("speed", 1 / MAX_SPEED, MAX_SPEED),
        ("memory_bytes", 0, MAX_MEMORY_BYTES),
        ("op_overhead_us", 0, MAX_TIME_US),
    ):
        value = getattr(device, attribute)
        if not least <= value <= most:
            raise BadInputError(
                f"device {device.name!r} has {attribute} {value}; a number from {least:g} to "
                f"{most:g} was expected."
            )


def _check_slow_downs(kind: str, slow_downs: Mapping[str, float]) -> None:
    for op_type, value in slow_downs.items():
        if not 0 <= value <= MAX_SLOW_DOWN:
            raise BadInputError(
                f"contention of {kind} has a slow-down of {value} for "
                f"{op_type or 'all other ops'}; a number from 0 to {MAX_SLOW_DOWN:g} was expected."
            )


def _check_link(link: Link, names: list[str]) -> None:
    for end in (link.src, link.dst):
        if end not in names:
            raise BadInputError(
                f"link {link.src} -> {link.dst} names device {end!r}; "
                f"one of {', '.join(names)} was expected."
            )
    if link.src == link.dst:
        raise BadInputError(f"link {link.src} -> {link.dst} joins a device with itself; drop it.")
    for attribute, value in vars(link.comm).items():
        if not 0 <= value <= MAX_TIME_US:
            raise BadInputError(
                f"link {link.src} -> {link.dst} has {attribute} {value}; a number from 0 to "
                f"{MAX_TIME_US:g} was expected."
            )


def short_list(names: Iterable[str]) -> str:
    """Return the first `MOST_NAMES` names in one line, and how many more there are."""
    every = list(names)
    rest = len(every) - MOST_NAMES
    return ", ".join(every[:MOST_NAMES]) + (f" and {rest} more" if rest > 0 else "")
