"""Tuning: costs are corrected by measured steps, and the fastest plan as measured is the answer."""

import json
import os
import re
import signal
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Pesto
from training_graphs import exported
from two_cpus import two_cpus

from pesto_cli import api
from pesto_cli.api import tuning as api_tuning
from pesto_cli.cli import tuning as cli_tuning
from pesto_cli.cluster import Connection, hang_watch
from pesto_cli.data.constraints import Constraints, SplitRule
from pesto_cli.data.graph import OpGraph, Tensor
from pesto_cli.data.limits import Limits
from pesto_cli.data.machine import CommModel, Device, Link, Machine
from pesto_cli.data.plan import Choice, Plan
from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import Schedule
from pesto_cli.data.solution import Solution
from pesto_cli.data.steps import StepTimes
from pesto_cli.errors import BadInputError, EnvironmentFailedError, InfeasibleError
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.files import (
    Candidate,
    CommFit,
    Measurement,
    PlacementFile,
    Profile,
    TuningLog,
    TuningRound,
    read_tuning_log,
    write_comm,
    write_tuning_log,
)
from pesto_cli.files.profile import Spread
from pesto_cli.graphdef.containers import write_meta_graph
from pesto_cli.profile.comm.chains import Effort
from pesto_cli.profile.comm.transfers import LinkTimes, TimedTransfers
from pesto_cli.runtime.comparison import RealRun, compared
from pesto_cli.runtime.interleaved import Turns
from pesto_cli.runtime.verify import Verification
from pesto_cli.strategies.context import Context
from pesto_cli.strategies.order import ordered
from pesto_cli.strategies.run import judged
from pesto_cli.tuning.choice import (
    best_candidate,
    brought_nothing,
    chosen,
    finalists,
    is_exhausted,
    relative_us,
)
from pesto_cli.tuning.clock import Clock
from pesto_cli.tuning.corrected import corrected
from pesto_cli.tuning.correction import untried, with_seen_times
from pesto_cli.tuning.factors import Factors, Fit, MeasuredStep, fitted, predicted_us
from pesto_cli.tuning.forms import searched_forms, solved
from pesto_cli.tuning.rounds import first_to_run
from pesto_cli.tuning.seen import placed_on, seen
from pesto_cli.tuning.slow import slow_devices
from pesto_cli.tuning.tuned import Ended, Tuned, tuned
from pesto_cli.tuning.watch import Watch

NUM_LAYERS = 6


def two_workers(**comm: float) -> Machine:
    names = ("CPU:0", "CPU:1")
    model = CommModel(latency_us=100.0, us_per_byte=0.001, wait_us=300.0, **comm)
    links = (Link(*names, model, "both"), Link(*names[::-1], model, "both"))
    devices = tuple(Device(name, "CPU", 2**40) for name in names)
    return Machine(devices, links, signal_us=100.0, step_overhead_us=500.0)


def towers() -> Problem:
    """Three towers of layers of 1 to 3 ms, which end in a sum."""
    count = 3 * NUM_LAYERS
    tensors = [Tensor(op, 200_000, [op + 3 if op + 3 < count else count]) for op in range(count)]
    graph = OpGraph.build(
        [f"tower_{op % 3}/layer_{op // 3}" for op in range(count)] + ["sum"], tensors
    )
    times_us = np.random.default_rng(1).uniform(1000, 3000, count + 1)
    return Problem.build(graph, {"CPU": times_us}, two_workers())


def measured_profile(problem: Problem, deviation: float = 0.02) -> Profile:
    """A profile whose times were measured 30 times."""
    times_us = problem.time_us[:, 0]
    runs = np.full(problem.num_ops, 30)
    table = {"CPU": times_us}
    spread = Spread(runs, table, table, {"CPU": deviation * times_us})
    return Profile(problem, {"graph_hash": "0" * 64}, spread=spread)


class Simulated:
    """Steps of a simulated machine, whose op times and transfers differ from the profile's."""

    def __init__(self, truth: Problem, seed: int = 0) -> None:
        self.truth, self.random = truth, np.random.default_rng(seed)
        self.ran: list[list[str]] = []

    def __call__(self, placements: Sequence[PlacementFile], turns: Turns) -> list[RealRun]:
        return [self.run(placed, turns) for placed in placements]

    def run(self, file: PlacementFile, turns: Turns) -> RealRun:
        placed = placed_on(self.truth, file)
        problem, device = placed.problem, placed.placement.device
        shape = turns.num_steps // turns.num_in_a_row, turns.num_in_a_row
        us = self.step_us(file) * np.exp(0.01 * self.random.standard_normal(shape))
        op_us = problem.duration_us[np.arange(problem.num_ops), device]
        op_us = op_us * np.exp(0.02 * self.random.standard_normal(problem.num_ops))
        times = dict(zip(problem.graph.names, op_us.tolist(), strict=True))
        return RealRun(StepTimes(us, (), {}), Verification(0, 0, ()), times)

    def step_us(self, file: PlacementFile) -> float:
        placed = placed_on(self.truth, file)
        schedule = Simulator(placed.problem).replay(placed.placement)
        return schedule.makespan_us + self.truth.machine.step_overhead_us


