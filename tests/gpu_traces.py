"""Generate traces of a GPU in the formats of TensorFlow's profiler, without a GPU.

Sources in TensorFlow for the names of planes, lines, events and stats: `xplane_schema.cc`,
`cupti_collector.cc` and `derived_timeline.cc`; for step stats: `xplane_to_step_stats.cc`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pesto_cli.graphdef.tensorflow import tensorflow

STEP_US = 10_000.0
KERNEL = "void Eigen::internal::EigenMetaKernel<float>(int)"
KERNEL_DETAILS = "regs:32 static_shared:0 dynamic_shared:0 grid:80,1,1 block:256,1,1 occ_pct:100"


class Copy(NamedTuple):
    """A copy of a step; kind: H2D, D2H, D2D or P2P."""

    kind: str
    num_bytes: int
    us: float


class Plane:
    """Builds one XPlane; strings in stats are stored as references, as the profiler does."""

    def __init__(self, space: Any, name: str) -> None:
        self.proto = space.planes.add(name=name, id=len(space.planes))
        self._events: dict[str, int] = {}
        self._stats: dict[str, int] = {}

    def line(self, name: str, number: int) -> Any:
        return self.proto.lines.add(name=name, id=number, timestamp_ns=1_000)

    def add(self, line: Any, name: str, start_us: float, us: float, **stats: object) -> None:
        event = line.events.add(
            metadata_id=self._numbered(self._events, self.proto.event_metadata, name),
            offset_ps=round(start_us * 1e6),
            duration_ps=round(us * 1e6),
        )
        for key, value in stats.items():
            stat = event.stats.add(metadata_id=self._stat(key))
            if isinstance(value, int):
                stat.int64_value = value
            else:
                stat.ref_value = self._stat(str(value))

    def _stat(self, name: str) -> int:
        return self._numbered(self._stats, self.proto.stat_metadata, name)

    def _numbered(self, known: dict[str, int], metadata: Any, name: str) -> int:
        if name not in known:
            known[name] = len(known) + 1
            metadata[known[name]].id = known[name]
            metadata[known[name]].name = name
        return known[name]


def gpu_trace(
    kernels: Mapping[str, Sequence[Sequence[float]]],
    host: Mapping[str, float],
    copies: Sequence[Copy] = (),
    *,
    stat: str = "tf_op",
    with_host: bool = True,
) -> Any:
    """Return an XSpace of one GPU and its host.

    kernels: `node:Op` -> for each step, the times of its kernels. host: `node:Op` -> its time in
    the executor, launches included. stat: the name of the stat with the op that launched a kernel.
    """
    tensorflow()
    from tensorflow.tsl.profiler.protobuf.xplane_pb2 import XSpace

    space = XSpace(hostnames=["server"])
    gpu = Plane(space, "/device:GPU:0")
    compute = gpu.line("Stream #13(Compute,MemcpyD2D)", 13)
    moved = gpu.line("Stream #14(MemcpyH2D,MemcpyD2H)", 14)
    cpu = Plane(space, "/host:CPU")
    client, executor = cpu.line("python", 1), cpu.line("tf_Compute/2", 2)
    for step in range(len(next(iter(kernels.values())))):
        now, number = step * STEP_US, {"id": 100 + step}
        if with_host:
            cpu.add(client, "train", now, STEP_US - 50, step_num=step, _r=1)
            cpu.add(client, "SessionRun", now + 1, STEP_US - 90, _pt=2, _p=100 + step, **number)
            process = "ExecutorState::Process"
            cpu.add(executor, process, now + 2, 5_000, _ct=2, _c=100 + step, **number)
            for place, (name, us) in enumerate(host.items()):
                cpu.add(executor, name, now + 3 + 100 * place, us)
        start = now + 50
        for name, steps in kernels.items():
            for us in steps[step]:
                correlation = {"correlation_id": round(start)}
                if with_host:
                    cpu.add(executor, "cuLaunchKernel", start - 20, 0.5, **correlation)
                details = {"kernel_details": KERNEL_DETAILS, stat: name}
                gpu.add(compute, KERNEL, start, us, **correlation, **details)
                start += us + 3  # the gap before the next launch
        for place, copy in enumerate(copies):
            source, target = ("pinned", "device") if copy.kind == "H2D" else ("device", "pinned")
            gpu.add(
                moved,
                f"Memcpy{copy.kind}",
                now + 200 * place,
                copy.us,
                memcpy_details=(
                    f"kind_src:{source} kind_dst:{target} size:{copy.num_bytes} dest:1 async:1"
                ),
                tf_op=f"fed/_{place}:_Recv#from=a,to=b,edge_name=c#",
            )
    return space


def gpu_step_stats(
    kernels: Mapping[str, Sequence[float]], host: Mapping[str, float], copies: Sequence[Copy] = ()
) -> Any:
    """Return the step stats of one step on a GPU; times are in whole microseconds."""
    stats = tensorflow().compat.v1.RunMetadata().step_stats
    launches = stats.dev_stats.add(device="/job:localhost/replica:0/task:0/device:GPU:0")
    for name, us in host.items():
        node, op_type = name.split(":")
        row = launches.node_stats.add(node_name=node, timeline_label=f"{node} = {op_type}(in)")
        row.op_start_rel_nanos, row.op_end_rel_nanos = 100, 100 + round(us * 1e3)
    streams = ("/device:GPU:0/stream:13", "/device:GPU:0/stream:all")
    for stream in [stats.dev_stats.add(device=device) for device in streams]:
        for name, each in kernels.items():
            for us in each:
                stream.node_stats.add(
                    node_name=name,
                    timeline_label=f"{KERNEL} {KERNEL_DETAILS}",
                    op_end_rel_micros=round(us),
                    all_end_rel_micros=round(us),
                )
    memcpy = stats.dev_stats.add(device="/device:GPU:0/memcpy")
    for copy in copies:
        label = f"Memcpy{copy.kind} kind:pinned size:{copy.num_bytes} dest:1 async:1"
        memcpy.node_stats.add(
            node_name="fed:_Recv", timeline_label=label, op_end_rel_micros=round(copy.us)
        )
    return stats
