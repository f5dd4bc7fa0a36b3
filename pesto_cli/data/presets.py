"""Machine presets: servers with published device data and link fits."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import permutations, product

from pesto_cli.data.machine import CommModel, Device, DeviceKind, Link, Machine

GIB = 2**30
HOST_MEMORY_BYTES = 64 * GIB

# Tesla V100 SXM2: 80 SMs, 1530 MHz boost, 900 GB/s HBM2, 16 GB (NVIDIA's data sheet).
# 5 us is a kernel launch; 1 us is an op that only passes on a handle.
V100 = DeviceKind(
    type="GPU",
    frequency_mhz=1530,
    num_cores=80,
    bandwidth_gb_s=900.0,
    architecture="7.0",
    launch_us=5.0,
    no_launch_us=1.0,
)
# A100 SXM4 80 GB: 108 SMs, 1410 MHz boost, 2039 GB/s HBM2e (NVIDIA's data sheet).
A100 = DeviceKind(
    type="GPU",
    frequency_mhz=1410,
    num_cores=108,
    bandwidth_gb_s=2039.0,
    architecture="8.0",
    launch_us=5.0,
    no_launch_us=1.0,
)
# H100 SXM5: 132 SMs, 1980 MHz boost, 3350 GB/s HBM3, 80 GB (NVIDIA's data sheet). An SM has 128
# FP32 lanes. TensorFlow's cost model assumes 64 for each, so each SM counts as two.
H100 = DeviceKind(
    type="GPU",
    frequency_mhz=1980,
    num_cores=264,
    bandwidth_gb_s=3350.0,
    architecture="9.0",
    launch_us=5.0,
    no_launch_us=1.0,
)
# Xeon Silver 4116 (Pesto, Section 5.1): 12 cores, 2100 MHz, six channels of DDR4-2400.
XEON_4116 = DeviceKind(
    type="CPU",
    frequency_mhz=2100,
    num_cores=12,
    bandwidth_gb_s=115.2,
    launch_us=1.0,
    no_launch_us=1.0,
)

# The Pesto authors' own fits: TF-Pesto, `speed_mat_pinned` and `comm_nvlink02_pinned`, and those
# over PCIe. Their two GPUs are joined by two NVLinks.
HOST_TO_V100 = CommModel(latency_us=7.0, us_per_byte=7.7778e-5)
TWO_NVLINKS = CommModel(latency_us=40.77, us_per_byte=2.0757e-5)
ONE_NVLINK = CommModel(latency_us=40.77, us_per_byte=2 * 2.0757e-5)
HOST_TO_GPU_PCIE = CommModel(latency_us=21.48, us_per_byte=7.81e-5)
GPU_TO_GPU_PCIE = CommModel(latency_us=5.581, us_per_byte=1.0024e-4, min_us=15.0)

# Between servers: 100 Gb/s, of which 94 % carry data, after 60 us. This is assumed, not measured.
NETWORK = CommModel(latency_us=60.0, us_per_byte=8.5e-5)

# The pairs of GPUs of a DGX-1 (V100) that NVLinks join, and the number of links; each GPU has six
# (NVIDIA, DGX-1 with Tesla V100, 2017: hybrid cube mesh). Other pairs use PCIe.
DGX1_NVLINKS: Mapping[tuple[int, int], int] = {
    (0, 1): 1,
    (0, 2): 1,
    (0, 3): 2,
    (0, 4): 2,
    (1, 2): 2,
    (1, 3): 1,
    (1, 5): 2,
    (2, 3): 2,
    (2, 6): 1,
    (3, 7): 1,
    (4, 5): 1,
    (4, 6): 1,
    (4, 7): 2,
    (5, 6): 2,
    (5, 7): 1,
    (6, 7): 2,
}

# NVSwitch joins all pairs at the full rate of a GPU, and all that leaves a GPU shares this rate.
# A100: 240 GB/s of the line rate of 300 carry data in packets of 128 bytes; copy engines, with
# packets of 256, are faster (NVIDIA/nccl-tests, issue 149).
# H100: 376 GB/s (NVIDIA/nccl, issue 1264: p2pBandwidthLatencyTest, writes).
# Hosts: PCIe 4 and 5, two and four times as fast as the fit of PCIe 3. Latencies are those of the
# fits of V100s, most of which is TensorFlow's own.
A100_SWITCH = CommModel(latency_us=40.77, us_per_byte=1 / 240e3)
H100_SWITCH = CommModel(latency_us=40.77, us_per_byte=1 / 376e3)
HOST_TO_A100 = CommModel(latency_us=7.0, us_per_byte=7.7778e-5 / 2)
HOST_TO_H100 = CommModel(latency_us=7.0, us_per_byte=7.7778e-5 / 4)


def v100_server(num_gpus: int, host_to_gpu: CommModel, gpu_to_gpu: CommModel) -> Machine:
    """Return a machine of one CPU and V100s of 16 GB, with a link between each pair of devices.

    With two GPUs it is that of Pesto, Section 5.1.
    """
    gpus = _gpus(num_gpus)
    links = [Link(src, dst, gpu_to_gpu) for src, dst in permutations(gpus, 2)]
    return _server(V100, gpus, 16 * GIB, (*links, *_host_links(gpus, host_to_gpu)))


def dgx1() -> Machine:
    """Return a DGX-1: eight V100s of 16 GB, of which some pairs have two NVLinks, one or none."""
    gpus = _gpus(8)
    comm = {0: GPU_TO_GPU_PCIE, 1: ONE_NVLINK, 2: TWO_NVLINKS}
    links = [
        Link(gpus[src], gpus[dst], comm[DGX1_NVLINKS.get((min(src, dst), max(src, dst)), 0)])
        for src, dst in permutations(range(8), 2)
    ]
    return _server(V100, gpus, 16 * GIB, (*links, *_host_links(gpus, HOST_TO_V100)))


def switched_server(
    num_gpus: int, kind: DeviceKind, host_to_gpu: CommModel, gpu_to_gpu: CommModel
) -> Machine:
    """Return a machine of one CPU and GPUs of 80 GB behind a switch: one queue leaves each GPU."""
    gpus = _gpus(num_gpus)
    links = [Link(src, dst, gpu_to_gpu, f"out of {src}") for src, dst in permutations(gpus, 2)]
    return _server(kind, gpus, 80 * GIB, (*links, *_host_links(gpus, host_to_gpu)))


def cluster(server: Machine, num_servers: int, network: CommModel) -> Machine:
    """Return servers in a network: all that leaves a server shares one queue.

    A control edge takes the latency of the network, because a machine has only one `signal_us`.
    """
    names = [f"worker:{number}" for number in range(num_servers)]
    devices = [
        Device(f"{name}/{device.name}", device.kind, device.memory_bytes)
        for name in names
        for device in server.devices
    ]
    within = [
        Link(f"{name}/{link.src}", f"{name}/{link.dst}", link.comm, _channel_in(name, link))
        for name in names
        for link in server.links
    ]
    between = [
        Link(f"{here}/{src.name}", f"{there}/{dst.name}", network, f"out of {here}")
        for here, there in permutations(names, 2)
        for src, dst in product(server.devices, repeat=2)
    ]
    links = (*within, *between)
    return Machine(tuple(devices), links, signal_us=network.latency_us, kinds=server.kinds)


def _channel_in(server: str, link: Link) -> str:
    return f"{server}/{link.channel}" if link.channel else ""


def _gpus(num_gpus: int) -> list[str]:
    return [f"GPU:{index}" for index in range(num_gpus)]


def _host_links(gpus: Sequence[str], comm: CommModel) -> Iterator[Link]:
    for gpu in gpus:
        yield Link("CPU:0", gpu, comm)
        yield Link(gpu, "CPU:0", comm)


def _server(
    kind: DeviceKind, gpus: Sequence[str], memory_bytes: int, links: Iterable[Link]
) -> Machine:
    host = Device("CPU:0", "CPU", HOST_MEMORY_BYTES)
    devices = (host, *(Device(name, "GPU", memory_bytes) for name in gpus))
    return Machine(devices, tuple(links), kinds={"CPU": XEON_4116, "GPU": kind})


# `v100x4-nvlink` has the fit of two NVLinks for each pair. In real servers with four V100s, pairs
# have one or two NVLinks or none, so their transfers differ.
PRESETS: Mapping[str, Machine] = {
    "v100x2-nvlink": v100_server(2, HOST_TO_V100, TWO_NVLINKS),
    "v100x2-pcie": v100_server(2, HOST_TO_GPU_PCIE, GPU_TO_GPU_PCIE),
    "v100x4-nvlink": v100_server(4, HOST_TO_V100, TWO_NVLINKS),
    "v100x8-nvlink": dgx1(),
    "2x4-v100": cluster(v100_server(4, HOST_TO_V100, TWO_NVLINKS), 2, NETWORK),
    "a100x8-nvswitch": switched_server(8, A100, HOST_TO_A100, A100_SWITCH),
    "h100x8-nvswitch": switched_server(8, H100, HOST_TO_H100, H100_SWITCH),
}