def differing(problem: Problem, spread: float = 0.3, transfers: float = 1.6) -> Problem:
    """The problem with other op times and slower transfers: the truth, which is to be found."""
    random = np.random.default_rng(2)
    factor = np.exp(spread * random.standard_normal(problem.time_us.shape))
    truth = Factors(transfers=transfers).scaled(problem)
    return replace(truth, time_us=truth.time_us * factor)


class WithoutEnd(Clock):
    """A clock that never runs out, so that a tuning ends when its rounds bring nothing."""

    @property
    def left_s(self) -> float:
        return 1e9


def tuned_on(truth: Problem, profile: Profile, **options: Any) -> Tuned:
    return tuned(
        options.pop("log", TuningLog(profile)),
        options.pop("measure", Simulated(truth)),
        options.pop("clock", WithoutEnd(3.0)),
        options.pop("limits", Limits(workers=1)),
        **options,
    )


@pytest.fixture(scope="module")
def profile() -> Profile:
    api.warm_up()
    return measured_profile(towers())


@pytest.fixture(scope="module")
def truth(profile: Profile) -> Problem:
    return differing(profile.problem)


@pytest.fixture(scope="module")
def found(profile: Profile, truth: Problem) -> Tuned:
    return tuned_on(truth, profile)


def errors(ran: TuningRound) -> list[float]:
    return [abs(row.error) for row in ran.measured]


def test_wrong_op_times_and_transfers_are_corrected(found: Tuned, truth: Problem) -> None:
    assert found.ended is Ended.DONE
    assert max(errors(found.log.rounds[0])) > 0.08
    assert max(errors(found.log.rounds[-1])) < 0.03
    step_us = Simulated(truth).step_us(found.placement)
    assert found.placement.predicted["step_us"] == pytest.approx(step_us, rel=0.03)


def test_the_answer_is_the_fastest_and_faster_than_the_first_search(
    found: Tuned, truth: Problem
) -> None:
    measure = Simulated(truth)
    step_us = {each.name: measure.step_us(each.placement) for each in found.log.candidates}
    answer_us = step_us[found.choice.answer]
    assert answer_us <= 1.01 * min(step_us.values())
    assert answer_us < step_us["pesto --robust"]
    assert found.choice.faster is not None
    assert found.choice.simple == "expert"
    assert found.choice.faster.low > 1.3


def test_a_slower_candidate_has_no_steps_after_its_round(found: Tuned) -> None:
    rounds = found.log.search_rounds
    for number, each in enumerate(rounds[1:], start=1):
        before = {row.candidate for ran in rounds[:number] for row in ran.measured}
        again = [row.candidate for row in each.measured if row.candidate in before]
        assert again == [best_candidate(rounds[:number])]


def test_it_ends_after_two_rounds_that_bring_nothing(found: Tuned) -> None:
    *rounds, final = found.log.rounds
    assert final.is_final
    assert is_exhausted(rounds)
    assert not is_exhausted(rounds[:-1])


def test_a_time_that_was_measured_well_replaces_that_of_the_profile(
    profile: Profile, truth: Problem
) -> None:
    (single,) = api.compare(profile, ["single"])
    placed = api.placement(profile, single)
    measured = measurement("single", Simulated(truth).run(placed, Turns(10)), placed)
    steady = with_seen_times(profile, seen(profile, [(placed, measured)])).problem
    varying = measured_profile(profile.problem, deviation=3.0)
    unsteady = with_seen_times(varying, seen(varying, [(placed, measured)])).problem
    assert steady.time_us == pytest.approx(truth.time_us, rel=0.15)
    assert unsteady.time_us == pytest.approx(profile.problem.time_us, rel=0.02)


def measurement(name: str, run: RealRun, placed: PlacementFile, us: float = 1.0) -> Measurement:
    op_us = np.array([run.op_us[op] for op in placed.names])
    return Measurement(name, us, run.times.us, op_us, num_traced=3)


def test_an_op_without_a_time_gets_its_measured_time(profile: Profile, truth: Problem) -> None:
    times_us = profile.problem.time_us.copy()
    times_us[4] = 0.0  # it never ran when the step was profiled
    unknown = replace(profile, problem=replace(profile.problem, time_us=times_us))
    (single,) = api.compare(unknown, ["single"])
    placed = api.placement(unknown, single)
    run = Simulated(truth).run(placed, Turns(10))
    found = with_seen_times(unknown, seen(unknown, [(placed, measurement("single", run, placed))]))
    assert found.problem.time_us[4] == run.op_us[profile.problem.graph.names[4]]


def test_a_time_that_was_never_measured_counts_as_0_until_a_plan_has_run(
    profile: Profile, truth: Problem
) -> None:
    assert untried(profile, seen(profile, [])) is None
    spread = profile.spread
    assert spread is not None
    mean_us = spread.mean_us["CPU"].copy()
    mean_us[[2, 5]] = np.nan
    partly = replace(profile, spread=replace(spread, mean_us={"CPU": mean_us}))
    exploring = untried(partly, seen(partly, []))
    assert exploring is not None
    assert np.flatnonzero(exploring.problem.time_us[:, 0] == 0).tolist() == [2, 5]
    (single,) = api.compare(profile, ["single"])
    placed = api.placement(profile, single)
    run = Simulated(truth).run(placed, Turns(10))
    assert untried(partly, seen(partly, [(placed, measurement("single", run, placed))])) is None


