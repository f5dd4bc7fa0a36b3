"""One recorded step as rows: runs of nodes and of GPU kernels.

Names that TensorFlow gives the devices of rows:
    /job:localhost/replica:0/task:0/device:CPU:0   rows of the executor: every node that ran there
    /device:GPU:0/stream:all                       kernels, as `node:Op`
    /device:GPU:0/memcpy                           copies
The executor launches an op of a GPU, which runs as kernels. Its time is the sum of its kernels, or
the time of its executor row if it has no kernels.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pesto_cli.graphdef.bodies import NO_BODIES, Bodies, Recorded
from pesto_cli.profile.measured import Measured
from pesto_cli.profile.measured.copies import TimedTransfer, device_type
from pesto_cli.profile.traces.node_steps import NodeSteps

KERNELS, COPIES = "/stream:all", "/memcpy"
# Types of ops that send and receive data between devices, or into and out of the step.
PLUMBING_TYPES = frozenset({"_Send", "_Recv", "_HostSend", "_HostRecv", "_Arg", "_Retval"})


@dataclass(frozen=True)
class StepRow:
    """One run of a node, or of one of its kernels.

    device: TensorFlow's name of the device. output_bytes: output number -> bytes. start_ns: start
        on the device's clock.
    """

    device: str
    node: str
    op_type: str
    us: float
    output_bytes: Mapping[int, int] = field(default_factory=dict)
    start_ns: int = 0

    @property
    def recorded(self) -> Recorded:
        """The node, its device, and start and end in ns."""
        return Recorded(self.node, self.device, self.start_ns, self.start_ns + round(self.us * 1e3))


@dataclass(frozen=True)
class RecordedStep:
    """One step: its rows, and its transfers between devices."""

    rows: Sequence[StepRow]
    transfers: Sequence[TimedTransfer] = ()


def measured_steps(
    steps: Sequence[RecordedStep],
    place_of: Callable[[str], str] = device_type,
    bodies: Bodies = NO_BODIES,
) -> Measured:
    """Return the measured times and sizes from the rows of each step.

    place_of: name of a device -> its place. bodies: identifies rows of nodes in function
        bodies, which are left out.
    """
    times = NodeSteps(len(steps))
    device: dict[str, str] = {}
    output_bytes: dict[str, dict[int, int]] = {}
    for number, step in enumerate(steps):
        rows = zip(step.rows, bodies.is_own([row.recorded for row in step.rows]), strict=True)
        nodes = [row for row, is_own in rows if is_own and row.op_type not in PLUMBING_TYPES]
        kernels = [row for row in nodes if row.device.endswith(KERNELS)]
        launched = {row.node for row in kernels}
        for row in kernels:
            times.add(number, row.node, place_of(row.device), row.us)
        for row in nodes:
            if _is_executor(row.device):
                device[row.node] = row.device
                sizes = output_bytes.setdefault(row.node, {})
                for slot, size in row.output_bytes.items():
                    sizes[slot] = max(size, sizes.get(slot, 0))
                if row.node not in launched:
                    times.add(number, row.node, place_of(row.device), row.us)
    transfers = tuple(copy for step in steps for copy in step.transfers)
    return Measured(len(steps), times.columns(), output_bytes, transfers, device)


def _is_executor(device: str) -> bool:
    return "/stream:" not in device and not device.endswith((COPIES, "/sync"))
