"""The cases: the changed file, the change, and the commands that read the file."""

import io
import random
import shutil
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fuzz import commands, odd, plans, protos, trees
from pesto_cli.graphdef.tensorflow import tensorflow

Change = Callable[[random.Random, bytes], bytes]
Argv = Sequence[str]

QUICK = ("--time-limit", "0.05", "--deterministic", "-n", "12")
PRESET = ("-m", "v100x2-nvlink")
BY_CSV = ("--source", "csv:costs.csv", "--json")
PRICED = (*PRESET, *BY_CSV, "-o", "out.json")


@dataclass(frozen=True)
class Target:
    """A kind of file.

    seed: its name among the seeds. argvs: commands that read it; each case runs one of them.
    others: further files that the commands need. weight: its relative number of cases. accepted:
    checks what a command has written if it succeeded.
    """

    seed: str
    change: Change
    argvs: Sequence[Argv]
    others: Sequence[str] = ()
    weight: int = 1
    accepted: Callable[[], None] | None = None


def _message(kind: str) -> Any:
    tf1 = tensorflow().compat.v1
    if kind == "SavedModel":
        from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

        return SavedModel()
    if kind == "XSpace":
        from tensorflow.tsl.profiler.protobuf.xplane_pb2 import XSpace

        return XSpace()
    return getattr(tf1, kind)()


def _proto(kind: str) -> Change:
    def change(rng: random.Random, data: bytes) -> bytes:
        if rng.random() < 0.15:
            return odd.changed_bytes(rng, data)
        message = _message(kind)
        message.ParseFromString(data)
        return bytes(protos.changed(rng, message).SerializeToString())

    return change


def _proto_text(rng: random.Random, data: bytes) -> bytes:
    from google.protobuf import text_format

    if rng.random() < 0.3:
        return odd.changed_bytes(rng, data)
    message = text_format.Parse(data.decode(), _message("MetaGraphDef"))
    return text_format.MessageToString(protos.changed(rng, message)).encode()


def _events(rng: random.Random, data: bytes) -> bytes:
    """Change an event or a graph, in records with correct checksums."""
    import os
    import tempfile

    from tensorflow.core.util.event_pb2 import Event

    if rng.random() < 0.2:
        return odd.changed_bytes(rng, data)
    tf = tensorflow()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "events")
        Path(path).write_bytes(data)
        records = list(tf.compat.v1.io.tf_record_iterator(path))
        event = Event.FromString(records[-1])
        if rng.random() < 0.8:
            event.graph_def = _proto("GraphDef")(rng, event.graph_def)
        else:
            event = protos.changed(rng, event)
        with tf.io.TFRecordWriter(path) as writer:
            for record in (*records[:-1], event.SerializeToString()):
                writer.write(record)
        return Path(path).read_bytes()


def _arrays(rng: random.Random, data: bytes) -> bytes:
    """Return an .npz with other arrays, or with headers that do not match their data."""
    kind = rng.random()
    if kind < 0.25:
        return odd.changed_bytes(rng, data)
    array = np.ones((64, 48), np.float32)
    if kind < 0.5:  # headers
        plain = io.BytesIO()
        np.lib.format.write_array(plain, array)
        content = plain.getvalue()
        shape = b"'shape': (64, 48), "
        others = (
            *(b"'shape': (9999999, 99999), ", b"'shape': (-1, 48), ", b"'shape': 'a', "),
            *(b"'shape': ((), ", b"", b"'shape': (1e9,), ", b"'shape': (2**70,), "),
        )
        changed = content.replace(shape, rng.choice(others)).replace(
            b"<f4", rng.choice((b"<f4", b"<f4", b"|O", b"<U9", b"<M8", b"xxx"))
        )
        changed = rng.choice((changed, odd.changed_bytes(rng, content)))
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            archive.writestr(rng.choice(("fed.npy", "fed", "fed:0.npy")), changed)
        return packed.getvalue()
    arrays: tuple[Any, ...] = (
        *(array[:3], array.astype(np.int8), array.astype(complex), array.astype("datetime64[s]")),
        *(np.array(1.0), np.full((64, 48), np.nan), array.astype(str), np.zeros((0, 48))),
        *(np.array([{}] * 3), array.astype([("a", "<f4")]), array.astype(np.float16)),
    )
    packed = io.BytesIO()
    chosen = rng.choice(arrays)
    np.savez(packed, **{rng.choice(("fed", "fed", "x", "nul\0", "ö/../z", "product")): chosen})
    return packed.getvalue()


GRAPH_FILES = ("costs.csv", "placement.json")
SIMULATED = ("simulate", "profile.json", "--placement", "placement.json", "--json")