def test_few_steps_change_little(profile: Profile, truth: Problem) -> None:
    assert corrected(TuningLog(profile)).fit == Fit()
    (single,) = api.compare(profile, ["single"])
    placed = api.placement(profile, single)
    run = Simulated(truth).run(placed, Turns(10))
    slow = replace(run, times=StepTimes(run.times.us * 3, (), {}))
    candidate = Candidate("single", "single", True, placed)
    slower = TuningRound((measurement("single", slow, placed),))
    factors = corrected(TuningLog(profile, (candidate,), (slower,))).fit.factors
    assert 1.5 < factors.ops < 3.0
    assert factors.transfers == pytest.approx(1.0)  # one device tells nothing about transfers
    before = TuningRound((measurement("single", run, placed),))
    newest_is_slow, newest_is_fast = (
        corrected(TuningLog(profile, (candidate,), rounds)).fit.factors.ops
        for rounds in ((before, slower), (slower, before))
    )
    assert newest_is_fast < 1.5 < newest_is_slow


def four_workers_on_two_hosts() -> Machine:
    devices = tuple(Device(f"CPU:{i}", "CPU", 2**40, host=f"host {i // 2}") for i in range(4))
    comm = CommModel(latency_us=1000.0, us_per_byte=0.001)
    links = tuple(
        Link(src.name, dst.name, comm) for src in devices for dst in devices if src is not dst
    )
    return Machine(devices, links, contention={"CPU": {"": 0.2}})


def test_contention_and_transfers_between_hosts_have_factors_of_their_own() -> None:
    graph = towers().graph
    times_us = np.full(graph.num_ops, 2000.0)
    problem = Problem.build(graph, {"CPU": times_us}, four_workers_on_two_hosts())
    truth = Factors(contention=1.5, transfers=0.7, network=2.5)
    random = np.random.default_rng(3)
    steps = []
    for _ in range(12):
        device = random.integers(4, size=problem.graph.num_groups)[problem.graph.colocation_group]
        placed = placed_on(problem, named(problem, ordered(Simulator(problem), device)))
        steps.append(MeasuredStep(placed, predicted_us(placed, truth), error=0.001))
    fit = fitted(steps)
    found = fit.factors
    assert found.ops == pytest.approx(1.0, rel=0.04)
    assert found.contention == pytest.approx(truth.contention, rel=0.15)
    assert found.transfers == pytest.approx(truth.transfers, rel=0.15)
    assert found.network == pytest.approx(truth.network, rel=0.1)
    # An error of 2 % is assumed for every step; transfers within a host are the fewest.
    assert 0.002 < fit.deviation["ops"] < 0.05
    assert fit.deviation["transfers"] > fit.deviation["network"]
    few = fitted(steps[:2])
    assert few.deviation["network"] > 1.5 * fit.deviation["network"]


def test_links_are_timed_in_a_share_of_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Effort] = []
    monkeypatch.setattr(api_tuning, "timed_transfers", lambda _, effort: asked.append(effort))
    for machine in (two_cpus().machine, four_workers_on_two_hosts()):
        api_tuning._timed_links(replace(two_cpus(), machine=machine), 600.0)
    # Two directions of 75 s each; all pairs of hosts are of one kind, which two links stand for.
    assert asked == [Effort(10, 90 / 150), Effort(10, 90 / 150)]
    api_tuning._timed_links(two_cpus(), 120.0)
    api_tuning._timed_links(two_cpus(), 3600.0)
    assert asked[2:] == [Effort(10, 18 / 150), Effort()]


