"""The zoo's models are complete training graphs that learn, with scopes for all ops."""

import re
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from pesto_cli.errors import BadInputError
from pesto_cli.graphdef.export import export, flat_step
from pesto_cli.graphdef.fetches import feed_names, fetch_names, init_names, node_name
from pesto_cli.graphdef.scripts import built_graph
from pesto_cli.graphdef.structure import ancestors, check_structure
from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.zoo import FAMILIES, MODELS, build, check_name
from pesto_cli.zoo.nasnet import nasnet_logits

TINY = [name for name in MODELS if name.endswith("-tiny")]


def losses_of_five_steps(meta, values=20):
    """Train an exported graph in a new tf.Graph on one batch of random token ids."""
    tf1 = tensorflow().compat.v1
    random = np.random.default_rng(0)
    with tf1.Graph().as_default() as graph:
        tf1.train.import_meta_graph(meta)
        feeds = {}
        for name in feed_names(meta):
            tensor = graph.get_tensor_by_name(f"{name}:0")
            feeds[tensor] = random.integers(values, size=tensor.shape)
        with tf1.Session() as session:
            session.run(init_names(meta))
            return [session.run(list(fetch_names(meta)), feeds)[1] for _ in range(5)]


@cache
def exported(name):
    return export(f"zoo:{name}")


@pytest.fixture(scope="module", params=TINY)
def tiny(request):
    meta = exported(request.param)
    return request.param, meta, losses_of_five_steps(meta)


@pytest.fixture(scope="module")
def built_again(tiny):
    """What `build` returns for the name in capitals, and its graph, completed like any other."""
    name, _, _ = tiny
    with tensorflow().Graph().as_default():
        built = build(name.upper())
        return built, flat_step(built_graph(built, name), name, as_built=True)


def test_a_tiny_model_learns_after_export(tiny):
    _, _, losses = tiny
    assert all(later < earlier for earlier, later in pairwise(losses))
    assert losses[0] == pytest.approx(np.log(20), rel=0.35)


def test_a_model_is_complete_when_it_is_built(tiny, built_again):
    (_, meta, _), (_, other) = tiny, built_again
    steps = [step.SerializeToString(deterministic=True) for step in (meta, other)]
    assert steps[0] == steps[1]


def test_two_builds_of_a_model_have_the_same_initial_values(tiny, built_again):
    (_, _, losses), (_, other) = tiny, built_again
    assert losses_of_five_steps(other) == losses


def test_model_names_are_case_insensitive(built_again):
    built, _ = built_again
    assert set(built) == {"train_op", "loss"}


def test_the_error_for_an_unknown_model_lists_the_models():
    with pytest.raises(BadInputError, match="RNNLM-2-2048, RNNLM-4-2048") as refused:
        build("RNNLM-3")
    assert all(name in str(refused.value) for name in MODELS)
    assert "Transformer-LAYERS-HEADS-HIDDEN" in str(refused.value)


@pytest.mark.parametrize("name", ["RNNLM-2-0", "RNNLM-2--1", "RNNLM-2-x", "NMT-2-8-1", "RNNLM-tin"])
def test_a_name_with_sizes_that_are_not_positive_integers_is_refused(name):
    with pytest.raises(BadInputError, match="not in the zoo"):
        build(name)


def shapes_of_placeholders(name):
    with tensorflow().Graph().as_default() as graph:
        build(name)
        feeds = [each for each in graph.get_operations() if each.type == "Placeholder"]
        return {tuple(each.outputs[0].shape.as_list()) for each in feeds}


