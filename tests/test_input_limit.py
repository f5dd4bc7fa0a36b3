"""Tests of the input limit: endless files, and compressed files that decompress to far more."""

import gzip
import os
import subprocess
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Pesto
from fuzz.seeds import write_saved_model
from test_bad_input import small_graph

from pesto_cli import api
from pesto_cli.cli.options import UNITS
from pesto_cli.errors import BadInputError
from pesto_cli.files import read_profile
from pesto_cli.files.reading import (
    CHUNK_BYTES,
    MAX_INPUT_BYTES,
    input_limit,
    max_input_bytes,
    read_bytes,
)
from pesto_cli.graphdef.containers import write_meta_graph
from pesto_cli.graphdef.event_files.events import graphs
from pesto_cli.runtime.feeds import batches

LIMIT = 10_000


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(MAX_INPUT_BYTES + 1)


def compressed(path: Path) -> None:
    path.write_bytes(gzip.compress(bytes(2 * CHUNK_BYTES)) * 2)


READERS: dict[str, Callable[[Path], Any]] = {
    "profile": api.read_profile,
    "placement": api.read_placement,
    "comm": api.read_comm,
    "machine": lambda path: api.read_machine(str(path)),
    "constraints": api.read_constraints,
    "graph": api.read_meta_graph,
    "any": api.load,
}


@pytest.mark.parametrize("kind", READERS)
def test_a_file_above_the_limit_is_not_read(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "file"
    sparse(path)
    with pytest.raises(BadInputError, match="file has more than 4,000,000,000 bytes") as refused:
        READERS[kind](path)
    assert "--max-input" in str(refused.value)


@pytest.mark.parametrize("kind", READERS)
def test_a_device_is_not_read(tmp_path: Path, kind: str) -> None:
    (tmp_path / "file").symlink_to("/dev/zero")
    with pytest.raises(BadInputError, match="file is a device; a file or a pipe was expected"):
        READERS[kind](tmp_path / "file")


def test_a_compressed_file_counts_with_its_uncompressed_size(tmp_path: Path) -> None:
    compressed(tmp_path / "p.json.gz")
    assert (tmp_path / "p.json.gz").stat().st_size < LIMIT
    with (
        input_limit(4 * CHUNK_BYTES - 1),
        pytest.raises(BadInputError, match=r"p\.json\.gz decompresses to more than 4,194,303"),
    ):
        read_bytes(tmp_path / "p.json.gz")
    with input_limit(4 * CHUNK_BYTES):
        assert len(read_bytes(tmp_path / "p.json.gz")) == 4 * CHUNK_BYTES


def test_a_pipe_is_read_up_to_the_limit(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    def write() -> None:
        try:
            with (tmp_path / "pipe").open("wb") as file:
                file.write(bytes(50 * CHUNK_BYTES))
        except BrokenPipeError:
            pass

    writer = threading.Thread(target=write)
    writer.start()
    with input_limit(LIMIT), pytest.raises(BadInputError, match="pipe has more than 10,000"):
        read_bytes(tmp_path / "pipe")
    writer.join()


def test_a_graph_from_a_pipe_is_read_once(tmp_path: Path) -> None:
    meta = small_graph()
    write_meta_graph(tmp_path / "g.meta", meta)
    os.mkfifo(tmp_path / "pipe")
    with subprocess.Popen(["cp", tmp_path / "g.meta", tmp_path / "pipe"]):
        assert api.read_meta_graph(tmp_path / "pipe") == meta


def test_the_limit_ends_with_its_context(diamond_profile: Path) -> None:
    with input_limit(10):
        assert max_input_bytes() == 10
        with pytest.raises(BadInputError, match="more than 10 bytes"):
            read_profile(diamond_profile)
    assert max_input_bytes() == MAX_INPUT_BYTES
    assert read_profile(diamond_profile).problem.num_ops == 4


@pytest.mark.parametrize(
    ("size", "num_bytes"),
    [("10", 10), ("10B", 10), ("1.5kB", 1500), ("2 KiB", 2048), ("1mb", 10**6), ("1T", 10**12)],
)
def test_the_option_sets_the_limit(
    pesto: Pesto, diamond_profile: Path, size: str, num_bytes: int
) -> None:
    output = diamond_profile.parent / "p.json"
    argv = ("solve", diamond_profile, "-o", output, "--strategy", "single", "--quiet")
    done = pesto("--max-input", size, *argv)
    fits = diamond_profile.stat().st_size <= num_bytes
    assert done.code == (0 if fits else 2)
    assert fits or f"more than {num_bytes:,} bytes, the limit for inputs" in done.err
    assert done.err.count("\n") <= 1


@pytest.mark.parametrize("size", ["", "GB", "-1GB", "1XB", "1e9", "nan", "9" * 400])
def test_an_invalid_size_is_refused(pesto: Pesto, diamond_profile: Path, size: str) -> None:
    refused = pesto("--max-input", size, "solve", diamond_profile, "-o", "p.json")
    assert refused.code == 2
    assert "is not a size; a size such as 8GB or 500MiB was expected" in refused.err


def test_units() -> None:
    assert (UNITS[""], UNITS["k"], UNITS["mi"], UNITS["g"]) == (1, 1000, 2**20, 10**9)


def test_arrays_of_feeds_count_with_their_uncompressed_size(tmp_path: Path) -> None:
    path = tmp_path / "feeds.npz"
    np.savez_compressed(path, x=np.zeros((4, 3000), np.float32))
    assert path.stat().st_size < LIMIT
    with input_limit(LIMIT), pytest.raises(BadInputError, match=r"feeds\.npz decompresses to more"):
        next(batches(small_graph(), str(path)))
    with zipfile.ZipFile(path) as archive:
        assert archive.infolist()[0].file_size > LIMIT


def test_the_limit_holds_for_saved_values_and_event_files(tmp_path: Path) -> None:
    write_saved_model(tmp_path / "saved")
    graph = (tmp_path / "saved/saved_model.pb").stat().st_size
    with input_limit(graph - 1), pytest.raises(BadInputError, match=r"saved_model\.pb has more"):
        api.export(str(tmp_path / "saved"))
    event = tmp_path / "events.out.tfevents.1"
    event.write_bytes(bytes(9) + b"brain.Event:2" + bytes(LIMIT))
    with input_limit(LIMIT), pytest.raises(BadInputError, match=r"tfevents\.1 has more than"):
        graphs(event)
