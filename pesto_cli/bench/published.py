"""The figures that papers state in tables and in text, each with its source: `published.json`.

Values that a paper only shows as a curve are not included.
"""

import json
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def published(name: str) -> dict[str, Any]:
    """Return the figures of an entry; its `source` is the section, table or figure."""
    text = files("pesto_cli.bench").joinpath("published.json").read_text(encoding="utf-8")
    entry: dict[str, Any] = json.loads(text)[name]
    return entry


def paper_models() -> tuple[str, ...]:
    """Return the names of the eleven models of Pesto, Section 5.2."""
    return tuple(published("models")["names"])


def family(model: str) -> str:
    """Return the family that a model is a variant of, such as `RNNLM`."""
    return model.partition("-")[0]