def test_arguments_in_a_name_replace_those_of_the_builder():
    assert shapes_of_placeholders("RNNLM-1-8@batch=3,steps=5") == {(3, 5)}
    assert shapes_of_placeholders("rnnlm-TINY@ Steps = 2 , seed=0,learning_rate=1e-3") == {(4, 2)}
    assert shapes_of_placeholders("RNNLM-tiny@layers=1,hidden=4") == {(4, 3)}


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("bath=8", "no argument 'bath'. Did you mean 'batch'?"),
        ("batch=8,name=2", "no argument 'name'."),
        ("batch=8,BATCH=9", "batch is given twice;"),
        ("layers=3", "layers is given twice; a size in the name counts"),
        ("batch=0", "batch is '0'; a whole number above 0 was expected"),
        ("batch=-1", "batch is '-1'; a whole"),
        ("batch=8.0", "batch is '8.0'; a whole"),
        ("batch=9999999999999999999", "batch is '9999999999999999999'; a whole"),
        ("seed=-1", "seed is '-1'; a whole number of at least 0 was"),
        ("learning_rate=0", "learning_rate is '0'; a number above 0 was expected"),
        ("learning_rate=nan", "learning_rate is 'nan'; a number"),
        ("", "'' has no key or no value; KEY=VALUE was expected"),
        ("batch=8,", "'' has no key"),
        ("batch=8,,seed=1", "'' has no key"),
        ("batch", "'batch' has no key or no value"),
        ("batch=", "'batch=' has no key or no value"),
        ("=8", "'=8' has no key or no value"),
        ("batch=8@seed=1", "batch is '8@seed=1'"),
    ],
)
def test_an_argument_that_the_builder_does_not_have_is_refused(given, problem):
    with pytest.raises(BadInputError) as refused:
        check_name(f"RNNLM-2-8@{given}")
    assert problem in str(refused.value)
    assert str(refused.value).startswith(f"zoo model 'RNNLM-2-8@{given}': ")
    assert "batch, steps, vocabulary, learning_rate, scale, seed." in str(refused.value)


@pytest.mark.parametrize("name", ["RNNLM-2-99999999999999", "LeNet@batch=3000000000"])
def test_tensors_that_are_too_large_are_refused(name):
    with tensorflow().Graph().as_default(), pytest.raises(BadInputError, match="cannot build it"):
        build(name)


def test_the_models_are_names_of_all_families():
    for name in MODELS:
        check_name(name)
    of_family = {
        key: [name for name in MODELS if family.arguments(key, name) is not None]
        for key, family in FAMILIES.items()
    }
    assert sum(map(len, of_family.values())) == len(set(MODELS))
    assert all(len(names) >= 2 for names in of_family.values())


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Transformer-1-3-8", "multiple of the number of heads"),
        ("NMT-1-8", "two"),
        ("NASNet-1-6", "of 4"),
    ],
)
def test_sizes_that_a_model_cannot_have_are_refused(name, expected):
    with pytest.raises(BadInputError, match=expected):
        build(name)


def test_the_sizes_in_a_name_are_those_of_the_model():
    with tensorflow().Graph().as_default() as graph:
        build("transformer-3-2-8")
        names = [node.name for node in graph.as_graph_def().node]
        variables = {
            v.op.name: v.shape.as_list() for v in tensorflow().compat.v1.global_variables()
        }
        heads = graph.get_tensor_by_name("encoder/layer_0/self_attention/weights/Softmax:0").shape[
            1
        ]
    layers = (re.match(r"(encoder|decoder)/layer_(\d+)/", name) for name in names)
    assert {match.groups() for match in layers if match} == {
        (side, str(layer)) for side in ("encoder", "decoder") for layer in range(3)
    }
    assert variables["encoder/layer_2/self_attention/query/kernel"] == [8, 8]
    assert heads == 2


def step_nodes(meta):
    """Return the nodes of a training step by name, without initialising nodes."""
    needed = ancestors(meta.graph_def, map(node_name, fetch_names(meta)))
    return {node.name: node for node in meta.graph_def.node if node.name in needed}


