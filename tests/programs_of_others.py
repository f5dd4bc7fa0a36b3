"""Minimal training programs in the style of public examples of Keras and TensorFlow.

Each function is a source for `pesto export FILE:FUNCTION`.
"""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

L, ops, tf1 = keras.layers, keras.ops, tf.compat.v1
BATCH = 4
Exported = tuple[Any, Any]
SPARSE = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def floats(*shape: int, name: str | None = None) -> Any:
    return tf.TensorSpec([BATCH, *shape], tf.float32, name=name)


def ints(*shape: int, name: str | None = None) -> Any:
    return tf.TensorSpec([BATCH, *shape], tf.int32, name=name)


def begin() -> None:
    keras.backend.clear_session()
    keras.utils.set_random_seed(1)


def compiled(model: Any, optimizer: Any = "sgd", loss: Any = SPARSE, **options: Any) -> Any:
    model.compile(optimizer, loss, jit_compile=False, **options)
    return model


# --- Pictures


def small_cnn() -> Exported:
    """Batch normalisation, dropout and metrics; preprocessing and augmentation in the model."""
    begin()
    layers = [
        keras.Input((8, 8, 3)),
        L.Rescaling(1 / 5),
        L.RandomFlip("horizontal"),
        L.RandomRotation(0.1),
        L.Conv2D(4, 3, activation="relu", kernel_regularizer="l2"),
        L.BatchNormalization(),
        L.MaxPooling2D(),
        L.Dropout(0.3),
        L.Flatten(),
        L.Dense(5),
    ]
    model = compiled(keras.Sequential(layers), "rmsprop", metrics=["accuracy"])
    return model, (floats(8, 8, 3), ints())


def mobile_net_v3_block() -> Exported:
    """An inverted residual with squeeze and excitation."""
    begin()
    inputs = x = keras.Input((8, 8, 4))
    x = L.Activation("hard_swish")(L.BatchNormalization()(L.Conv2D(8, 1, use_bias=False)(x)))
    x = L.BatchNormalization()(L.DepthwiseConv2D(3, padding="same", use_bias=False)(x))
    squeezed = L.Conv2D(2, 1, activation="relu")(L.GlobalAveragePooling2D(keepdims=True)(x))
    x = L.Multiply()([x, L.Conv2D(8, 1, activation="hard_sigmoid")(squeezed)])
    x = L.Add()([inputs, L.BatchNormalization()(L.Conv2D(4, 1, use_bias=False)(x))])
    outputs = L.Dense(5)(L.GlobalAveragePooling2D()(x))
    schedule = keras.optimizers.schedules.CosineDecay(0.1, 8, warmup_target=0.2, warmup_steps=2)
    optimizer = keras.optimizers.SGD(schedule, 0.9, nesterov=True, clipnorm=1.0)
    return compiled(keras.Model(inputs, outputs), optimizer), (floats(8, 8, 4), ints())


# --- Sequences


def bidirectional_lstm() -> Exported:
    """A bidirectional LSTM with masked words as input."""
    begin()
    layers = [
        keras.Input((6,), dtype="int32"),
        L.Embedding(20, 4, mask_zero=True),
        L.Bidirectional(L.LSTM(3)),
        L.Dense(5),
    ]
    return compiled(keras.Sequential(layers), "adam"), (ints(6), ints())


def unrolled_gru() -> Exported:
    begin()
    layers = [keras.Input((3, 3)), L.GRU(4, unroll=True), L.Dense(5)]
    optimizer = keras.optimizers.Adam(global_clipnorm=1.0)
    return compiled(keras.Sequential(layers), optimizer), (floats(3, 3), ints())


def stateful_lstm() -> Exported:
    """The final state of a batch is the initial state of the next one."""
    begin()
    layers = [keras.Input((5, 3), BATCH), L.LSTM(4, stateful=True), L.Dense(1)]
    return compiled(keras.Sequential(layers), loss="mse"), (floats(5, 3), floats(1))