@pytest.mark.parametrize("num_bad", [0, 1, 2])
def test_links_are_timed_once_more_if_larger_transfers_took_less_time(
    num_bad: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    slopes = iter([*[-1e-5] * num_bad, 1e-3])

    def timed(_: object, effort: Effort) -> TimedTransfers:
        slope = next(slopes)
        us = {num_bytes: 200 + slope * num_bytes for num_bytes in (1, 1000, 10**6)}
        return TimedTransfers({("CPU", "CPU", ""): [LinkTimes(us, 140.0, 2.0, 1.5)]})

    monkeypatch.setattr(api_tuning, "timed_transfers", timed)
    if num_bad > 1:
        with pytest.raises(BadInputError, match="take less time the larger they are"):
            api_tuning._fitted_links(two_cpus(), 600.0)
        return
    (fit,) = api_tuning._fitted_links(two_cpus(), 600.0)
    assert fit.comm.us_per_byte == pytest.approx(1e-3)


def named(problem: Problem, schedule: Schedule) -> PlacementFile:
    result = judged("random", Solution.of(problem, schedule), 0.0)
    return api.placement(Profile(problem, {"graph_hash": "0" * 64}), result)


def test_factors_without_an_effect_stay_1(profile: Profile, truth: Problem) -> None:
    (single,) = api.compare(profile, ["single"])
    placed = api.placement(profile, single)
    candidate = Candidate("single", "single", True, placed)
    ran = measurement("single", Simulated(truth).run(placed, Turns(10)), placed)
    factors = corrected(TuningLog(profile, (candidate,), (TuningRound((ran,)),))).fit.factors
    assert (factors.contention, factors.network) == (1.0, 1.0)


def test_a_wrong_step_overhead_is_corrected_by_steps_that_are_short(profile: Profile) -> None:
    problem = profile.problem
    short = replace(profile, problem=replace(problem, time_us=problem.time_us / 1e4))
    machine = replace(problem.machine, step_overhead_us=1000.0)
    truth = replace(short.problem, machine=machine)
    (single,) = api.compare(short, ["single"])
    placed = api.placement(short, single)
    run = Simulated(truth).run(placed, Turns(10))
    candidate = Candidate("single", "single", True, placed)
    row = measurement("single", run, placed)
    costs = corrected(TuningLog(short, (candidate,), (TuningRound((row,)),)))
    assert costs.fit.factors.overhead == pytest.approx(2.0, rel=0.05)
    assert costs.fit.factors.ops == pytest.approx(1.0, rel=0.05)


def ran(*median_us: float, names: str = "abcdef", noise: float = 0.0, new: int = 0) -> TuningRound:
    """A round in which candidates have these medians; the first ones by turns 1 +- noise."""
    turns = np.array([[1 - noise], [1.0], [1 + noise], [1 - noise], [1 + noise]])
    rows = [
        Measurement(name, us, turns[:: -1 if index % 2 else 1] * us, np.zeros(0))
        for index, (name, us) in enumerate(zip(names, median_us, strict=False))
    ]
    return TuningRound(tuple(rows))


def test_times_of_a_slower_round_are_compared_by_the_candidate_that_ran_in_both() -> None:
    rounds = [ran(100, 90, names="ab"), ran(180, 170, names="bc")]
    assert relative_us(rounds) == pytest.approx({"a": 100, "b": 90, "c": 85})


@pytest.mark.parametrize(
    ("new_us", "noise", "nothing"),
    [(80.0, 0.0, False), (80.0, 0.3, True), (100.0, 0.0, True), (120.0, 0.0, True)],
)
def test_a_round_brings_something_if_a_new_candidate_is_clearly_faster(
    new_us: float, noise: float, nothing: bool
) -> None:
    rounds = [ran(100, 110, names="ab"), ran(100, new_us, names="ac", noise=noise)]
    assert not brought_nothing(rounds[:1])
    assert brought_nothing(rounds) is nothing


def test_two_rounds_without_a_faster_candidate_end_the_search() -> None:
    something, nothing = ran(100, 80, names="ab"), ran(80, 90, names="bc")
    also_nothing = ran(80, 80, names="bd")
    rounds = [ran(100, names="a"), something, nothing, also_nothing]
    assert [is_exhausted(rounds[:count]) for count in range(1, 5)] == [False, False, False, True]


@pytest.mark.parametrize(
    ("search_us", "noise", "answer"),
    [(80.0, 0.0, "b"), (98.0, 0.1, "a"), (100.0, 0.0, "a"), (120.0, 0.0, "a")],
    ids=["faster", "faster by chance", "equal", "slower"],
)
def test_a_simple_plan_is_the_answer_unless_another_is_clearly_faster(
    search_us: float, noise: float, answer: str
) -> None:
    final = ran(100, search_us, 130, names="abc", noise=noise)
    choice = chosen(final.measured, ["a", "c"])
    assert (choice.answer, choice.simple) == (answer, "a")


def test_the_answer_without_a_simple_plan_is_the_fastest() -> None:
    assert chosen(ran(3, 2, 4).measured, []).answer == "b"


def test_finalists_are_the_fastest_and_the_simple_ones_that_may_be_the_best(found: Tuned) -> None:
    names = finalists(found.log, 2)
    simple = [name for name in names if found.log.candidate_of[name].is_simple]
    assert len(names) == 3
    assert simple == ["expert"]  # single is clearly slower


def test_a_log_is_read_as_it_was_written_and_gives_the_same_costs(
    found: Tuned, tmp_path: Path
) -> None:
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    api.save(first, found.log)
    read = api.load(first)
    write_tuning_log(second, read)
    assert json.loads(second.read_bytes()) == json.loads(first.read_bytes())
    costs = corrected(read)
    assert costs.fit.factors == found.costs.fit.factors
    assert (costs.profile.problem.time_us == found.costs.profile.problem.time_us).all()


def test_a_tuning_continues_from_its_log(
    found: Tuned, profile: Profile, truth: Problem, tmp_path: Path
) -> None:
    log = replace(found.log, rounds=found.log.rounds[:2])
    measure = Simulated(truth)
    again = tuned_on(truth, profile, log=log, measure=measure)
    assert again.log.rounds[:2] == log.rounds
    assert max(errors(again.log.rounds[2])) < 0.06 < max(errors(log.rounds[0]))
    before = {row.candidate for each in log.rounds for row in each.measured}
    for each in again.log.search_rounds[2:]:
        assert len({row.candidate for row in each.measured} & before) <= 1
        before |= {row.candidate for row in each.measured}


class Failing(Simulated):
    """Steps that raise an error from a call on."""

    def __init__(self, truth: Problem, error: BaseException, num_calls: int) -> None:
        super().__init__(truth)
        self.error, self.left = error, num_calls

    def __call__(self, placements: Sequence[PlacementFile], turns: Turns) -> list[RealRun]:
        self.left -= 1
        if self.left < 0:
            raise self.error
        return super().__call__(placements, turns)


DEAD = EnvironmentFailedError("worker 1 of local-workers:2 has died: it was killed; connect again.")


@pytest.mark.parametrize(
    ("error", "ended"), [(KeyboardInterrupt(), Ended.INTERRUPTED), (DEAD, Ended.FAILED)]
)
def test_the_best_measured_plan_is_kept_if_the_steps_end(
    profile: Profile, truth: Problem, error: BaseException, ended: Ended
) -> None:
    logs: list[TuningLog] = []
    found = tuned_on(truth, profile, measure=Failing(truth, error, 2), on_round=logs.append)
    assert found.ended is ended
    assert found.error is (error if ended is Ended.FAILED else None)
    relative = relative_us(logs[-1].rounds)
    assert len(logs) == 2
    assert found.choice.answer == min(relative, key=relative.__getitem__)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), DEAD])