PARTS = {
    "RNNLM-tiny": r"input|embedding|layer_\d|softmax|loss",
    "NMT-tiny": r"input|encoder/(embedding|layer_\d)|attention|decoder/(embedding|layer_\d)"
    r"|softmax|loss|clip(_1)?",
    "Transformer-tiny": r"input|embedding/(source|target)|encoder/layer_\d|decoder/layer_\d|softmax"
    r"|loss|beta[12]_power",
    "GNMT-tiny": r"input|encoder/(embedding|layer_\d)|attention|decoder/(embedding|layer_\d)"
    r"|softmax|loss|clip(_1)?",
    "BERT-large-tiny": r"input|embedding/(words|segments|positions|norm)|layer_\d|masked_words"
    r"|next_sentence|loss|beta[12]_power",
    "XLNet-large-tiny": r"input|embedding/(words|unknown)|masks|positions|layer_\d|softmax|loss"
    r"|beta[12]_power",
    "GPT-1.3B-tiny": r"input|embedding/(words|positions)|layer_\d|norm|softmax|loss|beta[12]_power",
    "NASNet-tiny": r"input|stem/(conv|reduction_cell_\d)|cell_\d|softmax|loss|clip(_1)?",
    "VGG-19-tiny": r"input|conv\d_\d|pool\d|fc[67]|softmax|loss",
    "ResNet-200-tiny": r"input|stem|stage_\d/unit_\d|postnorm|softmax|loss",
    "Inception-v3-tiny": r"input|stem/layer_\d|mixed_\d+/(branch_\d/layer_\d|output)|head"
    r"|softmax|loss",
    "MobileNet-v2-tiny": r"input|stem|block_\d+|head|softmax|loss",
    "LeNet-tiny": r"input|[cs]\d|f6|softmax|loss",
    "CIFAR-10-tiny": r"input|(conv|pool|norm)\d|local[34]|softmax|loss",
    "AlexNet-tiny": r"input|conv\d|pool\d|fc[67]|softmax|loss",
}


def test_every_op_is_in_the_scope_of_a_layer_a_named_part_or_the_gradients(tiny):
    name, meta, _ = tiny
    part = re.compile(
        rf"(mul|({PARTS[name]}|gradients|train_op|apply|sgd|adam|rmsprop|momentum)(/|$))"
    )
    assert [node for node in step_nodes(meta) if not part.match(node)] == []


def test_rnnlm_2_2048_has_two_layers_of_twenty_steps():
    with tensorflow().Graph().as_default() as graph:
        built = build("RNNLM-2-2048")
        graph_def = graph.as_graph_def()
    check_structure(graph_def, "RNNLM-2-2048")
    needed = ancestors(graph_def, [built["train_op"].name, node_name(built["loss"].name)])
    types = {node.name: node.op for node in graph_def.node if node.name in needed}
    assert 1_500 < len(types) < 5_000
    cells = {re.match(r"layer_(\d)/step_(\d+)/MatMul$", name) for name in types} - {None}
    assert {(int(cell[1]), int(cell[2])) for cell in cells} == {
        (layer, step) for layer in range(2) for step in range(20)
    }
    assert list(types.values()).count("ResourceApplyGradientDescent") == 6


@pytest.mark.parametrize(
    ("output", "part", "steps"),
    [
        ("encoder/layer_0/forward/step_1", "encoder/layer_0/forward", {0, 1}),
        ("encoder/layer_0/backward/step_1", "encoder/layer_0/backward", {1, 2}),
        ("encoder/layer_1/step_0", "encoder/layer_0/forward", {0}),
        ("encoder/layer_1/step_0", "encoder/layer_0/backward", {0, 1, 2}),
        ("attention/step_1", "encoder/layer_2", {0, 1, 2}),
        ("attention/step_1", "decoder/layer_0", {0, 1}),
        ("decoder/layer_0/step_1", "attention", {0}),
        ("decoder/layer_1/step_1", "attention", {0, 1}),
        ("decoder/layer_2/step_1", "decoder/layer_1", {0, 1}),
        ("softmax/step_1", "decoder/layer_2", {0, 1}),
    ],
)
def test_a_step_of_nmt_depends_only_on_the_steps_given_by_wu_et_al(output, part, steps):
    graph_def = exported("NMT-tiny").graph_def
    inside = [node.name for node in graph_def.node if node.name.startswith(f"{output}/")]
    needed = (re.match(rf"{part}/step_(\d)/", name) for name in ancestors(graph_def, inside))
    assert {int(match[1]) for match in needed if match} == steps


