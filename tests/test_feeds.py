"""Tests of feeds: small valid data by default, or the user's data."""

import zipfile
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from training_graphs import exported

from pesto_cli.errors import BadInputError
from pesto_cli.files.arrays import write_arrays
from pesto_cli.graphdef.tensorflow import tensorflow
from pesto_cli.runtime.feeds import batches, write_feeds

FEEDS = {"words": np.full([2, 3], 7), "scale": np.array(0.5)}


def fed(tf: Any) -> Sequence[Any]:
    tf1 = tf.compat.v1
    words = tf1.placeholder(tf.int32, [2, 3], name="words")
    scale = tf1.placeholder(tf.float32, [], name="scale")
    tf1.placeholder(tf.float32, [None], name="not_needed")
    return [tf.multiply(tf.cast(words, tf.float32), scale, name="result")]


@pytest.fixture(scope="module")
def meta() -> Any:
    return exported(fed)


def first(meta: Any, source: object) -> Any:
    return next(iter(batches(meta, str(source))))


def test_by_default_integers_are_0_and_floats_are_normal_and_the_same_in_every_run() -> None:
    def build(tf: Any) -> Sequence[Any]:
        kinds = (tf.int32, tf.float32, tf.bool, tf.string, tf.bfloat16, tf.complex64, tf.uint8)
        return [tf.compat.v1.placeholder(kind, [2, 100], name=kind.name) for kind in kinds]

    meta = exported(build)
    batch, again = next(batches(meta)), next(batches(meta))
    assert {name: array.shape for name, array in batch.items()} == dict.fromkeys(batch, (2, 100))
    assert not batch["int32"].any()
    assert not batch["uint8"].any()
    assert not batch["bool"].any()
    assert set(batch["string"].flat) == {b""}
    for name in ("float32", "bfloat16", "complex64"):
        assert 0.8 < np.std(batch[name].astype(np.complex64)) < 1.2
        np.testing.assert_array_equal(batch[name], again[name])


def test_only_placeholders_that_the_fetches_need_are_fed(meta: Any) -> None:
    assert set(next(batches(meta))) == {"words", "scale"}


def test_written_feeds_are_read_as_they_were(tmp_path: Path) -> None:
    def build(tf: Any) -> Sequence[Any]:
        kinds = {"file": tf.string, "allow_pickle": tf.int32, "a/b": tf.bfloat16}
        return [tf.compat.v1.placeholder(kind, [2, 2], name=name) for name, kind in kinds.items()]

    meta, path = exported(build), tmp_path / "feeds.npz"
    words = np.array([[b"\1\2\0\0", b""], [b"\0", "a"]], object)
    half = next(batches(meta))["a/b"]
    write_feeds(path, {"file": words, "allow_pickle": np.arange(4).reshape(2, 2), "a/b": half})
    before = path.read_bytes()
    found = first(meta, path)
    assert found["file"].tolist() == [[b"\1\2\0\0", b""], [b"\0", b"a"]]
    assert found["allow_pickle"].tolist() == [[0, 1], [2, 3]]
    np.testing.assert_array_equal(found["a/b"], half)
    write_feeds(path, {"file": words, "allow_pickle": np.arange(4).reshape(2, 2), "a/b": half})
    assert path.read_bytes() == before
    wrong = {"file": np.array([[b"a", b"b"]] * 2), "file.lengths": np.full((2, 2), 10**12)}
    with zipfile.ZipFile(path, "w") as archive:
        write_arrays(archive, wrong)
    with pytest.raises(BadInputError, match=r"no placeholder 'file\.lengths'"):
        first(meta, path)


def test_without_data_an_open_shape_is_refused_with_the_remedy() -> None:
    def build(tf: Any) -> Sequence[Any]:
        return [tf.compat.v1.placeholder(tf.float32, [None, 4], name="images")]

    with pytest.raises(BadInputError, match=r"'images' .*\[\?,4\].*--feed images=32,4, or .*--fee"):
        batches(exported(build))


