"""The zoo's models are complete training graphs that learn, and say where their ops belong."""

import re
from itertools import pairwise

import numpy as np
import pytest

from pesto_cli.errors import BadInputError
from pesto_cli.graphdef.export import export
from pesto_cli.graphdef.fetches import feed_names, fetch_names, init_names, node_name
from pesto_cli.graphdef.structure import ancestors, check_structure
from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.zoo import MODELS, build

TINY = ["RNNLM-tiny", "Transformer-tiny"]


def losses_of_five_steps(meta, values=20):
    """Train an exported graph in a graph of its own, on one batch of seeded token ids."""
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


@pytest.fixture(scope="module", params=TINY)
def tiny(request):
    return export(f"zoo:{request.param}")


def test_a_tiny_model_learns_after_export(tiny):
    losses = losses_of_five_steps(tiny)
    assert all(later < earlier for earlier, later in pairwise(losses))
    assert losses[0] == pytest.approx(np.log(20), rel=0.35)


def test_two_builds_of_a_model_start_from_the_same_values(tiny):
    name = next(model for model in TINY if model.startswith(_family(tiny)))
    assert losses_of_five_steps(tiny) == losses_of_five_steps(export(f"zoo:{name}"))


def _family(meta):
    return "Transformer" if any(n.name.startswith("encoder/") for n in meta.graph_def.node) else "R"


@pytest.mark.parametrize("name", TINY)
def test_a_name_is_found_in_any_case(name):
    with tensorflow().Graph().as_default():
        assert set(build(name.upper())) == {"train_op", "loss"}


def test_an_unknown_model_is_refused_with_the_list_of_models():
    with pytest.raises(BadInputError, match="RNNLM-2-2048, RNNLM-4-2048") as refused:
        build("RNNLM-3-1")
    assert all(name in str(refused.value) for name in MODELS)


def step_types(name):
    """The ops of a full-size model's training step, by name, without a value of a variable."""
    tf = tensorflow()
    with tf.Graph().as_default() as graph:
        built = build(name)
        graph_def = graph.as_graph_def()
    check_structure(graph_def, name)
    needed = ancestors(graph_def, [built["train_op"].name, node_name(built["loss"].name)])
    return {node.name: node.op for node in graph_def.node if node.name in needed}


def test_rnnlm_2_2048_has_two_layers_of_twenty_steps():
    types = step_types("RNNLM-2-2048")
    assert 1_500 < len(types) < 5_000
    cells = {re.match(r"layer_(\d)/step_(\d+)/MatMul$", name) for name in types} - {None}
    assert {(int(cell[1]), int(cell[2])) for cell in cells} == {
        (layer, step) for layer in range(2) for step in range(20)
    }
    assert list(types.values()).count("ResourceApplyGradientDescent") == 6


def test_every_forward_op_of_the_transformer_lies_in_a_layer_or_a_named_part():
    parts = re.compile(
        r"(input|embedding/(source|target)|encoder/layer_\d+|decoder/layer_\d+|softmax|loss"
        r"|gradients|beta[12]_power|train_op)(/|$)"
    )
    types = step_types("Transformer-tiny")
    assert [name for name in types if not parts.match(name)] == []
