"""Exported Keras graphs do not depend on the machine; warnings show what Keras would change."""

from collections import Counter

import pytest

from pesto_cli.graphdef.export import export
from pesto_cli.graphdef.tensorflow import tensorflow

SCRIPT = """
import keras
import tensorflow as tf

L, Spec = keras.layers, tf.TensorSpec

def compiled(shape, *layers, **options):
    model = keras.Sequential([keras.Input(shape), *layers, L.Flatten(), L.Dense(1)], name="net")
    model.compile("sgd", "mse", **options)
    return model, (Spec([2, *shape]), Spec([2, 1]))

def lstm():
    return compiled((6, 3), L.LSTM(4))
def both_ways():
    return compiled((6, 3), L.Bidirectional(L.LSTM(4)))
def without_cudnn():
    return compiled((6, 3), L.GRU(4, use_cudnn=False), jit_compile=False)
def channels_first():
    return compiled(
        (3, 8, 8), L.SeparableConv2D(4, 3, data_format="channels_first"), jit_compile=False
    )
def by_default():
    return compiled((4,))
def with_xla():
    return compiled((4,), jit_compile=True)
def without_xla():
    return compiled((4,), jit_compile=False)
def groups():
    return compiled((8, 8, 4), L.Conv2D(4, 3, groups=2), jit_compile=False)

def step(**options):
    w = tf.Variable(1.0)
    return tf.function(lambda x: w.assign_sub(tf.reduce_sum(x)), **options), Spec([3])
def function_with_xla():
    return step(jit_compile=True)
def function_without_xla():
    return step()
"""
LOOPS = "LSTM and GRU layers of Keras are exported as loops"
TRANSPOSES = "exported with transposes to channels_last"
BY_DEFAULT = "fit compiles the model 'net' by XLA (jit_compile='auto', the default, with a GPU)"
BY_REQUEST = "fit compiles the model 'net' by XLA (jit_compile=True)"
FUNCTION = "the tf.function has jit_compile=True. It is exported as it runs without XLA"
CALLS = "calls of functions with jit_compile=True stay one op each"


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    path = tmp_path_factory.mktemp("keras") / "script.py"
    path.write_text(SCRIPT)
    return path


def add_a_gpu(monkeypatch):
    """Make TensorFlow report that the machine has a GPU."""
    config = tensorflow().config
    logical = [*config.list_logical_devices(), config.LogicalDevice("/device:GPU:0", "GPU")]
    physical = [*config.list_physical_devices(), config.PhysicalDevice("/gpu:0", "GPU")]
    for name, devices in (("logical", logical), ("physical", physical)):
        monkeypatch.setattr(
            config,
            f"list_{name}_devices",
            lambda kind=None, devices=devices: [
                device for device in devices if kind in (None, device.device_type)
            ],
        )


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("lstm", [LOOPS]),
        ("both_ways", [LOOPS]),
        ("without_cudnn", []),
        ("channels_first", [TRANSPOSES]),
        ("by_default", [BY_DEFAULT]),
        ("with_xla", [BY_REQUEST]),
        ("without_xla", []),
        ("groups", [CALLS]),
        ("function_with_xla", [FUNCTION]),
        ("function_without_xla", []),
    ],
)
def test_export_and_warnings_do_not_depend_on_the_machine(script, monkeypatch, caplog, name, told):
    exported = []
    for _ in range(2):
        caplog.clear()
        exported.append(Counter(node.op for node in export(f"{script}:{name}").graph_def.node))
        found = [line for line in caplog.messages if "script.py" in line]
        assert len(found) == len(told)
        assert all(any(text in line for line in found) for text in told)
        add_a_gpu(monkeypatch)
    assert exported[0] == exported[1]
    assert not any("Cudnn" in op_type for op_type in exported[0])
    is_recurrent = LOOPS in told or name == "without_cudnn"
    assert is_recurrent == bool(exported[0].keys() & {"While", "StatelessWhile"})


def test_keras_sees_the_machines_own_devices_again_afterwards(script):
    tf = tensorflow()
    before = tf.config.list_logical_devices, tf.config.list_physical_devices
    export(f"{script}:channels_first")
    assert (tf.config.list_logical_devices, tf.config.list_physical_devices) == before
    from keras.src.backend.tensorflow import nn

    assert nn._cpu_only.cache_info().currsize == 0
