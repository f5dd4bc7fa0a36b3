"""Pages of `pesto report` for tests, and a parser of their contents."""

import base64
import gzip
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
from conftest import on_gpus, two_gpus

from pesto_cli import api
from pesto_cli.data.graph import OpGraph, Tensor
from pesto_cli.files import PlacementFile, Profile, write_placement, write_profile

# Names with characters that are special in HTML, JSON, CSV or scopes of TensorFlow.
AWKWARD = ('<b>&amp;"', "tower/é, 学", "it's </script>", "a\nb")


def awkward_profile() -> Profile:
    """A diamond of 10,000 bytes on every edge, and an op at its end that takes no time."""
    graph = OpGraph.build(
        [*AWKWARD, "end"],
        [
            Tensor(0, 10_000, [1, 2]),
            Tensor(1, 10_000, [3]),
            Tensor(2, 10_000, [3]),
            Tensor(3, 8, [4]),
        ],
        types=["MatMul", "<script>", "Add", "MatMul", "NoOp"],
        resident_bytes=[0, 4_000, 0, 0, 0],
    )
    machine = two_gpus(memory_bytes=100_000)
    return Profile(on_gpus(graph, [40, 100, 100, 40, 0], machine), {"source": "<by hand>"})


def placed_on(profile: Profile, device: list[int]) -> PlacementFile:
    """Return a placement on these devices, in the order of the ops."""
    rank = [device[:op].count(each) for op, each in enumerate(device)]
    names = [each.name for each in profile.problem.machine.devices]
    ops = list(profile.problem.graph.names)
    return PlacementFile(names, ops, device, rank, [], {"strategy": "by hand", "seed": 7}, {})


def write_files(folder: Path) -> tuple[Path, Path, Path]:
    """Write a profile, a placement on both GPUs and one on GPU:0 only; return their paths."""
    profile = awkward_profile()
    paths = [folder / name for name in ("p.profile.json", "both.placement.json", "one.json")]
    write_profile(paths[0], profile)
    write_placement(paths[1], placed_on(profile, [1, 1, 2, 1, 1]))
    write_placement(paths[2], placed_on(profile, [1, 1, 1, 1, 1]))
    return paths[0], paths[1], paths[2]


class Read(HTMLParser):
    """The contents of a page.

    references: everything that the page could load. tables: rows of cells, by caption.
    """

    def __init__(self, page: str) -> None:
        super().__init__()
        self.page, self.tags, self.references = page, set[str](), list[str]()
        self.tables: dict[str, list[list[str]]] = {}
        self._rows: list[list[str]] = []
        self._inside: str | None = None
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.references += [
            value or "" for name, value in attrs if name in ("src", "href", "data", "action")
        ]
        self._inside = tag
        if tag == "table":
            self._rows = []
        if tag == "tr":
            self._rows.append([])
        if tag in ("td", "th"):
            self._rows[-1].append("")

    def handle_data(self, data: str) -> None:
        if self._inside == "caption":
            self.tables[data] = self._rows
        if self._inside in ("td", "th"):
            self._rows[-1][-1] += data

    def handle_endtag(self, tag: str) -> None:
        self._inside = None

    def packed(self) -> dict[str, Any]:
        """The data that the page's script draws."""
        text = re.search(r'id="data">([^<]*)<', self.page)
        assert text
        data: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(text[1])))
        return data

    def without_vega(self) -> str:
        """Return the page without scripts and the compressed data."""
        return re.sub(r"(?s)<script.*?</script>", "", self.page)


def page_of(profile: Profile, **placements: list[int]) -> Read:
    placed = {name: placed_on(profile, device) for name, device in placements.items()}
    return Read(api.report(profile, placed, "awkward <title>"))


def layered_graph(num_ops: int) -> OpGraph:
    """Return a graph in which every op feeds two of the next sixty; names are long."""
    rng = np.random.default_rng(0)
    tensors = [
        Tensor(op, int(rng.integers(100, 10**6)), sorted({op + 1, min(op + step, num_ops - 1)}))
        for op, step in enumerate(rng.integers(1, 60, num_ops - 1).tolist())
    ]
    names = [
        f"model/encoder/layer_{op // 100}/attention/gradients/MatMul_{op}_grad/MatMul_{number}"
        for op, number in enumerate(rng.integers(0, 10**9, num_ops).tolist())
    ]
    return OpGraph.build(names, tensors, types=["MatMul", "Add", "Relu", "Mul"] * (num_ops // 4))