def _graph(name: str) -> tuple[Argv, ...]:
    return (
        ("export", name, "-o", "out.meta"),
        ("export", name, "-o", "out.pbtxt", "--optimize"),
        ("profile", name, *PRESET, "-o", "out.json"),
        ("profile", name, *PRICED),
        ("apply", name, "placement.json", "-o", "out.meta"),
        ("run", name, "-m", "local-workers:1", "--steps", "1", "--warm-up", "0"),
        ("check", name, "placement.json", "--json"),
    )


def _profile(name: str) -> tuple[Argv, ...]:
    return (
        *(("solve", name, "-o", "out.json", "--strategy", each, *QUICK) for each in ALL),
        ("compare", name, "--strategies", "single,expert", *QUICK, "--json"),
        ("coarsen", name, "-n", "9", "-o", "out.json.gz"),
        ("simulate", name, "--placement", "placement.json", "--trace", "out.json"),
        ("simulate", name, "--placement", "placement.json", "--random-orders", "2"),
        ("explain", name, "placement.json", "--json"),
        ("explain", name, "placement.json", "product"),
        ("report", name, "placement.json", "-o", "out.html"),
    )


def _trace(name: str) -> tuple[Argv, ...]:
    return (("profile", "graph.meta", *PRESET, "--source", f"trace:{name}", "-o", "out.json"),)


ALL = tuple(commands.api.STRATEGIES)
WARM = ("solve", plans.PROFILE, "--warm-start", plans.PLACEMENT, "-o", "out.json", *QUICK)
GRAPH, PROFILE, PLACEMENT = ("graph.meta",), ("profile.json",), ("placement.json",)

