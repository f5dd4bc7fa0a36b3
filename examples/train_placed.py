"""Place a scaled-down RNNLM over two devices and train it: python train_placed.py FOLDER.

The two GPUs of the placement are mapped to two logical CPU devices, so it runs on any machine.
Every op must run on its device, and the losses must equal those of the unplaced graph exactly.
"""

import sys
from pathlib import Path

import numpy as np

from pesto_cli import api as pesto
from pesto_cli.apply import session_config
from pesto_cli.graphdef.fetches import feed_names, init_names
from pesto_cli.graphdef.tensorflow import tensorflow  # imports it without log messages

tf = tensorflow()
tf1 = tf.compat.v1
AT_HAND = {"CPU:0": "/device:CPU:0", "GPU:0": "/device:CPU:0", "GPU:1": "/device:CPU:1"}
STEPS = 5


def train(path: Path) -> tuple[list[float], dict[str, str]]:
    """Run five steps on the same random words; return the losses, and the device of each op."""
    config = session_config()
    config.device_count["CPU"] = 2
    options = tf1.RunOptions(trace_level=tf1.RunOptions.FULL_TRACE)
    random, losses, metadata = np.random.default_rng(0), [], tf1.RunMetadata()
    with tf.Graph().as_default() as graph, tf1.Session(config=config) as session:
        meta = pesto.read_meta_graph(path)
        tf1.train.import_meta_graph(meta)
        session.run(list(init_names(meta)))
        feeds = [graph.get_tensor_by_name(f"{name}:0") for name in feed_names(meta)]
        fetches = ["train_op", "loss/mean:0"]
        words = {feed: random.integers(0, 20, feed.shape) for feed in feeds}
        for _ in range(STEPS):
            losses.append(session.run(fetches, words, options, metadata)[1])
    ran_on = {
        node.node_name: "/" + device.device.rpartition("/")[2]
        for device in metadata.step_stats.dev_stats
        for node in device.node_stats
    }
    return losses, ran_on


def main(folder: Path) -> None:
    """Export, profile, place on both devices, apply; train with and without the placement."""
    graph = pesto.export("zoo:RNNLM-tiny")
    profile = pesto.profile(graph, pesto.read_machine("v100x2-nvlink"))
    # Round-robin results in the most transfers, and so in the strictest test.
    placement = pesto.placement(profile, pesto.solve(profile, "round-robin"))
    placed = pesto.apply(graph, placement, devices=AT_HAND)
    pesto.write_meta_graph(folder / "tiny.meta", graph)
    pesto.write_meta_graph(folder / "tiny.placed.meta", placed)

    expected, _ = train(folder / "tiny.meta")
    losses, ran_on = train(folder / "tiny.placed.meta")
    planned = {node.name: node.device for node in placed.graph_def.node if node.device}
    ran = [name for name in planned if name in ran_on]
    elsewhere = [name for name in ran if planned[name] != ran_on[name]]
    print(f"losses unplaced: {' '.join(f'{loss:.6f}' for loss in expected)}")
    print(f"losses placed:   {' '.join(f'{loss:.6f}' for loss in losses)}")
    print(f"{len(ran)} ops ran, {len(elsewhere)} elsewhere than placed")
    if losses != expected or elsewhere:
        sys.exit("the placed graph does not do what the unplaced one does")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