def test_a_file_gives_every_step_the_same_data_in_the_types_of_the_graph(
    meta: Any, tmp_path: Path
) -> None:
    np.savez(tmp_path / "data.npz", **FEEDS)
    one, other = islice(batches(meta, str(tmp_path / "data.npz")), 2)
    assert one["words"].dtype == np.int32
    assert one["scale"].dtype == np.float32
    assert (one["words"] == 7).all()
    assert (other["words"] == one["words"]).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"words": None}, "there is no array for placeholder 'words'"),
        ({"words": np.zeros([3, 2], np.int32)}, r"'words' is int32 of shape \[3,2\]; int32"),
        ({"words": np.zeros([2, 3])}, r"'words' is float64 .*int32 of shape \[2,3\]"),
        ({"wrods": FEEDS["words"]}, "no placeholder 'wrods'. Did you mean words"),
        ({"result": np.zeros([2, 3])}, "no placeholder 'result'"),
    ],
)
def test_data_of_a_wrong_shape_or_type_is_refused_with_its_name(
    meta: Any, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    arrays = {name: array for name, array in {**FEEDS, **change}.items() if array is not None}
    np.savez(tmp_path / "data.npz", **arrays)
    with pytest.raises(BadInputError, match=message):
        first(meta, tmp_path / "data.npz")


def test_a_source_that_cannot_be_read_is_refused(meta: Any, tmp_path: Path) -> None:
    (tmp_path / "data.npz").write_bytes(b"PK\x03\x04 cut short")
    for source, message in (
        (tmp_path / "data.npz", "cannot be read"),
        (tmp_path / "none.npz", "does not exist"),
        (tmp_path / "data.csv", "neither an .npz file nor script.py:function"),
        (f"{tmp_path / 'none.py'}:feeds", "does not exist"),
    ):
        with pytest.raises(BadInputError, match=message):
            first(meta, source)


SCRIPT = """
import numpy as np

def batch(word=7):
    return {"words": np.full([2, 3], word), "scale:0": 0.5}

def three():
    return (batch(word) for word in range(3))

def none():
    return []

def numbers():
    return [1]

def fails():
    yield batch()
    raise KeyError("no more")

def ragged():
    return {"words": [[1, 2], [3]], "scale": 0.5}

def dataset():
    import tensorflow as tf
    rows = tf.data.Dataset.range(3)
    return rows.map(lambda row: {"words": tf.fill([2, 3], tf.cast(row, tf.int32)), "scale": 0.5})
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "data.py"
    path.write_text(SCRIPT)
    return path


def words(meta: Any, source: str, count: int) -> list[int]:
    return [int(batch["words"][0, 0]) for batch in islice(batches(meta, source), count)]


def test_a_function_gives_one_batch_for_all_steps_or_one_for_each(meta: Any, script: Path) -> None:
    assert words(meta, f"{script}:batch", 3) == [7, 7, 7]
    assert words(meta, f"{script}:three", 7) == [0, 1, 2, 0, 1, 2, 0]


def test_a_function_runs_eagerly_and_adds_no_ops_to_the_graph_of_the_step(
    meta: Any, script: Path
) -> None:
    with tensorflow().Graph().as_default() as graph:
        assert words(meta, f"{script}:dataset", 4) == [0, 1, 2, 0]
        assert not graph.get_operations()


def test_a_function_that_gives_no_batches_is_refused(meta: Any, script: Path) -> None:
    for name, message in (
        ("none", "returned no batch"),
        ("numbers", "a batch is a int"),
        ("ragged", "the value for placeholder 'words' is no array"),
        ("batches", "no function 'batches'. Did you mean batch"),
    ):
        with pytest.raises(BadInputError, match=message):
            first(meta, f"{script}:{name}")


def test_a_function_that_fails_is_reported_with_its_line(meta: Any, script: Path) -> None:
    with pytest.raises(BadInputError, match="fails: failed in line 18: KeyError: 'no more'"):
        words(meta, f"{script}:fails", 2)