class Block(L.Layer):
    """Self-attention and two dense layers, each with a residual connection."""

    def __init__(self, *, causal: bool) -> None:
        super().__init__()
        self.causal = causal
        self.attention = L.MultiHeadAttention(2, 4, dropout=0.1)
        self.norms = [L.LayerNormalization(), L.LayerNormalization()]
        self.dense = keras.Sequential([L.Dense(16, activation="gelu"), L.Dense(8)])
        self.supports_masking = True

    def call(self, x: Any, training: bool = False) -> Any:
        x = self.norms[0](x + self.attention(x, x, use_causal_mask=self.causal, training=training))
        return self.norms[1](x + self.dense(x))


def text_transformer() -> Exported:
    """Embeddings of words and positions, masked padding, and AdamW with weight decay."""
    begin()
    inputs = keras.Input((6,), dtype="int32")
    x = L.Embedding(20, 8, mask_zero=True)(inputs) + L.Embedding(6, 8)(ops.arange(6))
    x = L.GlobalAveragePooling1D()(Block(causal=False)(x))
    optimizer = keras.optimizers.AdamW(weight_decay=0.01)
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    return compiled(keras.Model(inputs, L.Dense(5)(x)), optimizer), (ints(6), ints())


class GPT(keras.Model):
    """One block; the word embedding is also the matrix of the output layer."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.positions = L.Embedding(20, 8), L.Embedding(6, 8)
        self.block, self.norm = Block(causal=True), L.LayerNormalization()

    def call(self, ids: Any, training: bool = False) -> Any:
        x = self.words(ids) + self.positions(tf.range(6))
        x = self.norm(self.block(x, training=training))
        return tf.matmul(x, self.words.embeddings, transpose_b=True)


def gpt_2_with_tied_embeddings() -> Exported:
    begin()
    return compiled(GPT(), "adam"), (ints(6), ints(6))


# --- Keras's options


def exponential_moving_average() -> Exported:
    begin()
    optimizer = keras.optimizers.SGD(use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=2)
    model = keras.Sequential([keras.Input((3,)), L.Dense(4, activation="relu"), L.Dense(1)])
    return compiled(model, optimizer, "mse"), (floats(3), floats(1))


def dicts_and_sample_weights() -> Exported:
    """Inputs, outputs, losses, metrics and weights by name."""
    begin()
    inputs = {
        "title": keras.Input((6,), name="title", dtype="int32"),
        "tags": keras.Input((3,), name="tags"),
    }
    x = L.Concatenate()(
        [L.GlobalMaxPooling1D()(L.Embedding(20, 4)(inputs["title"])), inputs["tags"]]
    )
    outputs = {"kind": L.Dense(5)(x), "urgent": L.Dense(1, activation="sigmoid")(x)}
    model = compiled(
        keras.Model(inputs, outputs),
        "adagrad",
        {"kind": SPARSE, "urgent": "binary_crossentropy"},
        loss_weights={"kind": 0.2, "urgent": 1.0},
        metrics={"urgent": [keras.metrics.AUC(num_thresholds=5)]},
        weighted_metrics={"kind": ["accuracy"]},
    )
    weights = {"kind": floats(), "urgent": floats()}
    features = {"title": ints(6), "tags": floats(3)}
    return model, (features, {"kind": ints(), "urgent": floats(1)}, weights)


# --- Custom train_step


class GAN(keras.Model):
    """As in Keras's DCGAN example: two networks, two optimisers, images without targets."""

    def __init__(self) -> None:
        super().__init__()
        up = L.Conv2DTranspose(3, 4, 2, padding="same", activation="tanh")
        self.generator = keras.Sequential(
            [keras.Input((5,)), L.Dense(32), L.Reshape((4, 4, 2)), up]
        )
        down = L.Conv2D(4, 4, 2, padding="same")
        layers = [down, L.LeakyReLU(0.2), L.Flatten(), L.Dropout(0.2), L.Dense(1)]
        self.discriminator = keras.Sequential([keras.Input((8, 8, 3)), *layers])
        self.numbers = keras.random.SeedGenerator(1)
        self.optimizers = keras.optimizers.Adam(1e-2, 0.5), keras.optimizers.Adam(1e-2, 0.5)
        self.mean_loss = keras.metrics.Mean(name="loss")

    def train_step(self, pictures: Any) -> Any:
        loss = keras.losses.BinaryCrossentropy(from_logits=True)
        made = self.generator(keras.random.normal((BATCH, 5), seed=self.numbers))
        labels = tf.concat([tf.ones((BATCH, 1)), tf.zeros((BATCH, 1))], 0)
        labels += 0.05 * tf.random.uniform(tf.shape(labels), seed=1)
        networks = self.discriminator, self.generator
        for network, optimizer in zip(networks, self.optimizers, strict=True):
            with tf.GradientTape() as tape:
                if network is self.generator:
                    made = network(keras.random.normal((BATCH, 5), seed=self.numbers))
                    value = loss(tf.zeros((BATCH, 1)), self.discriminator(made, training=True))
                else:
                    both = tf.concat([made, pictures], 0)
                    value = loss(labels, network(both, training=True))
            gradients = tape.gradient(value, network.trainable_weights)
            optimizer.apply_gradients(zip(gradients, network.trainable_weights, strict=True))
            self.mean_loss.update_state(value)
        return {"loss": self.mean_loss.result()}


