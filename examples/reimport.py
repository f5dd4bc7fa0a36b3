"""Import a placed graph into TensorFlow and count its ops by device: python reimport.py GRAPH."""

import sys
from collections import Counter

from pesto_cli.graphdef.tensorflow import tensorflow  # imports it without log messages


def main(path: str) -> None:
    """Import the graph; TensorFlow checks every shape, device and control dependency."""
    tf = tensorflow()
    with tf.Graph().as_default() as graph:
        tf.compat.v1.train.import_meta_graph(path)
    devices = Counter(op.device for op in graph.get_operations())
    for device, count in sorted(devices.items()):
        print(f"{count:6} ops {f'on {device}' if device else 'without a device'}")


if __name__ == "__main__":
    main(sys.argv[1])
