"""Tests of the statistics of step times, computed by hand."""

import numpy as np
import pytest

from pesto_cli.data.steps import StepTimes, speed_up
from pesto_cli.report.layouts import plain_text
from pesto_cli.report.runs import RunRow, runs_json, runs_table


def times(us: list[list[float]], **more: object) -> StepTimes:
    return StepTimes(np.array(us), (), {"CPU:0": 5.0}, **more)  # type: ignore[arg-type]


def test_the_step_time_is_the_median_with_its_quartiles() -> None:
    found = times([[1, 2], [3, 100], [5, 4]])
    assert found.median_us == 3.5
    assert found.quartiles_us == (2.25, 4.75)
    assert found.min_us == 1


def test_a_slow_round_cancels_in_the_speed_up() -> None:
    load = np.array([[1.0], [4.0], [2.0], [9.0]])
    base, other = times((30 * load).tolist()), times((20 * load).tolist())
    found = speed_up(base, other)
    assert (found.times, found.low, found.high) == pytest.approx((1.5, 1.5, 1.5))


def test_the_interval_contains_the_true_speed_up_in_about_19_of_20_cases() -> None:
    random = np.random.default_rng(0)
    found = [
        speed_up(
            times((100 * random.lognormal(0, 0.1, (20, 5))).tolist()),
            times((80 * random.lognormal(0, 0.1, (20, 5))).tolist()),
        )
        for _ in range(100)
    ]
    assert 88 <= sum(each.low <= 1.25 <= each.high for each in found) <= 99
    assert all(each.low <= each.times <= each.high for each in found)


@pytest.mark.parametrize("number", [2, 3, 5])
def test_few_rounds_give_wide_intervals(number: int) -> None:
    random = np.random.default_rng(number)
    found = [
        speed_up(
            times((100 * random.lognormal(0, 0.1, (number, 2))).tolist()),
            times((80 * random.lognormal(0, 0.1, (number, 2))).tolist()),
        )
        for _ in range(300)
    ]
    assert 276 <= sum(each.low <= 1.25 <= each.high for each in found) <= 296
    assert all(each.low <= each.times <= each.high for each in found)


def test_one_round_gives_no_interval() -> None:
    rows = [RunRow("a", times([[2.0]])), RunRow("b", times([[1.0]]))]
    found = speed_up(rows[0].times, rows[1].times)
    assert (found.times, found.low, found.high) == (2.0, 0.0, np.inf)
    faster = runs_json(rows)[1]["speed_up_over_a"]
    assert faster == {"times": 2.0, "low": None, "high": None}


def test_the_table_has_prediction_error_and_speed_up_over_the_first() -> None:
    rows = [RunRow("single", times([[2000.0]]), 1900.0), RunRow("mine", times([[1000.0]]))]
    text = plain_text(runs_table("title", rows))
    single, mine = (line.split() for line in text.splitlines() if line[2:8] in ("single", "mine  "))
    assert single[:6] == ["single", "2.000", "2.000", "-", "2.000", "2.000"]
    assert single[6:9] == ["1.900", "-5.0%", "1.000"]
    assert mine[6] == "2.000"


def test_json_has_every_step() -> None:
    rows = [RunRow("a", times([[2.0, 4.0]])), RunRow("b", times([[1.0, 2.0]]))]
    first, second = runs_json(rows)
    assert first["steps_us"] == [[2.0, 4.0]]
    assert second["speed_up_over_a"]["times"] == 2.0