def test_without_a_measured_plan_the_error_is_raised(
    profile: Profile, truth: Problem, error: BaseException
) -> None:
    with pytest.raises(type(error)):
        tuned_on(truth, profile, measure=Failing(truth, error, 0))


class OfShortData(Simulated):
    """Steps whose data ends after two rounds; single steps of a candidate still run."""

    rounds = 0

    def __call__(self, placements: Sequence[PlacementFile], turns: Turns) -> list[RealRun]:
        self.rounds += turns.num_steps > 1
        if self.rounds > 2 and turns.num_steps > 1:
            raise BadInputError("the feeds end after 40 batches")
        return super().__call__(placements, turns)


def test_the_best_measured_plan_is_kept_if_the_data_does_not_fit(
    profile: Profile, truth: Problem
) -> None:
    found = tuned_on(truth, profile, measure=OfShortData(truth))
    assert found.ended is Ended.FAILED
    assert str(found.error) == "the feeds end after 40 batches"
    assert len(found.log.rounds) == 2
    assert found.choice.answer == best_candidate(found.log.rounds)


def test_a_tuning_without_a_plan_that_fits_is_refused(profile: Profile, truth: Problem) -> None:
    small = replace(profile, problem=profile.problem.constrained(headroom=1e-12))
    with pytest.raises(InfeasibleError, match="no form of plan fits into the memory"):
        tuned_on(truth, small)


def test_a_finished_log_keeps_its_answer_if_it_is_resumed_and_stopped(
    profile: Profile, truth: Problem, found: Tuned
) -> None:
    limits = Limits(workers=1)
    limits.stop.set()
    resumed = tuned_on(truth, profile, log=found.log, limits=limits)
    assert resumed.ended is Ended.INTERRUPTED
    assert resumed.choice == found.choice


def test_a_form_with_fewer_parts_than_the_constraints_ask_for_is_left_out(graph: Path) -> None:
    profile = api.profile(api.read_meta_graph(graph), "v100x2-nvlink", parts=(2,))
    profile = api.constrain(profile, Constraints(split=[SplitRule("*", parts=2)]))
    forms = {each.name: each for each in searched_forms(profile.problem)}
    context = Context(limits=Limits(0.2))
    result, reason = solved(forms["pesto"], profile, context)
    assert result is None
    assert reason == "pesto is left out: the constraints split ops into 2 parts."
    result, reason = solved(forms["split"], profile, context)
    assert result is not None, reason
    assert result.solution.is_rewritten


def test_a_request_to_stop_ends_the_tuning_before_the_next_steps(
    profile: Profile, truth: Problem
) -> None:
    stop = threading.Event()
    limits = Limits(workers=1, stop=stop)
    found = tuned_on(truth, profile, limits=limits, on_round=lambda log: stop.set())
    assert found.ended is Ended.INTERRUPTED
    assert len(found.log.rounds) == 1
    with pytest.raises(KeyboardInterrupt):
        tuned_on(truth, profile, limits=limits)


def test_a_candidate_that_cannot_run_is_left_out(profile: Profile, truth: Problem) -> None:
    class Picky(Simulated):
        def run(self, file: PlacementFile, turns: Turns) -> RealRun:
            if len(set(file.device)) == 1:
                raise BadInputError("this one cannot run.")
            return super().run(file, turns)

    notes: list[str] = []
    watch = Watch(note=notes.append)
    found = tuned_on(truth, profile, measure=Picky(truth), watch=watch)
    assert found.ended is Ended.DONE
    assert "single cannot run: this one cannot run." in notes
    assert all(each.of("single") is None for each in found.log.rounds)


