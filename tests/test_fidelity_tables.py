"""The errors and regrets of placements in `benchmarks.fidelity`."""

import math
from dataclasses import fields
from operator import attrgetter
from typing import Any

import pytest

from benchmarks.fidelity.placements import PARTED, PLAIN, ROBUST, SPLIT
from benchmarks.fidelity.tables import (
    Row,
    errors_without_single,
    mean_and_worst,
    regrets,
    table_by_model,
)


def row(model: str, placement: str, measured_ms: float, predicted_ms: float = 0.0) -> Row:
    values: dict[str, Any] = {field.name: 0 for field in fields(Row)}
    values |= {"model": model, "placement": placement}
    return Row(**values | {"measured_ms": measured_ms, "predicted_ms": predicted_ms})


ROWS = [
    *(row("chain", "expert", 10.0), row("chain", PLAIN, 12.0), row("chain", ROBUST, 11.0)),
    *(row("towers", "expert", 30.0), row("towers", PLAIN, 20.0), row("towers", ROBUST, 21.0)),
    *(row("chain", SPLIT, 10.0), row("towers", SPLIT, 24.0)),
    *(row("chain", PARTED, 10.5), row("towers", PARTED, 20.0)),
]


def test_the_regret_is_relative_to_the_best_placement_of_the_same_model() -> None:
    assert regrets(ROWS, PLAIN) == pytest.approx({"chain": 0.2, "towers": 0.0})
    assert regrets(ROWS, ROBUST) == pytest.approx({"chain": 0.1, "towers": 0.05})


def test_a_machine_that_became_slower_adds_no_error_to_the_ratio_of_two_steps() -> None:
    slower = [row("chain", "single", 30.0, 20.0), row("chain", PLAIN, 15.0, 10.0)]
    assert errors_without_single(slower, PLAIN) == pytest.approx({"chain": 0.0})
    assert errors_without_single([slower[0], row("chain", PLAIN, 15.0, 8.0)], PLAIN) == (
        pytest.approx({"chain": 0.2})
    )


def test_the_table_ends_with_the_means() -> None:
    *_, last = table_by_model("regret", regrets, ROWS)
    assert last == "| mean | 10.0% | 7.5% | 10.0% | 2.5% |"


def test_errors_are_summed_up_for_placements_by_hand_and_for_each_of_pestos_own() -> None:
    rows = [
        *(row("chain", "single", 10.0, 10.4), row("chain", "expert", 10.0, 9.8)),
        *(row("chain", PLAIN, 10.0, 9.0), row("towers", PLAIN, 10.0, math.nan)),
    ]
    assert [*mean_and_worst(rows, attrgetter("error"))] == [
        "by hand 3.0%, worst +4.0% (chain)",
        f"{PLAIN} 10.0%, worst -10.0% (chain)",
    ]
