"""The regret of placements in `benchmarks.fidelity`."""

from dataclasses import fields
from typing import Any

import pytest

from benchmarks.fidelity import PLAIN, ROBUST, SPLIT, Row, regret_table, regrets


def row(model: str, placement: str, measured_ms: float) -> Row:
    values: dict[str, Any] = {field.name: 0 for field in fields(Row)}
    return Row(**values | {"model": model, "placement": placement, "measured_ms": measured_ms})


ROWS = [
    *(row("chain", "expert", 10.0), row("chain", PLAIN, 12.0), row("chain", ROBUST, 11.0)),
    *(row("towers", "expert", 30.0), row("towers", PLAIN, 20.0), row("towers", ROBUST, 21.0)),
    *(row("chain", SPLIT, 10.0), row("towers", SPLIT, 24.0)),
]


def test_the_regret_is_relative_to_the_best_placement_of_the_same_model() -> None:
    assert regrets(ROWS, PLAIN) == pytest.approx({"chain": 0.2, "towers": 0.0})
    assert regrets(ROWS, ROBUST) == pytest.approx({"chain": 0.1, "towers": 0.05})


def test_the_table_ends_with_the_means() -> None:
    *_, last = regret_table(ROWS)
    assert last == "| mean | 10.0% | 7.5% | 10.0% |"
