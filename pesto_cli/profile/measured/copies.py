"""Timed copies between devices, compared with the machine's communication models."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pesto_cli.data.machine import Machine
from pesto_cli.errors import BadInputError
from pesto_cli.profile.comm import Sample, fit

# Fewer copies, or fewer sizes, are too few to fit latency and slope.
LEAST_COPIES, LEAST_SIZES = 8, 3
HOST = "/device:CPU:0"
_COPY_KIND = re.compile(r"Memcpy(H2D|D2H|D2D|P2P)", re.IGNORECASE)
_COPY_SIZE = re.compile(r"\bsize:(\d{1,15})\b")
_COPY_PEER = re.compile(r"\bdest:(\d+)")


@dataclass(frozen=True)
class TimedTransfer:
    """One copy that took `us`. src, dst: names of devices, or their known parts."""

    src: str
    dst: str
    num_bytes: int
    us: float


def device_type(device: str) -> str:
    """Return TensorFlow's type of a named device: `GPU` for `/job:worker/task:0/device:GPU:1`.

    Older names are in lower case (`/gpu:0`). Host memory belongs to the CPU.
    """
    words = device.upper().replace("/", ":").split(":")
    return "GPU" if "GPU" in words else "CPU"


def copied(details: str, gpu: str, us: float) -> TimedTransfer | None:
    """Return the copy that a row of a GPU's trace records.

    None for a copy within the GPU or without a size.

    details: `MemcpyH2D kind_src:pinned kind_dst:device size:8192 dest:0 async:1`; older versions of
        TensorFlow write `kind:` for the two kinds. For a copy between GPUs, `dest` is the number
        of the receiving GPU.
    """
    kind, size = _COPY_KIND.search(details), _COPY_SIZE.search(details)
    if kind is None or size is None:
        return None
    ends = {"H2D": (HOST, gpu), "D2H": (gpu, HOST)}
    if kind[1] == "P2P":
        peer = _COPY_PEER.search(details)
        ends["P2P"] = gpu, f"/device:GPU:{peer[1]}" if peer else "/device:GPU"
    return TimedTransfer(*ends[kind[1]], int(size[1]), us) if kind[1] in ends else None


def copy_notes(transfers: Sequence[TimedTransfer], machine: Machine) -> Iterator[str]:
    """Yield, for each pair of device types, a line fitted to its copies and the machine's model."""
    by_types: dict[tuple[str, str], list[Sample]] = {}
    for copy in transfers:
        types = device_type(copy.src), device_type(copy.dst)
        by_types.setdefault(types, []).append(Sample(*types, copy.num_bytes, copy.us))
    for (src, dst), samples in by_types.items():
        sizes = {sample.num_bytes for sample in samples}
        if len(samples) < LEAST_COPIES or len(sizes) < LEAST_SIZES:
            continue
        copies = f"{len(samples)} copies {src} -> {dst} of {min(sizes):,} to {max(sizes):,} bytes"
        try:
            (fitted,) = fit(samples)
        except BadInputError as error:
            yield f"{copies} were timed, but no line fits them: {error}"
            continue
        yield (
            f"{copies} suggest {fitted.comm.latency_us:.2f} us + {fitted.comm.us_per_byte:.3g} us "
            f"a byte (R² {fitted.r_squared:.2f}); {_links(machine, src, dst)}."
        )


def _links(machine: Machine, src: str, dst: str) -> str:
    """Return a phrase with the machine's communication models from one device type to another."""
    kind_of = {device.name: device.kind for device in machine.devices}
    models = {
        link.comm
        for link in machine.links
        if (machine.device_type(kind_of[link.src]), machine.device_type(kind_of[link.dst]))
        == (src, dst)
    }
    if not models:
        return "the machine has no such link"
    stated = " or ".join(
        sorted(f"{model.latency_us:.2f} us + {model.us_per_byte:.3g} us a byte" for model in models)
    )
    return f"the machine has {stated}"