def dcgan() -> Exported:
    begin()
    model = GAN()
    model.compile(jit_compile=False)
    return model, floats(8, 8, 3)


class Sampling(L.Layer):
    """Sample from a normal distribution; its divergence from the standard one is a loss."""

    def build(self, _: Any) -> None:
        self.numbers = keras.random.SeedGenerator(1)

    def call(self, inputs: Any) -> Any:
        mean, log_var = inputs
        distance = 1 + log_var - ops.square(mean) - ops.exp(log_var)
        self.add_loss(-0.5 * ops.mean(distance))
        noise = keras.random.normal(ops.shape(mean), seed=self.numbers)
        return mean + ops.exp(0.5 * log_var) * noise


def variational_autoencoder() -> Exported:
    begin()
    inputs = keras.Input((6,))
    x = L.Dense(8, activation="relu")(inputs)
    x = Sampling()([L.Dense(2)(x), L.Dense(2)(x)])
    model = keras.Model(inputs, L.Dense(6)(L.Dense(8, activation="relu")(x)))
    return compiled(model, "adam", "mse"), (floats(6), floats(6))


# --- Custom training loop


def custom_loop() -> Exported:
    """Keras's layers, optimiser, metric and regularisation losses in a tf.function."""
    begin()
    dense = L.Dense(8, activation="relu", kernel_regularizer="l2")
    model = keras.Sequential([keras.Input((6,)), dense, L.Dropout(0.2), L.Dense(5)])
    optimizer, accuracy = keras.optimizers.Adam(), keras.metrics.SparseCategoricalAccuracy()

    @tf.function
    def train_step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            logits = model(x, training=True)
            loss = tf.reduce_mean(SPARSE(y, logits)) + sum(model.losses)
        gradients = tape.gradient(loss, model.trainable_variables)
        clipped, _ = tf.clip_by_global_norm(gradients, 1.0)
        optimizer.apply_gradients(zip(clipped, model.trainable_variables, strict=True))
        accuracy.update_state(y, logits)
        return {"loss": loss, "accuracy": accuracy.result()}

    return train_step, [floats(6), ints()]


