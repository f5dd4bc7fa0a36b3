"""Export refuses inputs that no session can feed, and warns of ops that need the program."""

import pytest
from test_export import losses

from pesto_cli.errors import BadInputError
from pesto_cli.graphdef.containers import write_meta_graph
from pesto_cli.graphdef.export import export
from pesto_cli.graphdef.tensorflow import tensorflow

SCRIPT = """
import keras
import tensorflow as tf

tf1, Spec = tf.compat.v1, tf.TensorSpec

def iterator():
    w, batches = tf.Variable(1.0), iter(tf.data.Dataset.from_tensors(tf.ones([3])).repeat())
    @tf.function
    def step(batches):
        w.assign_sub(tf.reduce_sum(next(batches)))
    return step, [batches._type_spec]

def python(call):
    w = tf.Variable(1.0)
    @tf.function
    def step(x):
        for _ in tf.range(2):
            w.assign_sub(tf.reduce_sum(call(lambda a: a + 1, [x], tf.float32)))
    return step, Spec([3])
def numpy_function():
    return python(tf.numpy_function)
def py_function():
    return python(tf.py_function)

def v1_python():
    x = tf1.placeholder(tf.float32, [3], name="x")
    w = tf1.get_variable("w", [3], use_resource=True)
    y = tf.ensure_shape(tf1.py_func(lambda a: a, [x], tf.float32), [3])
    return tf1.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(w * y))
def v1_queue():
    queue = tf1.FIFOQueue(4, tf.float32, [3])
    w = tf1.get_variable("w", [3], use_resource=True)
    return tf1.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(w * queue.dequeue()))
def v1_data_set_of_python():
    data = tf1.data.Dataset.range(4).map(lambda i: tf.numpy_function(float, [i], tf.float64))
    x = tf.ensure_shape(tf1.data.make_one_shot_iterator(data).get_next(), [])
    w = tf1.get_variable("w", [], use_resource=True)
    return tf1.train.GradientDescentOptimizer(0.1).minimize(w * tf.cast(x, tf.float32))
def v1_fed_iterator():
    handle = tf1.placeholder(tf.string, [], name="handle")
    batches = tf1.data.Iterator.from_string_handle(handle, tf.float32, [3])
    w = tf1.get_variable("w", [3], use_resource=True)
    loss = tf.reduce_sum(w * batches.get_next())
    return tf1.train.GradientDescentOptimizer(0.1).minimize(loss)

def v1_iterator(*rows):
    data = tf1.data.Dataset.from_tensor_slices(rows[0] if rows else tf.ones([8, 3])).repeat()
    batches = tf1.data.make_initializable_iterator(data.batch(4, drop_remainder=True))
    w = tf1.get_variable("w", [3], use_resource=True, initializer=tf1.ones_initializer())
    loss = tf.reduce_sum(w * batches.get_next(), name="loss")
    return {"train_op": tf1.train.GradientDescentOptimizer(0.1).minimize(loss), "loss": loss}
def v1_iterator_of_fed_rows():
    return v1_iterator(tf1.placeholder(tf.float32, [8, 3], name="rows"))

def replicas(number):
    cpu = tf.config.list_physical_devices("CPU")[0]
    two = [tf.config.LogicalDeviceConfiguration()] * 2
    if tf.config.get_logical_device_configuration(cpu) is None:
        tf.config.set_logical_device_configuration(cpu, two)
    return tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(number)])
def keras_replicas(number=2):
    with replicas(number).scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse", jit_compile=False)
    return model, (Spec([4, 3]), Spec([4, 1]))
def keras_replica():
    return keras_replicas(1)
def function_replicas(number=2):
    strategy = replicas(number)
    with strategy.scope():
        w = tf.Variable(1.0)
    def one(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(x * w)
        context = tf.distribute.get_replica_context()
        w.assign_sub(context.all_reduce("sum", tape.gradient(loss, w)))
    return tf.function(lambda x: strategy.run(one, (x,))), Spec([3])
def function_replica():
    return function_replicas(1)
def variables_of_replicas():
    with replicas(2).scope():
        w = tf.Variable(1.0)
    return tf.function(lambda x: w.assign_sub(tf.reduce_sum(x))), Spec([3])
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    path = tmp_path_factory.mktemp("needs") / "script.py"
    path.write_text(SCRIPT)
    return path


def test_an_iterator_as_an_argument_is_refused(script):
    with pytest.raises(BadInputError, match=r"input 'batches' is a resource .*next\(iterator\)"):
        export(f"{script}:iterator")


def test_a_graph_without_its_variables_is_refused(tmp_path):
    tf = tensorflow()
    w = tf.Variable(1.0)
    traced = tf.function(lambda x: w.assign_sub(x)).get_concrete_function(tf.TensorSpec([]))
    path = tmp_path / "traced.pb"
    path.write_bytes(traced.graph.as_graph_def().SerializeToString())
    (update,) = (op.name for op in traced.graph.get_operations() if "Assign" in op.type)
    with pytest.raises(BadInputError, match="is a resource of the program that built the graph"):
        export(str(path), fetches=[update])


@pytest.mark.parametrize(
    ("name", "op_type"),
    [
        ("numpy_function", "PyFunc"),
        ("py_function", "EagerPyFunc"),
        ("v1_python", "PyFunc"),
        ("v1_queue", "QueueDequeueV2"),
        ("v1_data_set_of_python", "PyFunc"),
        ("v1_fed_iterator", "IteratorFromStringHandleV2"),
    ],
)
def test_ops_that_need_the_running_program_cause_a_warning(script, caplog, tmp_path, name, op_type):
    meta = export(f"{script}:{name}")
    warned = f"({op_type}) needs the running program"
    assert caplog.text.count(warned) == 1
    write_meta_graph(tmp_path / "again.meta", meta)
    export(str(tmp_path / "again.meta"))
    assert caplog.text.count(warned) == 2


def test_iterators_are_initialised_and_one_that_needs_a_feed_causes_a_warning(script, caplog):
    first, second = losses(export(f"{script}:v1_iterator"), 2, {})
    assert (first, second) == pytest.approx((12, 12 - 4 * 3 * 0.1 * 4))
    assert caplog.text == ""
    export(f"{script}:v1_iterator_of_fed_rows")
    assert "no op of the graph initialises the iterator 'IteratorV2' without a feed" in caplog.text


def test_a_saved_model_that_calls_python_is_refused(tmp_path):
    tf = tensorflow()

    @tf.function(input_signature=[tf.TensorSpec([3], tf.float32, name="x")])
    def called(x):
        return {"y": tf.ensure_shape(tf.numpy_function(abs, [x], tf.float32), [3])}

    module = tf.Module()
    module.called = called
    tf.saved_model.save(module, str(tmp_path / "m"), signatures={"serving_default": called})
    with pytest.raises(BadInputError, match=r"\(PyFunc\) calls a Python function"):
        export(str(tmp_path / "m"))


def test_a_step_of_several_replicas_is_refused_and_of_one_replica_exported(script):
    """Run in a separate process, in which the CPU is two logical devices."""
    import subprocess
    import sys

    program = f"""
from pesto_cli.errors import BadInputError
from pesto_cli.graphdef.export import export
for name in ("keras_replicas", "function_replicas", "variables_of_replicas"):
    try:
        export("{script}:" + name)
    except BadInputError as error:
        print(error)
for name in ("keras_replica", "function_replica"):
    print(name, len(export("{script}:" + name).graph_def.node) > 10)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert len(lines) == 5, done.stderr[-2000:]
    for line in lines[:3]:
        assert "built for tf.distribute with several replicas (" in line
        assert line.endswith("build the model and its step without the strategy.")
    assert lines[3:] == ["keras_replica True", "function_replica True"]