def test_a_candidate_that_cannot_run_is_not_tried_again(
    found: Tuned, profile: Profile, truth: Problem
) -> None:
    able = {tuple(each.placement.device) for each in found.log.candidates if each.is_simple}
    tried = Counter[tuple[int, ...]]()

    class Picky(Simulated):
        def run(self, file: PlacementFile, turns: Turns) -> RealRun:
            if tuple(file.device) not in able:
                tried[*file.device, *file.rank] += 1
                raise BadInputError("this one cannot run.")
            return super().run(file, turns)

    assert tuned_on(truth, profile, measure=Picky(truth)).ended is Ended.DONE
    assert max(tried.values()) == 2  # once with the others, and once alone


def damaged(value: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A log whose first measurement has other entries."""
    rows = value["rounds"][0]["measured"]
    rounds = [{**value["rounds"][0], "measured": [{**rows[0], **changes}, *rows[1:]]}]
    return {**value, "rounds": rounds}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"candidate": "other"}, "a round has candidate 'other'; one of single, .* was expected"),
        ({"op_us": [1.0]}, "have 1 op times and turns of .*; 19 op times and equal turns were"),
        ({"steps_us": [[1.0], [1.0, 2.0]]}, "turns of 1, 2 steps; 19 op times and equal turns"),
        ({"predicted_us": 0.0}, "predicted_us is 0.0; a number greater than 0 was expected"),
    ],
)
def test_a_damaged_log_is_refused(
    found: Tuned, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    path = tmp_path / "log.json"
    write_tuning_log(path, found.log)
    path.write_text(json.dumps(damaged(json.loads(path.read_text()), **changes)))
    with pytest.raises(BadInputError, match=message):
        read_tuning_log(path)


def build_towers(tf: Any) -> Sequence[Any]:
    """Two towers of dense layers."""
    tf1 = tf.compat.v1
    inputs = tf1.placeholder(tf.float32, [128, 256], name="inputs")
    outputs = []
    for name in ("left", "right"):
        with tf1.variable_scope(name):
            weights = [
                tf1.get_variable(f"w{layer}", [256, 256], use_resource=True) for layer in range(2)
            ]
            output = inputs
            for each in weights:
                output = tf.nn.relu(output @ each)
            outputs.append(output)
    loss = tf.reduce_mean(outputs[0] * outputs[1])
    return [tf1.train.GradientDescentOptimizer(0.1).minimize(loss), loss]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tuning") / "towers.meta"
    write_meta_graph(path, exported(build_towers))
    return path


def test_prices_of_parts_are_corrected(graph: Path) -> None:
    """A part that takes twice its price makes that price higher, and others that are not seen."""
    profile = api.profile(api.read_meta_graph(graph), "v100x2-nvlink", parts=(2, 4))
    parts = profile.problem.parts
    assert parts is not None
    slow = replace(
        parts, times={key: replace(row, ratio=2 * row.ratio) for key, row in parts.times.items()}
    )
    (split,) = api.compare(profile, ["data-parallel"])
    placed = api.placement(profile, split)
    run = Simulated(replace(profile.problem, parts=slow)).run(placed, Turns(10))
    times = seen(profile, [(placed, measurement("split", run, placed))])
    found = with_seen_times(profile, times).problem
    assert found.parts is not None
    assert found.time_us == pytest.approx(profile.problem.time_us, rel=0.05, nan_ok=True)
    factors = {key: found.parts.times[key].ratio / row.ratio for key, row in parts.times.items()}
    sized = {price for price in times.prices if not isinstance(price, str)}
    assert sized < factors.keys()
    gpu = profile.problem.kinds.index("GPU")
    for key, factor in factors.items():
        assert factor[gpu] == pytest.approx(2.0, rel=0.1 if key in sized else 0.3)


@pytest.fixture
def links(tmp_path: Path) -> Path:
    """A fit of the links between workers, so that transfers need not be timed."""
    path = tmp_path / "links.comm.json"
    write_comm(path, [CommFit("CPU", "CPU", CommModel(120.0, 3e-4, wait_us=3000.0), signal_us=100)])
    return path


def test_real_steps_decide(pesto: Pesto, graph: Path, links: Path, tmp_path: Path) -> None:
    output, log, plot = (tmp_path / name for name in ("p.json", "log.json", "plot.svg"))
    machine = ("-m", "local-workers:2", "--time-limit", 3, "--comm", links, "--parts", 2)
    files = ("-o", output, "--log", log, "--plot", plot)
    done = pesto("tune", graph, *machine, *files, "--json", "--quiet")
    assert done.code == 0, done.err
    record = json.loads(done.out)
    final = {row["candidate"]: row for row in record["rounds"][-1]["measured"]}
    assert record["ended"] == "done"
    assert record["rounds"][-1]["is_final"]
    placed = api.read_placement(output)
    assert placed.predicted["measured_us"] == final[record["choice"]["answer"]]["median_us"]
    assert final.keys() & {"single", "expert", "data-parallel"}
    assert sum(record["shares"].values()) == pytest.approx(1.0)
    assert plot.read_text().startswith("<svg")
    known = read_tuning_log(log)
    assert len(known.rounds) == len(record["rounds"])
    assert any((row.op_us > 0).any() for _, row in known.measurements)


def stop_last_worker(connection: Connection) -> None:
    """Stop a worker, which is a child of the client process; its port accepts connections.

    The client process then waits for an answer for 2 s, and not for 10.
    """
    hang_watch.PERIOD_S, hang_watch.ANSWER_S = 1.0, 2.0
    children = Path("/proc/self/task").glob("*/children")
    workers = [int(pid) for each in children for pid in each.read_text().split()]
    os.kill(max(workers), signal.SIGSTOP)


def test_if_a_worker_hangs_it_is_named_and_the_best_plan_is_kept(graph: Path, links: Path) -> None:
    with api.connected("local-workers:2", open_ports=True) as cluster:
        found = api.tune(
            api.read_meta_graph(graph),
            cluster,
            time_limit_s=1.0,
            comm=api.read_comm(links),
            parts=(),
            on_round=lambda log: cluster.call(stop_last_worker),
        )
    assert found.ended is Ended.FAILED
    assert re.search(r"worker:\d at 127.0.0.1:\d+ accepts .* not answered", str(found.error))
    (only,) = found.log.rounds
    assert only.of(found.choice.answer) is not None
    assert found.placement.predicted["measured_us"] > 0


def test_a_log_is_continued_and_that_of_another_graph_is_refused(
    graph: Path, links: Path, tmp_path: Path
) -> None:
    meta, log = api.read_meta_graph(graph), tmp_path / "log.json"
    notes: list[str] = []
    options: dict[str, Any] = {"time_limit_s": 0.5, "comm": api.read_comm(links), "log": log}
    first = api.tune(meta, two_cpus(), **options, parts=())
    second = api.tune(meta, two_cpus(), **options, watch=Watch(note=notes.append))
    count = len(first.log.rounds)
    assert len(second.log.rounds) > count
    assert [each.measured[0].candidate for each in second.log.rounds[:count]] == [
        each.measured[0].candidate for each in first.log.rounds
    ]
    assert f"{log} exists" in notes[0]
    other = api.export("zoo:RNNLM-tiny")
    with pytest.raises(BadInputError, match=r"log\.json: the profile is of another graph"):
        api.tune(other, two_cpus(), **options)
    machine = two_cpus().machine
    away = tuple(replace(device, host="away") for device in machine.devices)
    moved = replace(two_cpus(), machine=replace(machine, devices=away))
    with pytest.raises(
        BadInputError, match=r"log\.json: the tuning began with .* on host '.*'away'"
    ):
        api.tune(meta, moved, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--plot", "plot.txt"), "chart plot.txt: a name that ends in .svg"),
        (("--parts", "2", "--whole"), "--parts does not go with --whole"),
        (("--profile", "p.json", "--whole"), "--profile already has the links and the prices"),
        (("--log", "out.json"), "out.json is also an input or another output"),
        (("--feeds", "data.csv"), "feeds 'data.csv': this is neither an .npz file nor"),
        (("--time-limit", "0"), "0 is not in the range"),
    ],
)
def test_wrong_options_are_refused_before_any_work(
    pesto: Pesto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: Any, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = pesto("tune", "g.meta", "-m", "local-workers:2", "-o", "out.json", *options)
    assert done.code == 2
    assert message in " ".join(done.err.split())
    assert not list(tmp_path.iterdir())


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two devices of this process, in place of workers."""
    monkeypatch.setattr(cli_tuning, "connected", lambda *given: nullcontext(two_cpus()))


QUICK = ("-m", "local-workers:2", "--time-limit", 0.5, "--whole")
SCRIPT = Path(__file__).parent.parent / "examples" / "train_v1.py"


@pytest.mark.usefixtures("in_process")
def test_a_script_is_tuned_with_the_data_of_its_first_step(
    pesto: Pesto, links: Path, tmp_path: Path
) -> None:
    output, corrected_file = tmp_path / "p.json", tmp_path / "corrected.json"
    files = ("--comm", links, "-o", output, "--corrected", corrected_file)
    done = pesto("tune", SCRIPT, *QUICK, *files)
    assert done.code == 0, done.err
    assert "round 0: 12 steps" in done.out
    assert "final round: " in done.out
    assert "Answer: " in done.out
    assert "Fitted to the measured steps: op times x" in done.err
    placed, profile = api.read_placement(output), api.read_profile(corrected_file)
    expected_us = placed.predicted["step_us"]
    assert api.predicted_us(placed, profile) == pytest.approx(expected_us)


@pytest.mark.usefixtures("in_process")
def test_constraints_hold_for_all_candidates_and_a_log_continues_only_under_them(
    pesto: Pesto, graph: Path, links: Path, tmp_path: Path
) -> None:
    rules, output, log = (tmp_path / name for name in ("rules.toml", "p.json", "log.json"))
    files = ("--comm", links, "-o", output, "--log", log)
    rules.write_text('[[pin]]\nops = "*nothing*"\ndevice = "CPU:1"\n')
    assert pesto("tune", graph, *QUICK, *files, "--constraints", rules).code == 2
    rules.write_text('[[pin]]\nops = "*MatMul*"\ndevice = "CPU:1"\n')
    done = pesto("tune", graph, *QUICK, *files, "--constraints", rules)
    assert done.code == 0, done.err
    known = read_tuning_log(log)
    for each in known.candidates:
        placed = each.placement
        pinned = [
            at for name, at in zip(placed.names, placed.device, strict=True) if "MatMul" in name
        ]
        assert pinned
        assert {placed.devices[at] for at in pinned} == {"CPU:1"}, each.name
    parameters = api.read_placement(output).provenance["parameters"]
    assert parameters["constraints"]["pin"] == [{"ops": "*MatMul*", "device": "CPU:1"}]
    again = pesto("tune", graph, *QUICK, *files)
    assert again.code == 2
    assert "the tuning began with constraints = {" in again.err
    assert "begin with another log" in again.err
    continued = pesto("tune", graph, *QUICK, *files, "--constraints", rules)
    assert continued.code == 0, continued.err
    assert len(read_tuning_log(log).rounds) > len(known.rounds)


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (KeyboardInterrupt(), 130, "Interrupted: "),
        (DEAD, 5, "worker 1 of local-workers:2 has died"),
    ],
)
@pytest.mark.parametrize("num_calls", [0, 1])
def test_the_exit_code_says_how_it_ended_and_the_best_plan_is_written(
    pesto: Pesto,
    graph: Path,
    links: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    code: int,
    message: str,
    num_calls: int,
) -> None:
    left = iter([compared] * num_calls)

    def failing(*given: Any, **options: Any) -> Any:
        run = next(left, None)
        if run is None:
            raise error
        return run(*given, **options)

    monkeypatch.setattr(api_tuning, "compared", failing)
    output = tmp_path / "p.json"
    done = pesto("tune", graph, *QUICK, "--comm", links, "-o", output, "--quiet")
    assert done.code == code, done.err
    assert output.exists() is bool(num_calls)
    assert message in done.err or not num_calls


