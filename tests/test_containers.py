"""The format of graph files follows from their content; other files are refused with a reason."""

import json
import zipfile

import pytest

from pesto_cli.errors import BadInputError, EnvironmentFailedError, PestoError
from pesto_cli.graphdef import containers
from pesto_cli.graphdef.containers import read_meta_graph, read_saved_model, write_meta_graph
from pesto_cli.graphdef.hashing import graph_hash
from pesto_cli.graphdef.structure import find_cycle
from pesto_cli.graphdef.tensorflow import tensorflow


@pytest.fixture(scope="module")
def meta():
    """A small graph with a collection."""
    tf1 = tensorflow().compat.v1
    with tf1.Graph().as_default() as graph:
        x = tf1.placeholder(tf1.float32, [2, 3], name="x")
        w = tf1.Variable(tf1.ones([3, 2]), name="w", use_resource=True)
        graph.add_to_collection("train_op", tf1.matmul(x, w, name="y").op)
        return tf1.train.export_meta_graph()


@pytest.mark.parametrize("name", ["g.meta", "g.pb", "g.pbtxt", "g.anything"])
def test_a_graph_is_read_from_any_container_under_any_name(meta, tmp_path, name):
    write_meta_graph(tmp_path / name, meta)
    read = read_meta_graph(tmp_path / name)
    assert read.graph_def == meta.graph_def
    assert ("train_op" in read.collection_def) == (name != "g.pb")


def test_a_name_does_not_decide_how_a_file_is_read(meta, tmp_path):
    (tmp_path / "g.meta").write_bytes(meta.graph_def.SerializeToString())
    (tmp_path / "g.pb").write_text(str(meta.graph_def))
    assert read_meta_graph(tmp_path / "g.meta").graph_def == meta.graph_def
    assert read_meta_graph(tmp_path / "g.pb").graph_def == meta.graph_def


def test_a_saved_model_directory_is_read(meta, tmp_path):
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

    saved = SavedModel(saved_model_schema_version=1)
    saved.meta_graphs.add().CopyFrom(meta)
    (tmp_path / "saved_model.pb").write_bytes(saved.SerializeToString())
    assert read_meta_graph(tmp_path).graph_def == meta.graph_def
    assert read_meta_graph(tmp_path / "saved_model.pb").graph_def == meta.graph_def


def test_writing_twice_results_in_the_same_bytes(meta, tmp_path):
    for name in "ab":
        write_meta_graph(tmp_path / f"{name}.meta", read_meta_graph_copy(meta))
    assert (tmp_path / "a.meta").read_bytes() == (tmp_path / "b.meta").read_bytes()


def read_meta_graph_copy(meta):
    return type(meta).FromString(meta.SerializeToString())


@pytest.mark.parametrize("share", [0.3, 0.7, 0.99])
@pytest.mark.parametrize("name", ["g.meta", "g.pb", "g.pbtxt"])
def test_a_truncated_file_is_refused(meta, tmp_path, name, share):
    path = tmp_path / name
    write_meta_graph(path, meta)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(BadInputError, match=r"truncated|breaks off") as refused:
        read_meta_graph(path)
    assert str(path) in str(refused.value)


def refused_message(path):
    with pytest.raises(BadInputError) as refused:
        read_meta_graph(path)
    message = str(refused.value)
    assert message.startswith(str(path))
    assert "expected" in message
    return message


