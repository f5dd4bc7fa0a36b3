"""The cluster `local-gpus`: the GPUs and the CPU of this host, in the client process."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, NoReturn

from pesto_cli.cluster.backend import Opened
from pesto_cli.cluster.connection import Connection
from pesto_cli.cluster.discovery import found_devices, machine_of
from pesto_cli.cluster.hardware import memory_bytes
from pesto_cli.data.presets import PRESETS
from pesto_cli.errors import EnvironmentFailedError
from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.printable import logger

log = logger(__name__)

SPEC = "local-gpus"


@dataclass(frozen=True)
class LocalGpus:
    """All GPUs that TensorFlow finds on this host, and the CPU."""

    environ: ClassVar[Mapping[str, str]] = {}

    @staticmethod
    def recognises(spec: str) -> bool:
        """Whether a spec is of this kind."""
        return spec == SPEC

    @classmethod
    def parse(cls, spec: str, *, open_ports: bool) -> "LocalGpus":
        """Return the only value of this kind; it opens no ports."""
        return cls()

    def open(self, limit_s: float, on_loss: Callable[[str], NoReturn]) -> Opened:
        """Find the GPUs; see `Kind`. All are in this process, so `on_loss` is not used."""
        config = tensorflow().config
        gpus = config.list_physical_devices("GPU")
        if not gpus:
            raise EnvironmentFailedError(
                "local-gpus: TensorFlow finds no GPU here; at least one was expected: check "
                "nvidia-smi, CUDA_VISIBLE_DEVICES and that TensorFlow has CUDA (pip install "
                "tensorflow[and-cuda]). Without a GPU use local-workers:2, or solve for another "
                f"machine: {', '.join(PRESETS)}, or a machine file."
            )
        models = {config.experimental.get_device_details(gpu).get("device_name") for gpu in gpus}
        if len(models) > 1:
            log.warning("local-gpus: %s are assumed equally fast.", ", ".join(map(str, models)))
        found = [
            each
            for each in found_devices("", limit_s)
            if each.type == "GPU" or each.name == "CPU:0"
        ]
        return Opened(
            Connection("", {each.name: each.full for each in found}),
            machine_of(found, lambda task: "here", {"": memory_bytes()}),
            lambda: None,
        )
