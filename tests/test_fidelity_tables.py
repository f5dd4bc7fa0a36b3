"""The errors of predictions in `benchmarks.fidelity`, their causes, and regrets."""

import math
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from conftest import on_gpus, two_gpus

from benchmarks.fidelity.causes import causes, times_by_type
from benchmarks.fidelity.placements import PARTED, PLAIN, ROBUST, SPLIT
from benchmarks.fidelity.tables import (
    Row,
    errors_without_single,
    mean_and_worst,
    regrets,
    summary,
    table_by_model,
)
from benchmarks.fidelity.traced_steps import TracedStep
from pesto_cli import api as pesto
from pesto_cli.data.graph import OpGraph, Tensor
from pesto_cli.data.schedule import Placement
from pesto_cli.data.solution import Solution
from pesto_cli.evaluation.simulator import replay
from pesto_cli.files import Profile
from pesto_cli.strategies.run import judged


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
        row("chain", PLAIN, 10.0, 9.0),
    ]
    assert [*mean_and_worst(rows)] == [
        "by hand 3.0%, worst +4.0% (chain)",
        f"{PLAIN} 10.0%, worst -10.0% (chain)",
    ]


def test_quiet_steps_are_summed_up_beside_all_steps() -> None:
    rows = [
        replace(row("chain", "single", 10.0, 9.0), quiet_ms=9.0, num_quiet=1, steps_ms=(9.0, 11.0)),
        replace(row("chain", PLAIN, 11.0, 8.0), quiet_ms=8.0, num_quiet=2, steps_ms=(8.0, 14.0)),
        replace(row("towers", PLAIN, 10.0, 9.5), steps_ms=(10.0, 10.0)),
    ]
    assert [*summary(rows)] == [
        "50% of the steps are quiet",
        "errors of all steps: by hand 10.0%, worst -10.0% (chain); "
        f"{PLAIN} 16.1%, worst -27.3% (chain)",
        "ranking of all steps: right in 0 of 1 pairs that measure more than 5% apart",
        f"  wrong: chain, single and {PLAIN}",
        "errors of quiet steps: by hand 0.0%, worst +0.0% (chain); "
        f"{PLAIN} 0.0%, worst +0.0% (chain)",
        "ranking of quiet steps: right in 1 of 1 pairs that measure more than 5% apart",
    ]


def test_a_step_whose_ops_take_twice_as_long_as_in_the_profile() -> None:
    graph = OpGraph.build(["a", "b"], [Tensor(0, 1000, [1])], types=["MatMul"] * 2)
    machine = two_gpus()
    waits = tuple(replace(link, comm=replace(link.comm, wait_us=1.0)) for link in machine.links)
    profile = Profile(on_gpus(graph, [10, 30], replace(machine, links=waits)))
    result = pesto.solve(profile, "single")
    steps = [TracedStep(80.0, {"a": 20.0, "b": 60.0}), TracedStep(100.0, {"a": 20.0, "b": 60.0})]
    found = causes(profile, result, 80.0, steps)
    assert found.op_times == pytest.approx((0.5 + 0.4) / 2)
    assert found.rest == pytest.approx((0.0 - 0.2) / 2)
    assert found.whole == pytest.approx(1.0)
    assert math.isnan(found.parts)
    assert math.isnan(found.added)
    assert found.random == found.order == found.contention == found.transfer_overheads == 0
    assert times_by_type(result, steps) == {"whole MatMul": (0.04, 0.08)}


def test_overheads_of_transfers_lengthen_the_step_of_two_devices() -> None:
    graph = OpGraph.build(["a", "b"], [Tensor(0, 1000, [1])], types=["MatMul"] * 2)
    machine = two_gpus()
    links = tuple(
        replace(link, comm=replace(link.comm, receiver_us=4.0, wait_us=1.0))
        for link in machine.links
    )
    profile = Profile(on_gpus(graph, [10, 10], replace(machine, links=links)))
    schedule = replay(profile.problem, Placement(np.array([1, 2]), np.array([0, 0])))
    result = judged("by hand", Solution.of(profile.problem, schedule), 0.0)
    # 10 us, the transfer of 2 us, 10 us; b starts when the transfer ends, so it has no overhead.
    assert result.makespan_us == pytest.approx(22.0)
    found = causes(profile, result, 20.0, [TracedStep(25.0, {"a": 10.0, "b": 13.0})])
    assert found.transfer_overheads == 0
    assert found.rest == pytest.approx(0.0)
    assert found.op_times == pytest.approx(3 / 25)