def gradient_penalty() -> Exported:
    """WGAN-GP's critic: a gradient of a gradient, with three steps in a Python loop (not five)."""
    begin()
    layers = [L.Conv2D(4, 3), L.LeakyReLU(), L.Flatten(), L.Dense(1)]
    critic = keras.Sequential([keras.Input((6, 6, 2)), *layers])
    optimizer = keras.optimizers.RMSprop(1e-3)

    @tf.function
    def train_step(real: Any, made: Any) -> Any:
        for _ in range(3):
            with tf.GradientTape() as tape:
                between = made + tf.random.uniform([BATCH, 1, 1, 1], seed=1) * (real - made)
                with tf.GradientTape() as inner:
                    inner.watch(between)
                    scores = critic(between, training=True)
                slope = tf.sqrt(tf.reduce_sum(inner.gradient(scores, between) ** 2, axis=[1, 2, 3]))
                wasserstein = tf.reduce_mean(critic(made)) - tf.reduce_mean(critic(real))
                loss = wasserstein + 10.0 * tf.reduce_mean((slope - 1.0) ** 2)
            gradients = tape.gradient(loss, critic.trainable_variables)
            optimizer.apply(gradients, critic.trainable_variables)
        return loss

    return train_step, [floats(6, 6, 2), floats(6, 6, 2)]


