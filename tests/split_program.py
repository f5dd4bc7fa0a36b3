"""A v1 program with everything around its step: hooks, savers, summaries, counters, evaluations.

    python split_program.py FOLDER [--steps 4] [--batch 8] [--ragged] [--remote]

It prints one line of JSON for each step, and one at the end. A checkpoint in FOLDER is restored.
"""

import argparse
import json

import numpy as np
import tensorflow as tf

tf1 = tf.compat.v1
WIDTH, UNITS, CLASSES = 6, 12, 4


def network(rows, keep):
    """Return the logits; batch normalisation has moving averages, which each step updates."""
    with tf1.variable_scope("net", reuse=tf1.AUTO_REUSE):
        normal = tf1.random_normal_initializer(stddev=0.3, seed=1)
        first = tf1.get_variable("first", [WIDTH, UNITS], initializer=normal, use_resource=True)
        second = tf1.get_variable(
            "second", [UNITS, CLASSES], initializer=normal, use_resource=False
        )
        mean = tf1.get_variable(
            "mean", [UNITS], initializer=tf.zeros_initializer(), trainable=False, use_resource=False
        )
        hidden = tf.matmul(rows, first, name="product")
        if keep is not None:
            now = tf.reduce_mean(hidden, 0)
            update = tf1.assign(mean, 0.9 * mean + 0.1 * now)
            tf1.add_to_collection(tf1.GraphKeys.UPDATE_OPS, update)
            hidden = tf1.nn.dropout(tf.nn.relu(hidden - now), rate=1 - keep, seed=3)
        else:
            hidden = tf.nn.relu(hidden - mean)
        return tf.matmul(hidden, second, name="logits")


def build():
    rows = tf1.placeholder(tf.float32, [None, WIDTH], name="rows")
    labels = tf1.placeholder(tf.int32, [None], name="labels")
    keep = tf1.placeholder_with_default(0.8, [], name="keep")
    logits = network(rows, keep)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    loss = tf.reduce_mean(losses, name="loss")
    right = tf.equal(tf.argmax(network(rows, None), 1, output_type=tf.int32), labels)
    accuracy = tf.reduce_mean(tf.cast(right, tf.float32), name="accuracy")
    step = tf1.train.get_or_create_global_step()
    runs = tf1.get_variable("runs", [], initializer=tf.zeros_initializer(), trainable=False)
    counted = tf1.assign_add(runs, 1.0)
    with tf.control_dependencies([*tf1.get_collection(tf1.GraphKeys.UPDATE_OPS), counted]):
        adam = tf1.train.AdamOptimizer(0.01)
        train = adam.minimize(loss, global_step=step, name="train")
    tf1.summary.scalar("watched", loss)
    tf1.summary.histogram("logits", logits)
    return rows, labels, train, loss, accuracy, runs, tf1.summary.merge_all()


calls = []


class Watch(tf1.train.SessionRunHook):
    """Fetches tensors of the step, and values that are computed from them outside the step."""

    def __init__(self, calls_python):
        self.calls_python = calls_python

    def begin(self):
        graph = tf1.get_default_graph()
        loss = graph.get_tensor_by_name("loss:0")
        with tf.control_dependencies([graph.get_operation_by_name("train")]):
            step = tf1.train.get_global_step().read_value()
        self.fetched = {
            "loss": loss,
            "twice": 2.0 * loss,
            "product": tf.reduce_sum(graph.get_tensor_by_name("net/product:0")),
            "global step after the update": step,
        }
        if self.calls_python:
            call = tf1.py_func(lambda value: calls.append(value) or value, [loss], tf.float32)
            self.fetched["called"] = call

    def before_run(self, context):
        del context
        return tf1.train.SessionRunArgs(self.fetched)

    def after_run(self, context, values):
        del context
        self.found = {name: float(value) for name, value in values.results.items()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--ragged", action="store_true", help="The third batch is smaller.")
    parser.add_argument("--remote", action="store_true", help="Do not call Python in the step.")
    options = parser.parse_args()
    with tf.Graph().as_default():
        rows, labels, train, loss, accuracy, runs, summary = build()
        watch = Watch(not options.remote)
        hooks = [
            watch,
            tf1.train.SummarySaverHook(save_steps=1, output_dir=options.folder, summary_op=summary),
            tf1.train.LoggingTensorHook({"loss": loss}, every_n_iter=1),
        ]
        session = tf1.train.MonitoredTrainingSession(
            checkpoint_dir=options.folder,
            hooks=hooks,
            save_checkpoint_steps=2,
            save_summaries_steps=None,
            save_summaries_secs=None,
            log_step_count_steps=1,
        )
        with session:

            def alone(fetches, feeds=None):
                """Run without hooks."""
                return session.run_step_fn(
                    lambda step_context: step_context.session.run(fetches, feeds)
                )

            start = alone(tf1.train.get_global_step())
            random = np.random.default_rng(int(start))

            def batch(size):
                drawn = random.normal(size=(size, WIDTH)), random.integers(CLASSES, size=size)
                return dict(zip((rows, labels), drawn, strict=True))

            for number in range(options.steps):
                size = options.batch - 3 if options.ragged and number == 2 else options.batch
                _, value = session.run([train, loss], batch(size))
                share = alone(accuracy, batch(5))
                count = alone(runs)
                line = {"loss": float(value), "accuracy": float(share), "runs": float(count)}
                print(json.dumps({**line, "watch": watch.found}))
            variables = {v.op.name: v for v in tf1.global_variables()}
            values = alone(variables)
            state = {name: np.asarray(value).ravel().tolist() for name, value in values.items()}
            print(json.dumps({"calls": [float(value) for value in calls], "state": state}))


if __name__ == "__main__":
    main()