TARGETS = (
    Target("graph.meta", _proto("MetaGraphDef"), _graph("graph.meta"), GRAPH_FILES, 8),
    Target("graph.pb", _proto("GraphDef"), _graph("graph.pb"), GRAPH_FILES, 3),
    Target("graph.pbtxt", _proto_text, _graph("graph.pbtxt"), GRAPH_FILES, 2),
    Target("saved/saved_model.pb", _proto("SavedModel"), _graph("saved")[:3], (), 3),
    Target(
        "saved/variables/variables.index",
        odd.changed_bytes,
        (("export", "saved", "-o", "out.meta"),),
    ),
    Target(
        "events.out.tfevents.1",
        _events,
        (("export", "events.out.tfevents.1", "-o", "o.meta"),),
        (),
        3,
    ),
    Target("profile.json", trees.json_bytes, _profile("profile.json"), PLACEMENT, 9),
    Target("profile.json.gz", trees.json_bytes, _profile("profile.json.gz"), PLACEMENT, 2),
    Target(
        "placement.json",
        trees.json_bytes,
        (
            SIMULATED,
            (*SIMULATED[:-1], "--trace", "out.json"),
            ("apply", "graph.meta", "placement.json", "-o", "out.meta"),
            ("apply", "graph.meta", "placement.json", "-o", "out.meta", "--order", "none"),
            ("solve", "profile.json", "--warm-start", "placement.json", "-o", "out.json", *QUICK),
            ("explain", "profile.json", "placement.json", "product", "--json"),
            ("diff", "placement.json", "placement.json", "--profile", "profile.json"),
            ("check", "graph.meta", "placement.json", "--profile", "profile.json"),
            ("report", "profile.json", "placement.json", "-o", "out.html"),
        ),
        (*GRAPH, *PROFILE),
        6,
    ),
    Target(
        "split.json",
        trees.json_bytes,
        (
            ("simulate", "parts.json", "--placement", "split.json", "--trace", "out.json"),
            ("apply", "graph.meta", "split.json", "-o", "out.meta"),
            ("explain", "parts.json", "split.json", "--json"),
            ("solve", "parts.json", "--warm-start", "split.json", "-o", "out.json", *QUICK),
            ("diff", "split.json", "split.json", "--profile", "parts.json"),
            ("check", "graph.meta", "split.json", "--profile", "parts.json"),
        ),
        (*GRAPH, "parts.json"),
        4,
    ),
    Target(
        "parts.json",
        trees.json_bytes,
        (
            ("simulate", "parts.json", "--placement", "split.json"),
            ("solve", "parts.json", "-o", "out.json", "--strategy", "data-parallel", *QUICK),
        ),
        ("split.json",),
        4,
    ),
    Target(
        plans.PLACEMENT,
        plans.changed,
        (
            ("simulate", plans.PROFILE, "--placement", plans.PLACEMENT, "--trace", "out.json"),
            ("apply", plans.GRAPH, plans.PLACEMENT, "-o", "out.meta"),
            ("apply", plans.GRAPH, plans.PLACEMENT, "-o", "out.meta", "--order", "none"),
            ("check", plans.GRAPH, plans.PLACEMENT, "--profile", plans.PROFILE),
            ("diff", "split.json", plans.PLACEMENT, "--json"),
            ("diff", plans.PLACEMENT, plans.PLACEMENT, "--profile", plans.PROFILE),
            ("explain", plans.PROFILE, plans.PLACEMENT),
            ("explain", plans.PROFILE, plans.PLACEMENT, "product"),
            ("report", plans.PROFILE, plans.PLACEMENT, "-o", "out.html"),
            ("coarsen", plans.PROFILE, "--placement", plans.PLACEMENT, "-n", "9", "-o", "o.json"),
            WARM,
            (*WARM, "--max-parts", "1"),
        ),
        (plans.GRAPH, plans.PROFILE, plans.TRAINED, "split.json"),
        10,
        plans.check_accepted,
    ),
    Target(
        "machine.toml",
        trees.toml_bytes,
        (
            ("profile", "graph.meta", "-m", "machine.toml", *BY_CSV, "-o", "out.json"),
            ("profile", "graph.meta", "-m", "machine.toml", "-o", "out.json"),
        ),
        (*GRAPH, "costs.csv"),
        4,
    ),
    Target(
        "cluster.toml",
        trees.toml_bytes,
        (
            ("run", "graph.meta", "-m", "cluster.toml", "--steps", "1", "--warm-up", "0"),
            ("worker", "cluster.toml", "--task", "99"),
        ),
        GRAPH,
        2,
    ),
    Target(
        "constraints.toml",
        trees.toml_bytes,
        (
            (
                "solve",
                "profile.json",
                "-o",
                "out.json",
                "--constraints",
                "constraints.toml",
                *QUICK,
            ),
            (
                *("compare", "profile.json", "--constraints", "constraints.toml"),
                *("--strategies", "single,heft"),
            ),
        ),
        PROFILE,
        2,
    ),
    Target(
        "comm.json",
        trees.json_bytes,
        (("profile", "graph.meta", "--comm", "comm.json", *PRICED),),
        (*GRAPH, "costs.csv"),
        2,
    ),
    Target("costs.csv", trees.csv_bytes, (("profile", "graph.meta", *PRICED),), GRAPH, 3),
    Target("samples.csv", trees.csv_bytes, (("comm", "--from", "samples.csv", "-o", "out.json"),)),
    Target(
        "feeds.npz",
        _arrays,
        (
            (
                *("run", "graph.meta", "-m", "local-workers:1", "--feeds", "feeds.npz"),
                *("--steps", "1", "--warm-up", "0", "--json"),
            ),
        ),
        GRAPH,
        2,
    ),
    *(
        Target(f"traces/{name}", change, _trace(f"traces/{name}"), GRAPH, weight)
        for name, change, weight in (
            ("steps/0.pb", _proto("RunMetadata"), 2),
            ("host.xplane.pb", _proto("XSpace"), 2),
            ("timelines/0.json", trees.json_bytes, 2),
            ("viewer.json", trees.json_bytes, 2),
            ("viewer.json.gz", trees.json_bytes, 1),
        )
    ),
)


@dataclass(frozen=True)
class Case:
    """A changed file and a command that reads it; both are random, seeded by two numbers."""

    seed: int
    number: int

    @property
    def rng(self) -> random.Random:
        """Return the random generator of the case."""
        return random.Random(f"{self.seed} {self.number}")

    @property
    def target(self) -> Target:
        """The kind of file that is changed."""
        return self.rng.choices(TARGETS, [target.weight for target in TARGETS])[0]

    @property
    def argv(self) -> Argv:
        """The command; the next case of this target has the next command."""
        return self.target.argvs[self.number % len(self.target.argvs)]

    def prepare(self, seeds: Path, folder: Path) -> None:
        """Copy the files that the command needs into a folder, unchanged."""
        for name in (self.target.seed, *self.target.others):
            top = Path(name).parts[0]
            if top == "saved":
                shutil.copytree(seeds / top, folder / top, dirs_exist_ok=True)
                continue
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(seeds / name, folder / name)

    def run(self) -> None:
        """Change the file in the current folder, and run the command."""
        path, rng = Path(self.target.seed), self.rng
        rng.random()
        path.write_bytes(self.target.change(rng, path.read_bytes()))
        try:
            commands.run(self.argv)
        except SystemExit as exit_:
            if exit_.code not in (0, None):
                raise
        if self.target.accepted is not None:
            self.target.accepted()
