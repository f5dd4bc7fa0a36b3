"""A runner of a function of TensorFlow 2, with a placement that is chosen by measured steps."""

from pathlib import Path

from two_cpus import two_cpus

from pesto_cli import api
from pesto_cli.data.machine import CommModel
from pesto_cli.files import CommFit

FUNCTION = """
import numpy as np
import tensorflow as tf

weights = tf.Variable(tf.ones([16, 16]))

@tf.function(input_signature=[tf.TensorSpec([32, 16])])
def step(rows):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(tf.tanh(rows @ weights) - rows))
    weights.assign_sub(0.1 * tape.gradient(loss, weights))
    return loss

def build():
    return step

def batches():
    return {"rows": np.random.default_rng(0).normal(size=(32, 16))}
"""


COMM = [CommFit("CPU", "CPU", CommModel(120.0, 3e-4, wait_us=3000.0), signal_us=100)]


def test_a_function_of_tensorflow_2_is_tuned_and_trained(tmp_path: Path) -> None:
    script = tmp_path / "model.py"
    script.write_text(FUNCTION)
    names = (f"{script}:{name}" for name in ("build", "batches"))
    source, inputs = names
    with api.runner(source, two_cpus(), inputs, tuned=True, time_limit_s=0.1, comm=COMM) as running:
        losses = running.run(steps=5).losses
        assert running.placement.provenance["parameters"]["tuned"]
        assert running.placement.predicted["measured_us"] > 0
    assert list(losses) == sorted(losses, reverse=True)
    assert losses[-1] < losses[0]