def test_missing_empty_and_foreign_files_are_refused_with_what_was_found(tmp_path):
    assert "no such file" in refused_message(tmp_path / "nothing.meta")
    for source in ("zoo:RNNLM-tiny", "train.py:build"):
        assert f"pesto export {source} -o" in refused_message(source)
    foreign = {
        "empty.pb": (b"", "an empty file"),
        "profile.json": (json.dumps({"format": "pesto-profile"}).encode(), "JSON"),
        "model.h5": (b"\x89HDF\r\n\x1a\n" + bytes(64), "HDF5.*compiles it and returns it"),
        "notes.pb": (b"these are my notes\n", "text that holds no graph"),
        "noise.pb": (bytes(range(200, 256)) * 20, "truncated, or binary data of another kind"),
        "packed.pb": (b"\x1f\x8b" + bytes(20), "gzip data.*Decompress the file"),
    }
    for name, (data, expected) in foreign.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(BadInputError, match=expected):
            read_meta_graph(tmp_path / name)
        refused_message(tmp_path / name)


def test_a_keras_archive_is_refused_with_the_way_to_export_it(tmp_path):
    with zipfile.ZipFile(tmp_path / "model.keras", "w") as archive:
        archive.writestr("config.json", "{}")
    assert "script.py:function" in refused_message(tmp_path / "model.keras")


def test_a_graph_without_nodes_is_refused(tmp_path):
    tf1 = tensorflow().compat.v1
    empty = tf1.MetaGraphDef()
    empty.meta_info_def.tensorflow_version = "2"
    (tmp_path / "g.meta").write_bytes(empty.SerializeToString())
    refused_message(tmp_path / "g.meta")


def test_a_directory_that_is_not_a_saved_model_is_refused(meta, tmp_path):
    assert "without saved_model.pb" in refused_message(tmp_path)
    (tmp_path / "saved_model.pb").write_bytes(meta.graph_def.SerializeToString())
    with pytest.raises(BadInputError, match="truncated or holds no graph"):
        read_saved_model(tmp_path)


def test_a_failed_write_leaves_the_old_file_and_nothing_else(meta, tmp_path, monkeypatch):
    path = tmp_path / "g.meta"
    write_meta_graph(path, meta)
    before = path.read_bytes()

    def no_space(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", no_space)
    with pytest.raises(EnvironmentFailedError, match="No space left"):
        write_meta_graph(path, meta)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["g.meta"]


def test_a_folder_that_does_not_exist_is_refused(meta, tmp_path):
    with pytest.raises(PestoError, match="does not exist"):
        write_meta_graph(tmp_path / "no" / "g.meta", meta)


def test_every_remedy_is_used():
    kinds = {kind for _, kind in containers._OTHER_FORMATS.values()} | {"json", "text"}
    assert kinds == set(containers._REMEDIES)


# --- hash and cycles


def test_the_hash_depends_on_nodes_but_not_on_their_order_or_devices(meta):
    placed = read_meta_graph_copy(meta).graph_def
    nodes = list(reversed(placed.node))
    del placed.node[:]
    placed.node.extend(nodes)
    for node in placed.node:
        node.device = "/device:GPU:1"
        node.attr["_class"].list.s.append(b"loc:@x")
    placed.versions.producer = 1
    assert graph_hash(placed) == graph_hash(meta.graph_def)


def test_different_graphs_have_different_hashes(meta):
    changed = read_meta_graph_copy(meta).graph_def
    next(node for node in changed.node if node.name == "y").input.append("^x")
    renamed = read_meta_graph_copy(meta).graph_def
    renamed.node[-1].name += "_1"
    function = read_meta_graph_copy(meta).graph_def
    function.library.function.add().signature.name = "body"
    hashes = {graph_hash(g) for g in (meta.graph_def, changed, renamed, function)}
    assert len(hashes) == 4


def test_a_while_loop_of_tensorflow_1_is_not_a_cycle():
    graph_def = tensorflow().compat.v1.GraphDef()
    for name, op, inputs in (
        ("enter", "Enter", []),
        ("merge", "Merge", ["enter", "next"]),
        ("next", "NextIteration", ["merge"]),
    ):
        graph_def.node.add(name=name, op=op, input=inputs)
    assert find_cycle(graph_def) == []
    graph_def.node[0].input.append("^next")
    assert sorted(find_cycle(graph_def)) == ["enter", "merge", "next"]