def with_slow_device(log: TuningLog, name: str, times: float) -> TuningLog:
    """Return the log with the op times of the profile, `times` times as long on one device."""

    def slower(row: Measurement) -> Measurement:
        file = log.candidate_of[row.candidate].placement
        placed = placed_on(log.profile.problem, file)
        problem = placed.problem
        is_slow = placed.placement.device == problem.machine.index_of[name]
        op_us = np.where(is_slow, times, 1.0) * placed.usual_us
        us_of = dict(zip(problem.graph.names, op_us.tolist(), strict=True))
        return replace(row, op_us=np.array([us_of[each] for each in file.names]))

    rounds = [
        replace(each, measured=tuple(map(slower, each.measured))) for each in log.search_rounds
    ]
    return replace(log, rounds=tuple(rounds))


def test_a_slow_device_is_named(found: Tuned) -> None:
    assert slow_devices(with_slow_device(found.log, "CPU:1", 1.0)) == []
    (slow,) = slow_devices(with_slow_device(found.log, "CPU:1", 2.0))
    assert (slow.name, slow.fastest) == ("CPU:1", "CPU:0")
    assert slow.times == pytest.approx(2.0)
    assert str(slow).startswith("ops on CPU:1 take ")


def test_a_slow_worker_is_named_once_in_a_tuning(profile: Profile, truth: Problem) -> None:
    class SlowWorker(Simulated):
        def run(self, file: PlacementFile, turns: Turns) -> RealRun:
            real = super().run(file, turns)
            device = dict(zip(file.names, file.device, strict=True))
            slow = {
                name: us * 2 if file.devices[device[name]] == "CPU:1" else us
                for name, us in real.op_us.items()
            }
            return replace(real, op_us=slow)

    notes: list[str] = []
    watch = Watch(note=notes.append)
    tuned_on(truth, profile, measure=SlowWorker(truth), watch=watch, clock=Clock(0.5))
    assert [note.partition(" take")[0] for note in notes if "times as long" in note] == [
        "ops on CPU:1"
    ]


