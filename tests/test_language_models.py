"""BERT, XLNet and GPT have the published sizes, and each word reads what it may read."""

import numpy as np
import pytest

from pesto_cli.errors import BadInputError
from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.zoo import build
from pesto_cli.zoo.tying import tied_table
from pesto_cli.zoo.xlnet import relative_shift, unread_words


def num_parameters(name, layers, **sizes):
    """Return the trainable parameters of a model, from those of one layer and of two layers."""
    given = "".join(f",{key}={size}" for key, size in sizes.items())
    one, two = (_num_trainable(f"{name}@layers={number}{given}") for number in (1, 2))
    return one + (layers - 1) * (two - one)


def _num_trainable(name):
    tf1 = tensorflow().compat.v1
    with tf1.Graph().as_default():
        build(name)
        return sum(variable.shape.num_elements() for variable in tf1.trainable_variables())


def dense(inputs, outputs):
    return inputs * outputs + outputs


@pytest.mark.parametrize(
    ("layers", "hidden", "heads", "published"),
    [(24, 1024, 16, 340e6), (12, 768, 12, 110e6)],
    ids=["large", "base"],
)
def test_bert_has_the_published_number_of_parameters(layers, hidden, heads, published):
    """Devlin et al., section 3: 340M and 110M; the counts of github.com/google-research/bert."""
    inner, vocabulary, norm = 4 * hidden, 30_522, 2 * hidden
    embedding = (vocabulary + 512 + 2) * hidden + norm
    attention = 4 * dense(hidden, hidden) + norm
    feed_forward = dense(hidden, inner) + dense(inner, hidden) + norm
    encoder = embedding + layers * (attention + feed_forward) + dense(hidden, hidden)
    outputs = dense(hidden, hidden) + norm + vocabulary + dense(hidden, 2)
    found = num_parameters("BERT-large", layers, hidden=hidden, heads=heads, inner=inner)
    assert found == encoder + outputs == pytest.approx(published, rel=0.015)
    assert (encoder == 335_141_888) == (layers == 24)


def test_xlnet_large_has_the_parameters_of_the_published_program():
    """Yang et al., section 3.1: the sizes of BERT-large.

    Their layers have a fifth kernel in the attention, for distances, and three biases and two
    segment keys for each head, but no biases of dense layers in the attention.
    """
    layers, hidden, inner, vocabulary = 24, 1024, 4096, 32_000
    norm = 2 * hidden
    attention = 5 * hidden**2 + (3 + 2) * hidden + norm
    feed_forward = dense(hidden, inner) + dense(inner, hidden) + norm
    encoder = vocabulary * hidden + hidden + layers * (attention + feed_forward)
    assert encoder == 360_268_800
    assert num_parameters("XLNet-large", layers) == encoder + vocabulary


def test_gpt_has_the_parameters_of_gpt_3_xl():
    """Brown et al., Table 2.1: 1.3B with 24 layers of 2,048."""
    layers, hidden, vocabulary = 24, 2048, 50_257
    norm = 2 * hidden
    attention = 4 * dense(hidden, hidden) + norm
    feed_forward = dense(hidden, 4 * hidden) + dense(4 * hidden, hidden) + norm
    expected = (vocabulary + 2048) * hidden + layers * (attention + feed_forward) + norm
    found = num_parameters("GPT-1.3B", layers, batch=1, length=8)
    assert found == expected == pytest.approx(1.3e9, rel=0.015)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("BERT-large@heads=5", "a BERT has a hidden size of 1024 and 5 heads"),
        ("BERT-large@length=513", "512 positions and sentences of 513 words"),
        ("BERT-large@length=8", "predicts 10 of 8 words"),
        ("XLNet-large@heads=3", "an XLNet has a hidden size of 1024 and 3 heads"),
        ("XLNet-large@length=8", "predicts 10 of 8 words"),
        ("GPT-1.3B@length=4096", "2048 positions and sentences of 4096 words"),
    ],
)
def test_sizes_that_a_model_cannot_have_are_refused(name, expected):
    with pytest.raises(BadInputError, match=expected):
        build(name)


def outputs(name, tensor, *feeds):
    """Return a tensor of a tiny model for each of some feeds."""
    tf1 = tensorflow().compat.v1
    with tf1.Graph().as_default() as graph, tf1.Session() as session:
        build(name)
        session.run(tf1.global_variables_initializer())
        fed = [{f"input/{key}:0": value for key, value in each.items()} for each in feeds]
        return [session.run(graph.get_tensor_by_name(tensor), each) for each in fed]


def differing(first, second):
    """Return the rows that differ."""
    return set(np.flatnonzero(np.abs(first - second).max(axis=-1) > 1e-6).tolist())


