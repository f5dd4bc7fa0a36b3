"""Figures that the papers state, in tables and in prose, each with its place: `published.json`.

Curves that a paper only draws are not among them.
"""

import json
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def published(name: str) -> dict[str, Any]:
    """The figures of an entry; its `source` says where they stand."""
    text = files("pesto_cli.bench").joinpath("published.json").read_text(encoding="utf-8")
    entry: dict[str, Any] = json.loads(text)[name]
    return entry


def paper_models() -> tuple[str, ...]:
    """The eleven variants of Pesto, Section 5.2."""
    return tuple(published("models")["names"])


def family(model: str) -> str:
    """What a model is a variant of."""
    return model.partition("-")[0]