class Module(tf.Module):
    """Custom layers and update; AutoGraph converts `for` over `tf.range` and tensors to loops."""

    def __init__(self) -> None:
        super().__init__()
        shapes = {"first": [4, 4], "last": [4, 4], "bias": [4]}
        for seed, (name, shape) in enumerate(shapes.items()):
            initial = tf.random.stateless_normal(shape, [seed, 1])
            setattr(self, name, tf.Variable(initial, name=name))

    @tf.function(input_signature=[floats(4, name="x"), floats(4, name="y")])
    def train(self, x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            for _ in tf.range(4):
                x = tf.tanh(x @ self.first + self.bias)
            states = tf.TensorArray(tf.float32, 0, dynamic_size=True, element_shape=[4])
            for number in tf.range(BATCH):
                states = states.write(number, tf.sigmoid(x[number]))
            loss = tf.reduce_mean(tf.square(states.stack() @ self.last - y))
        for variable, gradient in zip(
            self.trainable_variables, tape.gradient(loss, self.trainable_variables), strict=True
        ):
            variable.assign_sub(0.1 * gradient)
        return {"loss": loss}


def module_with_loops() -> Any:
    return Module().train


def while_loop_with_a_list() -> Exported:
    """`tf.while_loop` with a tf.TensorArray and maximum_iterations, `tf.scan` and `tf.map_fn`."""
    w = tf.Variable(0.1 * tf.random.stateless_normal([4, 4], [0, 1]), name="w")

    @tf.function
    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            states = tf.TensorArray(tf.float32, 3)
            _, _, states = tf.while_loop(
                lambda i, *_: i < 3,
                lambda i, h, states: (i + 1, tf.tanh(h @ w), states.write(i, h)),
                (0, x, states),
                maximum_iterations=5,
            )
            sums = tf.scan(lambda total, h: total + tf.sin(h), states.stack())
            loss = tf.reduce_mean(tf.map_fn(lambda h: tf.reduce_sum(h @ w), sums))
        w.assign_sub(0.1 * tape.gradient(loss, w))
        return loss

    return step, [floats(4, name="x")]


def loss_scale_in_a_loop() -> Exported:
    """Half precision: losses are scaled, and infinite gradients skip the update."""
    begin()
    layers = [L.Dense(8, activation="relu", dtype="mixed_float16") for _ in range(2)]
    model = keras.Sequential([keras.Input((6,)), *layers, L.Dense(1)])
    inner = keras.optimizers.Adam(clipvalue=0.5)
    optimizer = keras.optimizers.LossScaleOptimizer(inner, 2.0**10, dynamic_growth_steps=2)

    @tf.function
    def train_step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
            scaled = optimizer.scale_loss(loss)
        gradients = tape.gradient(scaled, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    return train_step, [floats(6), floats(1)]


def recomputed_layers() -> Exported:
    """`tf.recompute_grad` and a custom gradient."""
    kernels = [
        tf.Variable(tf.random.stateless_normal([4, 4], [i, 1]), name=f"w{i}") for i in range(3)
    ]

    @tf.custom_gradient
    def clipped(x: Any) -> Any:
        return tf.identity(x), lambda dy: tf.clip_by_norm(dy, 1.0)

    @tf.function
    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            for kernel in kernels:
                x = clipped(tf.recompute_grad(lambda x, w=kernel: tf.tanh(x @ w))(x))
            loss = tf.reduce_mean(tf.square(x))
        for kernel, gradient in zip(kernels, tape.gradient(loss, kernels), strict=True):
            kernel.assign_sub(0.1 * gradient)
        return loss

    return step, [floats(4, name="x")]


def preprocessing_layers() -> Exported:
    """The model normalises, discretises and hashes columns of a table."""
    begin()
    age, code = keras.Input((1,), name="age"), keras.Input((1,), name="code", dtype="int32")
    normal = L.Normalization(mean=0.5, variance=2.0)(age)
    bucket = L.CategoryEncoding(3)(L.Discretization([0.0, 1.0])(age))
    hashed = L.Flatten()(L.Embedding(4, 2)(L.Hashing(4)(code)))
    x = L.Concatenate()([normal, bucket, hashed])
    model = compiled(keras.Model([age, code], L.Dense(1)(x)), keras.optimizers.Ftrl(), "mse")
    return model, ([floats(1), ints(1)], floats(1))


# --- TensorFlow 1


def cnn_benchmark() -> Any:
    """As tf_cnn_benchmarks and CIFAR-10 on two GPUs: towers with shared reference variables."""
    tf1.disable_control_flow_v2()
    images = tf1.placeholder(tf.float32, [2 * BATCH, 8, 8, 3], name="images")
    labels = tf1.placeholder(tf.int32, [2 * BATCH], name="labels")
    optimizer = tf1.train.MomentumOptimizer(0.1, 0.9)
    halves = zip(tf.split(images, 2), tf.split(labels, 2), strict=True)
    losses, gradients = [], []
    for number, (x, y) in enumerate(halves):
        scope = tf1.variable_scope("model", reuse=tf1.AUTO_REUSE, use_resource=False)
        with tf.device(f"/gpu:{number}"), scope, tf1.name_scope(f"tower_{number}"):
            losses.append(tower(x, y))
            gradients.append(optimizer.compute_gradients(losses[-1]))
    means = [
        (tf.add_n([gradient for gradient, _ in pairs]) / 2, pairs[0][1])
        for pairs in zip(*gradients, strict=True)
    ]
    step = tf1.train.get_or_create_global_step()
    moving = tf1.train.ExponentialMovingAverage(0.9, step)
    with tf.control_dependencies(tf1.get_collection(tf1.GraphKeys.UPDATE_OPS)):
        applied = optimizer.apply_gradients(means, global_step=step)
    train = tf.group(applied, moving.apply(tf1.trainable_variables()), name="train")
    tf1.enable_control_flow_v2()
    return {"train_op": train, "loss": tf.add_n(losses, name="loss")}


def tower(x: Any, y: Any) -> Any:
    """Convolution, v1 batch normalisation and l2 loss."""

    def variable(name: str, shape: Sequence[int], **options: Any) -> Any:
        with tf.device("/cpu:0"):
            normal = tf1.truncated_normal_initializer(stddev=0.1, seed=1)
            return tf1.get_variable(name, shape, initializer=normal, **options)

    x = tf.nn.conv2d(x, variable("kernel", [3, 3, 3, 4]), 1, "SAME")
    mean, moving = tf.reduce_mean(x, [0, 1, 2]), variable("mean", [4], trainable=False)
    update = tf1.assign_sub(moving, 0.1 * (moving - mean))
    tf1.add_to_collection(tf1.GraphKeys.UPDATE_OPS, update)
    x = tf1.nn.fused_batch_norm(x, variable("scale", [4]), variable("offset", [4]))[0]
    x = tf1.nn.max_pool(tf1.nn.relu(x), [1, 2, 2, 1], [1, 2, 2, 1], "VALID")
    weights = variable("weights", [64, 5])
    x = tf1.nn.dropout(tf1.reshape(x, [BATCH, 64]), rate=0.2, seed=1) @ weights
    loss = tf1.losses.sparse_softmax_cross_entropy(y, x)
    return loss + 1e-3 * tf.nn.l2_loss(weights)


def cnn_benchmark_script() -> None:
    """Train in a MonitoredTrainingSession, and print each loss exactly."""
    random = np.random.default_rng(0)
    batch = {"images:0": random.normal(size=(8, 8, 8, 3)), "labels:0": random.integers(5, size=8)}
    soft, last = tf1.ConfigProto(allow_soft_placement=True), tf1.train.StopAtStepHook(last_step=3)
    with tf.Graph().as_default():
        built = cnn_benchmark()
        with tf1.train.MonitoredTrainingSession(hooks=[last], config=soft) as session:
            while not session.should_stop():
                print(float(session.run(built, batch)["loss"]).hex())


# --- Programs that are refused


def value_as_a_number() -> Exported:
    w = tf.Variable(1.0)

    @tf.function
    def step(x: Any) -> None:
        print(tf.reduce_sum(x * w).numpy())

    return step, [floats()]


def sizes_that_differ() -> Exported:
    return tf.function(lambda x, y: tf.reduce_sum(x * y)), [floats(2), floats(3)]


def two_layers_of_one_name() -> Exported:
    begin()
    layers = [keras.Input((3,)), L.Dense(4, name="dense"), L.Dense(1, name="dense")]
    return compiled(keras.Sequential(layers), loss="mse"), (floats(3), floats(1))


def tensor_of_another_trace() -> Exported:
    """The layer is built by the first of two traces; Keras cannot fit it either."""
    begin()
    layers = [L.Normalization(mean=0.5, variance=2.0), L.Dense(1)]
    return compiled(keras.Sequential(layers), loss="mse"), (floats(3), floats(1))


def variable_in_the_step() -> Exported:
    return tf.function(lambda x: tf.Variable(x).assign_add(x)), [floats()]


def fits_itself() -> Any:
    begin()
    model = compiled(keras.Sequential([keras.Input((3,)), L.Dense(1)]), loss="mse")
    return model.fit(tf.ones([4, 3]), tf.ones([4, 1]), verbose=0)


def lookup_in_the_model() -> Exported:
    begin()
    layers = [L.IntegerLookup(vocabulary=[1, 2, 3]), L.Embedding(6, 2), L.Flatten(), L.Dense(1)]
    model = keras.Sequential([keras.Input((1,), dtype="int32"), *layers])
    return compiled(model, loss="mse"), (ints(1), floats(1))


def recomputed_by_keras() -> Exported:
    """Keras itself refuses to fit it."""
    begin()
    with keras.RematScope(mode="full"):
        layers = [keras.Input((3,)), L.Dense(4), L.Dense(1)]
    return compiled(keras.Sequential(layers), loss="mse"), (floats(3), floats(1))


def ragged_words() -> Exported:
    w = tf.Variable(1.0)
    words = tf.RaggedTensorSpec([BATCH, None], tf.float32, ragged_rank=1)
    return tf.function(lambda x: w.assign_sub(tf.reduce_sum(x))), [words]


def data_set_in_the_step() -> Exported:
    w = tf.Variable(1.0)
    batches = iter(tf.data.Dataset.from_tensors(tf.ones([BATCH])).repeat())
    return tf.function(lambda x: w.assign_sub(tf.reduce_sum(next(batches) * x))), [floats()]


if __name__ == "__main__":
    cnn_benchmark_script()