def changed(array, place, value):
    array = np.array(array)
    array[place] = value
    return array


def test_a_word_of_gpt_reads_no_later_words():
    words = np.array([[1, 2, 3, 4]])
    feeds = [{"words": words}, {"words": changed(words, (0, 2), 7)}]
    before, after = outputs("GPT-1.3B-tiny@batch=1", "softmax/MatMul:0", *feeds)
    assert differing(before, after) == {2, 3}


WORDS = [[1, 2, 3, 4, 5, 6]]
ORDER = [[0, 0, 2, 0, 3, 1]]  # The words at 5, 2 and 4 are predicted, one after the other.
TARGETS = [[2, 4, 5]]


def test_a_prediction_of_xlnet_reads_the_context_and_earlier_predictions():
    """Three layers: what a prediction must not read does not reach it by another word either."""
    given = {"segments": np.zeros([1, 6]), "order": ORDER, "targets": TARGETS}
    readers = {0: {0, 1, 2}, 3: {0, 1, 2}, 5: {0, 1}, 2: {1}, 4: set()}  # of the word at a place
    words = [WORDS, *(changed(WORDS, (0, place), 9) for place in readers)]
    name, feeds = "XLNet-large-tiny@batch=1,layers=3", [{**given, "words": each} for each in words]
    before, *after = outputs(name, "softmax/BiasAdd:0", *feeds)
    assert [differing(before, each) for each in after] == [*readers.values()]


def test_all_words_of_xlnet_read_the_context_and_no_word_that_is_predicted_reads_itself():
    tf = tensorflow()
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        unread = session.run(unread_words(tf.constant([[0, 2, 0, 1]])))
    assert unread.tolist() == [[[0, 1, 0, 1], [0, 1, 0, 0], [0, 1, 0, 1], [0, 1, 0, 1]]]


def test_a_prediction_of_xlnet_depends_on_its_position_and_on_segments():
    given = {"words": WORDS, "segments": np.zeros([1, 6]), "order": ORDER, "targets": TARGETS}
    other_segment = changed(given["segments"], (0, 0), 1)
    feeds = [given, {**given, "targets": [[2, 4, 4]]}, {**given, "segments": other_segment}]
    name, tensor = "XLNet-large-tiny@batch=1", "softmax/BiasAdd:0"
    before, moved, segmented = outputs(name, tensor, *feeds)
    assert differing(before, moved) >= {2}
    assert differing(before, segmented) == {0, 1, 2}


def test_the_relative_shift_finds_the_score_of_each_distance():
    scores = np.random.default_rng(0).normal(size=[2, 3, 4, 8]).astype(np.float32)
    tf = tensorflow()
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        shifted = session.run(relative_shift(tf.constant(scores)))
    for i in range(4):
        for j in range(4):
            np.testing.assert_array_equal(shifted[..., i, j], scores[..., i, 4 - i + j])


def test_bert_predicts_the_words_at_the_masked_positions():
    """With another masked position, only its prediction differs."""
    words = np.arange(20).reshape(1, 20)
    given = {"words": words, "segments": np.zeros([1, 20])}
    feeds = [{**given, "masked": [masked]} for masked in ([3, 5, 19], [3, 7, 19], [5, 3, 19])]
    name, tensor = "BERT-large-tiny@batch=1", "masked_words/softmax/BiasAdd:0"
    before, moved, exchanged = outputs(name, tensor, *feeds)
    assert differing(before, moved) == {1}
    np.testing.assert_allclose(exchanged, before[[1, 0, 2]], rtol=1e-5)


def test_the_gradient_of_a_tied_table_is_that_of_tensorflow():
    tf = tensorflow()
    tf1 = tf.compat.v1
    with tf1.Graph().as_default(), tf1.Session() as session:
        words = tf.constant([[1, 3, 3], [0, 1, 1]])
        table = tied_table(words, vocabulary=5, hidden=4, seed=0)
        loss = tf.reduce_sum(table.logits(tf.tanh(tf.reshape(table.vectors, [6, 4]))) ** 2)
        found = {variable.op.name: gradient for gradient, variable in table.gradients(loss)}
        variables = {variable.op.name: variable for variable in tf1.trainable_variables()}
        expected = {
            name: tf.convert_to_tensor(tf1.gradients(loss, variable)[0])
            for name, variable in variables.items()
        }
        session.run(tf1.global_variables_initializer())
        found, expected = session.run([found, expected])
    assert found.keys() == expected.keys() == {"table", "softmax/bias"}
    for name, gradient in expected.items():
        np.testing.assert_allclose(found[name], gradient, rtol=1e-5, atol=1e-7)
        assert np.abs(gradient).max() > 0
