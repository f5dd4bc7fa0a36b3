"""The program of the process in which TensorFlow's virtual cluster runs.

It is run as a file, and imports neither pesto nor the whole of TensorFlow: the modules of the
virtual cluster take half a second to import, `import tensorflow` some seconds.
"""

import importlib.util
import pickle
import sys
from pathlib import Path


def main() -> None:
    """Serve the request whose file is the first argument; the response is the second."""
    without_init("tensorflow")
    # Registers the exceptions to which the library converts its errors.
    from tensorflow.python.framework import errors_impl  # noqa: F401

    serve(*sys.argv[1:])


def without_init(package: str) -> None:
    """Let the modules of a package be imported without running the package's `__init__`."""
    found = importlib.util.find_spec(package)
    assert found is not None
    sys.modules[package] = importlib.util.module_from_spec(found)


def serve(request: str, response: str) -> None:
    """Read runs from the file `request`, simulate them, and write their step stats to `response`.

    Each run is a serialized MetaGraphDef and a list of serialized NamedDevices.
    """
    from tensorflow.core.protobuf.device_properties_pb2 import NamedDevice
    from tensorflow.core.protobuf.meta_graph_pb2 import MetaGraphDef
    from tensorflow.python.grappler.cluster import Cluster
    from tensorflow.python.grappler.item import Item

    answers = []
    for meta_graph, devices in pickle.loads(Path(request).read_bytes()):
        cluster = Cluster(
            disable_timeline=False, devices=[NamedDevice.FromString(device) for device in devices]
        )
        item = Item(MetaGraphDef.FromString(meta_graph))
        answers.append(cluster.MeasureCosts(item)[2].SerializeToString())
    Path(response).write_bytes(pickle.dumps(answers))


if __name__ == "__main__":
    main()
