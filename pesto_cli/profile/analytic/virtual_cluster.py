"""TensorFlow's virtual cluster: simulates a graph on devices that need not exist.

It aborts its process on input that it does not expect, so it runs in a process of its own.
"""

import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pesto_cli.errors import EnvironmentFailedError
from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.profile.analytic import child_process

DEVICE_PREFIX = "/job:localhost/replica:0/task:0/device:"
SHOWN_OF_LAST_WORDS = 400


@dataclass(frozen=True)
class VirtualDevice:
    """Properties of a simulated device; without any of them the costs are wrong, with no error.

    type: `CPU` or `GPU`. architecture: compute capability of a GPU, such as `7.0`.
    """

    type: str
    frequency_mhz: int
    num_cores: int
    bandwidth_kb_s: int
    architecture: str = ""


@dataclass(frozen=True)
class VirtualRun:
    """One simulated run.

    graph_def: a GraphDef whose nodes all have a `device`. devices: by full name.
    """

    graph_def: Any
    fetches: Sequence[str]
    devices: Mapping[str, VirtualDevice]


@dataclass(frozen=True)
class NodeRun:
    """The start of a node, relative to the start of the run, and its duration."""

    start_ns: int
    duration_ns: int


def run_all(runs: Sequence[VirtualRun]) -> list[dict[str, NodeRun]]:
    """Simulate all runs; return for each of them the `NodeRun` of each node by name.

    The graphs must be valid (inputs exist, names are unique), as `graphdef.read` ensures.

    Raises:
        EnvironmentFailedError: the process died; the message has its last line of output.
    """
    if not runs:
        return []
    requests = [
        (
            _meta_graph(run).SerializeToString(),
            [_named_device(*item) for item in run.devices.items()],
        )
        for run in runs
    ]
    with tempfile.TemporaryDirectory() as folder:
        request, response = Path(folder, "request"), Path(folder, "response")
        request.write_bytes(pickle.dumps(requests))
        # -P: the folder of the program is not one of modules.
        command = [sys.executable, "-P", child_process.__file__, str(request), str(response)]
        ended = subprocess.run(
            command, env=_environment(), capture_output=True, text=True, errors="replace"
        )
        if ended.returncode != 0 or not response.exists():
            raise EnvironmentFailedError(
                f"TensorFlow's virtual cluster died (exit status {ended.returncode}): "
                f"{_last_words(ended.stderr)}; a graph that it can cost was expected: give "
                "measured times instead (pesto profile --source csv:FILE)."
            )
        answers = pickle.loads(response.read_bytes())
    return [_node_runs(answer) for answer in answers]


def _meta_graph(run: VirtualRun) -> Any:
    meta = tensorflow().compat.v1.MetaGraphDef()
    meta.graph_def.CopyFrom(run.graph_def)
    meta.collection_def["train_op"].node_list.value.extend(run.fetches)
    return meta


def _named_device(name: str, device: VirtualDevice) -> bytes:
    tensorflow()
    from tensorflow.core.protobuf.device_properties_pb2 import DeviceProperties, NamedDevice

    properties = DeviceProperties(
        type=device.type,
        frequency=device.frequency_mhz,
        num_cores=device.num_cores,
        bandwidth=device.bandwidth_kb_s,
    )
    if device.architecture:
        properties.environment["architecture"] = device.architecture
    named: bytes = NamedDevice(name=name, properties=properties).SerializeToString()
    return named


def _environment() -> dict[str, str]:
    """Return the child's environment: it finds this `tensorflow` and logs only fatal errors."""
    paths = [os.environ.get("PYTHONPATH", ""), str(Path(tensorflow().__file__).parents[1])]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }


def _node_runs(serialized: bytes) -> dict[str, NodeRun]:
    tensorflow()
    from tensorflow.core.framework.step_stats_pb2 import StepStats

    return {
        node.node_name: NodeRun(node.all_start_nanos, node.op_end_rel_nanos)
        for device in StepStats.FromString(serialized).dev_stats
        for node in device.node_stats
    }


def _last_words(stderr: str) -> str:
    """Return the last line that is not part of a stack trace."""
    lines = [line for line in stderr.splitlines() if line and not line.startswith((" ", "***"))]
    return lines[-1][:SHOWN_OF_LAST_WORDS] if lines else "without a word"