def test_nasnet_of_6_cells_and_168_filters_has_the_published_number_of_parameters():
    """The trainable parameters of `tf.keras.applications.NASNetLarge`."""
    tf1 = tensorflow().compat.v1
    with tf1.Graph().as_default():
        images = tf1.placeholder(tf1.float32, [1, 331, 331, 3])
        nasnet_logits(images, cells=6, filters=168)
        sizes = [variable.shape.num_elements() for variable in tf1.trainable_variables()]
    assert sum(sizes) == 88_753_150


# Trainable parameters. Keras applications count those that are not trainable, too: the moving
# averages of batch norm.
PUBLISHED = {
    "VGG-19": 143_667_240,  # keras.applications.VGG19
    "Inception-v3": 23_851_784 - 34_432,  # keras.applications.InceptionV3
    "MobileNet-v2": 3_538_984 - 34_112,  # keras.applications.MobileNetV2
    "AlexNet": 61_100_840,  # torchvision.models.alexnet
    # What builds keras.applications.ResNet152V2, with 24 instead of 8 units in the second stage.
    "ResNet-200": 64_894_440 - 168_320,
    # With full connections in c3 and pools without parameters; LeCun et al.: about 60,000.
    "LeNet": 61_706,
    "CIFAR-10": 1_068_298,  # tensorflow/models, tutorials/image/cifar10
}


@pytest.fixture
def without_updates(monkeypatch):
    """Leave gradients and updates out of models, as they have no trainable parameters."""
    tf1 = tensorflow().compat.v1
    monkeypatch.setattr(tf1, "gradients", lambda loss, variables, **_: variables)
    monkeypatch.setattr(tf1.train.Optimizer, "apply_gradients", lambda *_, **__: tf1.no_op())


@pytest.mark.usefixtures("without_updates")
@pytest.mark.parametrize("name", PUBLISHED)
def test_an_image_classifier_has_the_published_number_of_parameters(name):
    with tensorflow().Graph().as_default():
        build(f"{name}@batch=1")
        variables = tensorflow().compat.v1.trainable_variables()
        assert sum(v.shape.num_elements() for v in variables) == PUBLISHED[name]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("VGG-19@size=31", "a VGG gets images of 31 x 31 pixels; at least 32 x 32"),
        ("AlexNet@size=62", "at least 63 x 63"),
        ("LeNet@size=15", "at least 16 x 16"),
        ("Inception-v3@size=74", "at least 75 x 75"),
        ("Inception-v3@filters=3", "a multiple of 2"),
        ("MobileNet-v2@filters=6", "a multiple of 4"),
    ],
)
def test_images_or_filters_that_a_classifier_cannot_have_are_refused(name, expected):
    with tensorflow().Graph().as_default(), pytest.raises(BadInputError, match=expected):
        build(name)


@pytest.mark.parametrize(
    "name", ["VGG-19@size=32", "AlexNet@size=63", "LeNet@size=16", "ResNet-200-tiny@size=1"]
)
def test_images_of_the_least_size_are_accepted(name):
    with tensorflow().Graph().as_default():
        build(f"{name},batch=1")


NORMALISED = ["NASNet-tiny", "ResNet-200-tiny", "Inception-v3-tiny", "MobileNet-v2-tiny"]


@pytest.mark.parametrize("name", NORMALISED)
def test_every_batch_norm_updates_its_moving_averages(name):
    nodes = step_nodes(exported(name)).values()
    types = [node.op for node in nodes]
    assert types.count("AssignSubVariableOp") == 2 * types.count("FusedBatchNormV3") > 0