def test_candidates_that_cannot_run_together_run_one_after_the_other(
    profile: Profile, truth: Problem
) -> None:
    class Small(Simulated):
        def __call__(self, placements: Sequence[PlacementFile], turns: Turns) -> list[RealRun]:
            if len(placements) > 1:
                raise EnvironmentFailedError("the devices could not run the step: out of memory.")
            return super().__call__(placements, turns)

    notes: list[str] = []
    found = tuned_on(truth, profile, measure=Small(truth), watch=Watch(note=notes.append))
    assert found.ended is Ended.DONE
    assert len(found.log.rounds[0].measured) > 2
    assert notes[0].startswith("the candidates cannot run together")


def test_the_first_round_has_whole_ops_and_split_ones_whatever_their_predictions_are(
    found: Tuned,
) -> None:
    whole = found.log.candidates[0].placement
    split = replace(whole, plan=Plan({"sum": Choice("rows", (1, 1))}))
    rows = [
        Candidate(name, name, is_simple, placed)
        for name, is_simple, placed in (
            ("split", False, split),
            ("split by 2", False, split),
            ("data-parallel", True, split),
            ("data-parallel, mirrored variables", True, split),
            ("pesto", False, whole),
            ("expert", True, whole),
            ("single", True, whole),
        )
    ]
    names = [each.name for each in first_to_run(rows)]
    assert names == ["split", "data-parallel", "pesto", "expert", "single"]
