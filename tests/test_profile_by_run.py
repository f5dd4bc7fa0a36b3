"""The cost source `run`: profiles measured in real TensorFlow steps."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from training_graphs import exported, nested_loops, recurrent, stateful_cond
from two_cpus import NAMES, two_cpus

from pesto_cli import api
from pesto_cli.errors import BadInputError, InfeasibleError
from pesto_cli.files import Profile
from pesto_cli.profile.run.reconcile import reconciled
from pesto_cli.profile.run.stepping import FEWEST_STEPS, pair_order
from pesto_cli.report.spread_plot import spread_chart


@pytest.fixture(scope="module")
def rnnlm() -> Any:
    return api.export("zoo:RNNLM-tiny")


@pytest.fixture(scope="module")
def profile(rnnlm: Any) -> Profile:
    return api.profile_by_run(rnnlm, two_cpus(), steps=4, warm_up=2)


def test_every_op_gets_the_median_of_its_times_in_the_steps(profile: Profile) -> None:
    problem, spread = profile.problem, profile.spread
    assert spread is not None
    types = np.array(problem.graph.types)
    is_matmul = types == "MatMul"
    assert (spread.runs[is_matmul] == 4).all()
    time_us = problem.time_us[is_matmul, 0]
    assert (time_us > 0).all()
    least_us, mean_us, std_us = (
        by_kind["CPU"][is_matmul] for by_kind in (spread.min_us, spread.mean_us, spread.std_us)
    )
    assert (time_us >= least_us).all()
    assert (time_us > least_us).any()
    assert (abs(time_us - mean_us) <= std_us + 1e-9).all()  # true of every median
    assert not problem.time_us[problem.is_feed | problem.is_fetch, 0].any()


def test_the_untraced_step_is_reconciled_and_the_machine_gets_the_overheads(
    profile: Profile, tmp_path: Path
) -> None:
    machine = profile.problem.machine
    (account,) = profile.provenance["reconciled"]
    assert account["num_devices"] == 1
    assert 0 < account["ops_us"] < account["step_us"]
    low_us, high_us = account["quartiles_us"]
    assert 0 < low_us <= account["step_us"] <= high_us
    assert account["dispatch_us"] > 0
    assert {device.op_overhead_us for device in machine.devices} == {account["op_overhead_us"]}
    assert machine.step_overhead_us > 0
    api.write_profile(tmp_path / "p.json", profile)
    read = api.read_profile(tmp_path / "p.json").problem.machine
    assert read.step_overhead_us == machine.step_overhead_us


def test_contention_is_measured_on_two_devices_of_a_host(profile: Profile) -> None:
    (of_type,) = profile.problem.machine.contention.values()
    assert "MatMul" in of_type
    assert all(slow_down >= 0 for slow_down in of_type.values())
    assert any("another CPU of the host computes" in note for note in profile.provenance["notes"])


def test_after_the_time_limit_only_the_fewest_steps_run(rnnlm: Any) -> None:
    found = api.profile_by_run(rnnlm, two_cpus(), steps=50, limit_s=0.0)
    assert found.spread is not None
    assert found.spread.runs.max() == FEWEST_STEPS


def test_a_profile_stays_fresh_whatever_its_steps_have_shown(
    rnnlm: Any, profile: Profile, tmp_path: Path
) -> None:
    machine = replace(profile.problem.machine, contention={"CPU": {"MatMul": 0.1}})
    path = tmp_path / "p.json"
    api.write_profile(path, replace(profile, problem=replace(profile.problem, machine=machine)))
    here = two_cpus().machine
    assert api.fresh_profile(path, rnnlm, here, "run") is not None
    assert api.fresh_profile(path, rnnlm, replace(here, signal_us=9.0), "run") is None


def test_a_chart_shows_the_share_of_ops_up_to_each_deviation(profile: Profile) -> None:
    spread = profile.spread
    assert spread is not None
    (rows,) = spread_chart(profile, "rnnlm").to_dict()["datasets"].values()
    assert len(rows) == (spread.mean_us["CPU"] > 0).sum()
    for name in {row["class"] for row in rows}:
        of_class = [row for row in rows if row["class"] == name]
        assert of_class == sorted(of_class, key=lambda row: (row["deviation"], row["share"]))
        assert of_class[-1]["share"] == 1
        assert f"({len(of_class)} ops)" in name


def test_a_chart_of_times_that_were_not_measured_is_refused(profile: Profile) -> None:
    with pytest.raises(BadInputError, match="no op was measured in several steps"):
        spread_chart(replace(profile, spread=None), "rnnlm")


def test_a_predicted_step_time_is_the_makespan_plus_the_step_overhead(profile: Profile) -> None:
    (result,) = api.compare(profile, ["single"])
    placed = api.placement(profile, result)
    expected_us = result.makespan_us + profile.problem.machine.step_overhead_us
    assert api.predicted_us(placed, profile) == pytest.approx(expected_us)
    assert api.predicted_us(placed) == expected_us
    before = replace(placed, predicted={"makespan_us": 5.0})
    assert api.predicted_us(before) == 5.0


@pytest.mark.parametrize("functional", [False, True], ids=["v1", "v2"])
@pytest.mark.parametrize("build", [recurrent, nested_loops])
def test_the_time_of_a_loop_includes_all_its_iterations(build: Any, functional: bool) -> None:
    meta = exported(build, functional_control_flow=functional)
    found = api.profile_by_run(meta, two_cpus(), steps=3)
    graph, spread = found.problem.graph, found.spread
    assert spread is not None
    loops = [op for op, kind in enumerate(graph.types) if kind in ("While", "StatelessWhile")]
    assert loops
    for op in loops:
        assert spread.runs[op] == 3
        # 6 to 15 iterations of several ops, or of one call; an iteration takes less than 1 us.
        assert found.problem.time_us[op, 0] > 2


def test_ops_that_never_ran_are_noted() -> None:
    found = api.profile_by_run(exported(stateful_cond), two_cpus(), steps=2)
    assert any("never ran" in note for note in found.provenance["notes"])


def test_a_graph_too_large_for_one_device_is_profiled_on_all_of_them(
    rnnlm: Any, profile: Profile
) -> None:
    (alone,) = api.compare(profile, ["single"])
    little = int(0.9 * alone.schedule.peak_bytes.max())
    spread = api.profile_by_run(rnnlm, two_cpus(little), steps=2)
    (account,) = spread.provenance["reconciled"]
    assert account["num_devices"] == len(NAMES)
    assert account["op_overhead_us"] is None
    assert spread.spread is not None
    is_matmul = np.array(spread.problem.graph.types) == "MatMul"
    assert (spread.spread.runs[is_matmul] == 2).all()
    with pytest.raises(InfeasibleError, match="no placement can fit into memory"):
        api.profile_by_run(rnnlm, two_cpus(little // 8), steps=2)


def test_the_source_run_needs_running_devices(rnnlm: Any) -> None:
    with pytest.raises(BadInputError, match="cost source run needs real devices"):
        api.profile(rnnlm, api.read_machine("v100x2-nvlink"), source="run")


def account(**changes: Any) -> Any:
    """Reconcile three ops of 10, 20 and 30 us with a step of 100 us."""
    given: dict[str, Any] = {
        "device": np.zeros(3, dtype=np.int64),
        "steps_us": np.full(3, 100.0),
        "idle_us": 50.0,
        "dispatch_us": 34.0,
    }
    return reconciled(["CPU", "CPU"], np.array([10.0, 20.0, 30.0]), **{**given, **changes})


def test_the_unexplained_rest_of_a_step_is_divided_among_its_ops() -> None:
    found = account()
    assert found.ops_us == 60
    assert found.explained == 0.6
    assert found.op_overhead_us == pytest.approx(2)


def test_the_overhead_is_at_most_the_gaps_between_ops_and_at_least_0() -> None:
    assert account(steps_us=np.full(3, 1000.0), idle_us=15.0).op_overhead_us == 5
    assert account(steps_us=np.full(3, 80.0)).op_overhead_us == 0


def test_the_step_is_the_median_of_the_untraced_ones() -> None:
    found = account(steps_us=np.array([400.0, 100.0, 80.0, 90.0, 120.0]))
    assert (found.step_us, found.quartiles_us) == (100.0, (90.0, 120.0))


def test_with_ops_on_several_devices_no_overhead_is_fitted() -> None:
    found = account(device=np.array([0, 0, 1]))
    assert (found.num_devices, found.num_ops, found.ops_us) == (2, 2, 30)
    assert found.op_overhead_us is None
    assert "no overhead was fitted" in found.text


def test_feeds_and_fetches_do_not_count_as_ops() -> None:
    time_us = np.array([10.0, np.nan, 30.0])
    found = reconciled(
        ["CPU"],
        time_us,
        np.zeros(3, dtype=np.int64),
        steps_us=np.full(3, 50.0),
        idle_us=10.0,
        dispatch_us=0.0,
    )
    assert (found.num_ops, found.op_overhead_us) == (2, 5)


@pytest.mark.parametrize("period", [2, 4, 8])
def test_a_branch_that_runs_in_some_steps_only_is_traced(period: int) -> None:
    order = [is_traced for pair in range(period) for is_traced in pair_order(pair)]
    traced = {step % period for step, is_traced in enumerate(order) if is_traced}
    untraced = {step % period for step, is_traced in enumerate(order) if not is_traced}
    assert traced == untraced == set(range(period))
