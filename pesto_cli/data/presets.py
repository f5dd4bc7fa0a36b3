"""Machine presets: servers with published device data and link fits."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import permutations, product
from operator import attrgetter

from pesto_cli.data.efficiencies import H100_EFFICIENCY
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
    efficiency=H100_EFFICIENCY,
)
# GTX 1080 Ti: 28 SMs, 1582 MHz boost, 484 GB/s GDDR5X, 11 GB (NVIDIA's specifications). An SM has
# 128 FP32 lanes and counts as two, as above.
GTX_1080_TI = DeviceKind(
    type="GPU",
    frequency_mhz=1582,
    num_cores=56,
    bandwidth_gb_s=484.0,
    architecture="6.1",
    launch_us=5.0,
    no_launch_us=1.0,
)
# Tesla P100 PCIe 12 GB: 56 SMs of 64 FP32 lanes, 1303 MHz boost, 549 GB/s HBM2. NVIDIA's data sheet
# has 9.3 TFLOPS, which this boost gives.
P100 = DeviceKind(
    type="GPU",
    frequency_mhz=1303,
    num_cores=56,
    bandwidth_gb_s=549.0,
    architecture="6.0",
    launch_us=5.0,
    no_launch_us=1.0,
)
# One of the two GPUs of a Tesla K80: 13 SMs of 192 FP32 lanes, 875 MHz boost, 240 GB/s GDDR5, 12 GB
# (NVIDIA's data sheet has 4,992 lanes, 8.73 TFLOPS, 480 GB/s and 24 GB for both). TensorFlow's cost
# model knows the 192 lanes of this architecture.
K80 = DeviceKind(
    type="GPU",
    frequency_mhz=875,
    num_cores=13,
    bandwidth_gb_s=240.0,
    architecture="3.7",
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

# Intel Broadwell with 8 cores (Spotlight, Section 5.1). Assumed: Google Cloud's 2.2 GHz, and the
# four channels of DDR4-2400 of a Xeon E5 v4.
BROADWELL = DeviceKind(
    type="CPU",
    frequency_mhz=2200,
    num_cores=8,
    bandwidth_gb_s=76.8,
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

# Between servers: network cards of 100 and 50 Gb/s, of which 94 % carry data, after 60 us. This is
# assumed, not measured.
NETWORK = CommModel(latency_us=60.0, us_per_byte=8.5e-5)
NETWORK_50 = CommModel(latency_us=60.0, us_per_byte=2 * 8.5e-5)

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
    return _paired("GPU", V100, num_gpus, 16 * GIB, host_to_gpu, gpu_to_gpu)


def pcie_server(name: str, kind: DeviceKind, num_gpus: int, memory_bytes: int) -> Machine:
    """Return a machine of one CPU and GPUs of a kind called `name`; PCIe joins each pair."""
    return _paired(name, kind, num_gpus, memory_bytes, HOST_TO_GPU_PCIE, GPU_TO_GPU_PCIE)


def dgx1() -> Machine:
    """Return a DGX-1: eight V100s of 16 GB, of which some pairs have two NVLinks, one or none."""
    gpus = _gpus(8)
    comm = {0: GPU_TO_GPU_PCIE, 1: ONE_NVLINK, 2: TWO_NVLINKS}
    links = [
        Link(gpus[src], gpus[dst], comm[DGX1_NVLINKS.get((min(src, dst), max(src, dst)), 0)])
        for src, dst in permutations(range(8), 2)
    ]
    return _server("GPU", V100, gpus, 16 * GIB, (*links, *_host_links(gpus, HOST_TO_V100)))


def switched_server(
    num_gpus: int, kind: DeviceKind, host_to_gpu: CommModel, gpu_to_gpu: CommModel
) -> Machine:
    """Return a machine of one CPU and GPUs of 80 GB behind a switch: one queue leaves each GPU."""
    gpus = _gpus(num_gpus)
    links = [Link(src, dst, gpu_to_gpu, f"out of {src}") for src, dst in permutations(gpus, 2)]
    return _server("GPU", kind, gpus, 80 * GIB, (*links, *_host_links(gpus, host_to_gpu)))


def cluster(servers: Sequence[Machine], cards: Sequence[CommModel]) -> Machine:
    """Return servers in a network: all that leaves a server shares one queue.

    A control edge takes the latency of the network, because a machine has only one `signal_us`.

    The queue of a card is busy for the whole transfer, at the rate of the slower card. So a card of
    100 Gb/s sends 100 to another such card, but 50 in all to cards of 50 Gb/s: it could send to two
    of them at once, and here it sends to one after the other. A receiver has no queue. So several
    servers can send to one server at once, together faster than its card.

    servers: kinds of the same name must be equal in all of them.
    cards: the network card of each server; the slower card of two servers sets their rate.
    """
    named = {f"worker:{number}": server for number, server in enumerate(servers)}
    card_of = dict(zip(named, cards, strict=True))
    devices = [
        Device(f"{name}/{device.name}", device.kind, device.memory_bytes, host=name)
        for name, server in named.items()
        for device in server.devices
    ]
    within = [
        Link(f"{name}/{link.src}", f"{name}/{link.dst}", link.comm, _channel_in(name, link))
        for name, server in named.items()
        for link in server.links
    ]
    between = [
        Link(f"{here}/{src.name}", f"{there}/{dst.name}", slower, f"out of {here}")
        for here, there in permutations(named, 2)
        for slower in [max(card_of[here], card_of[there], key=attrgetter("us_per_byte"))]
        for src, dst in product(named[here].devices, named[there].devices)
    ]
    kinds = {name: kind for server in servers for name, kind in server.kinds.items()}
    signal_us = max(card.latency_us for card in cards)
    return Machine(tuple(devices), (*within, *between), signal_us=signal_us, kinds=kinds)


def heterog(num_v100s: int, num_1080_ti_servers: int, num_p100_servers: int) -> Machine:
    """Return GPUs of the testbed of HeteroG (Yi et al., CoNEXT '20, Section 6.1).

    The V100s are in one server with a network card of 100 Gb/s. The other servers have two GPUs and
    a card of 50 Gb/s each. The paper names no NVLinks, so GPUs of a server are assumed to be joined
    by PCIe.
    """
    first = pcie_server("V100", V100, num_v100s, 16 * GIB)
    others = [
        *[pcie_server("GTX 1080 Ti", GTX_1080_TI, 2, 11 * GIB)] * num_1080_ti_servers,
        *[pcie_server("P100", P100, 2, 12 * GIB)] * num_p100_servers,
    ]
    return cluster([first, *others], [NETWORK, *[NETWORK_50] * len(others)])


def k80_server(num_gpus: int) -> Machine:
    """Return the machine of Spotlight (Gao et al., ICML '18, Section 5.1).

    The paper names no links, so the GPUs are assumed to be joined by PCIe.
    """
    server = pcie_server("GPU", K80, num_gpus, 12 * GIB)
    return replace(server, kinds={**server.kinds, "CPU": BROADWELL})


def _channel_in(server: str, link: Link) -> str:
    return f"{server}/{link.channel}" if link.channel else ""


def _gpus(num_gpus: int) -> list[str]:
    return [f"GPU:{index}" for index in range(num_gpus)]


def _host_links(gpus: Sequence[str], comm: CommModel) -> Iterator[Link]:
    for gpu in gpus:
        yield Link("CPU:0", gpu, comm)
        yield Link(gpu, "CPU:0", comm)


def _paired(
    name: str,
    kind: DeviceKind,
    num_gpus: int,
    memory_bytes: int,
    host_to_gpu: CommModel,
    gpu_to_gpu: CommModel,
) -> Machine:
    """Return a server with a link between each pair of devices; name: that of the GPUs' kind."""
    gpus = _gpus(num_gpus)
    links = [Link(src, dst, gpu_to_gpu) for src, dst in permutations(gpus, 2)]
    return _server(name, kind, gpus, memory_bytes, (*links, *_host_links(gpus, host_to_gpu)))


def _server(
    name: str, kind: DeviceKind, gpus: Sequence[str], memory_bytes: int, links: Iterable[Link]
) -> Machine:
    host = Device("CPU:0", "CPU", HOST_MEMORY_BYTES)
    devices = (host, *(Device(gpu, name, memory_bytes) for gpu in gpus))
    return Machine(devices, tuple(links), kinds={"CPU": XEON_4116, name: kind})


# `v100x4-nvlink` has the fit of two NVLinks for each pair. In real servers with four V100s, pairs
# have one or two NVLinks or none, so their transfers differ.
# `2x8-v100` has the 16 GPUs of FastT (Yi et al., Middleware '20, Section 6.2).
# `k80x4-pcie` has the GPUs of Spotlight's Table 1.
# `heterog-4` has the GPUs of HeteroG's Figure 3, and `heterog-8` those of its Table 2: G0 and G1
# are V100s, G2 to G5 1080 Ti, G6 and G7 P100s. Assumed: G0 and G1 are in the server of the V100s,
# G2 and G3 in the first with 1080 Ti, G4 and G5 in the second, G6 and G7 in one with P100s.
PRESETS: Mapping[str, Machine] = {
    "v100x2-nvlink": v100_server(2, HOST_TO_V100, TWO_NVLINKS),
    "v100x2-pcie": v100_server(2, HOST_TO_GPU_PCIE, GPU_TO_GPU_PCIE),
    "v100x4-nvlink": v100_server(4, HOST_TO_V100, TWO_NVLINKS),
    "v100x8-nvlink": dgx1(),
    "2x4-v100": cluster([v100_server(4, HOST_TO_V100, TWO_NVLINKS)] * 2, [NETWORK] * 2),
    "2x8-v100": cluster([dgx1()] * 2, [NETWORK] * 2),
    "a100x8-nvswitch": switched_server(8, A100, HOST_TO_A100, A100_SWITCH),
    "h100x8-nvswitch": switched_server(8, H100, HOST_TO_H100, H100_SWITCH),
    "k80x4-pcie": k80_server(4),
    "heterog-4": heterog(2, 1, 0),
    "heterog-8": heterog(2, 2, 1),
    "heterog-12": heterog(4, 2, 2),
}
