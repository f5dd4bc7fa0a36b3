"""`pesto bench`: runs are cached, and reports of them are right."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import Pesto, on_gpus, two_gpus
from placers import PLACERS

from pesto_cli.bench import PAPERS, runs
from pesto_cli.bench.contenders import (
    BAECHI,
    BASELINES,
    CONTENDERS,
    FROM_SINGLE,
    PESTO,
    TUNED,
)
from pesto_cli.bench.experiment import ExperimentRequest, ms_or_oom
from pesto_cli.bench.machine_variant import GIB, MachineVariant
from pesto_cli.bench.models import BenchModel, Models
from pesto_cli.bench.pesto.comparison import ModelComparison, num_settings, tuned_names
from pesto_cli.bench.pesto.figure7 import FIGURE7, matrix
from pesto_cli.bench.pesto.order import reduction, speed_up
from pesto_cli.bench.pesto.table3 import effort_s
from pesto_cli.bench.published import paper_models, published
from pesto_cli.bench.record import FORMAT, CurvePoint, Learning, Record
from pesto_cli.bench.runs import Effort, Job, JobDone, cached, key_of, run_jobs
from pesto_cli.bench.timeline import joined
from pesto_cli.bench.version import pesto_version
from pesto_cli.data.graph import OpGraph, Tensor
from pesto_cli.data.problem import Problem
from pesto_cli.errors import BadInputError
from pesto_cli.files import Profile, write_profile
from pesto_cli.strategies.baechi import SETTINGS
from pesto_cli.strategies.context import needs_parts
from pesto_cli.strategies.order import ORDERS
from pesto_cli.zoo import PAPER_MODELS

QUICK = Effort(time_limit_s=0.05, deterministic=True)
FAST = ("--time-limit", "0.05", "--deterministic")


@pytest.fixture
def model(diamond_profile: Path, tmp_path: Path) -> BenchModel:
    return Models(tmp_path, never).model(str(diamond_profile))


def never(name: str) -> Profile:
    raise AssertionError(f"no profile of {name} should be made")


def jobs_of(model: BenchModel, names: tuple[str, ...] = ("single", "expert", PESTO)) -> list[Job]:
    return [Job(model, name, MachineVariant(), QUICK) for name in names]


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list to which every run in this process adds its contender."""
    ran: list[str] = []
    make = runs.run_job

    def counted(job: Job, key: dict[str, object]) -> Record:
        ran.append(job.contender)
        return make(job, key)

    monkeypatch.setattr(runs, "run_job", counted)
    return ran


# Runs


def test_a_cached_run_is_not_run_again(model: BenchModel, tmp_path: Path, count: list[str]) -> None:
    jobs = jobs_of(model)
    first = run_jobs([*jobs, jobs[0]], tmp_path)
    assert count == ["single", "expert", PESTO]
    done: list[JobDone] = []
    again = run_jobs(jobs, tmp_path, on_done=done.append)
    assert count == ["single", "expert", PESTO]
    assert again == first
    assert [each.was_cached for each in done] == [True] * 3
    assert [(each.num_done, each.num_jobs) for each in done] == [(1, 3), (2, 3), (3, 3)]
    # 22 us on one device, 14 us at best: see conftest.
    assert first[jobs[0]].step_us == 22
    assert first[jobs[2]].step_us == 14


def test_one_search_serves_jobs_that_read_other_fields_of_its_record(
    model: BenchModel, tmp_path: Path, count: list[str]
) -> None:
    (plain,) = jobs_of(model, (PESTO,))
    with_orders, with_timeline = (
        replace(plain, with_orders=True),
        replace(plain, with_timeline=True),
    )
    found = run_jobs([plain, with_orders, with_timeline], tmp_path)
    assert count == [PESTO]
    assert found[with_orders].orders_us.keys() == ORDERS.keys()
    assert found[with_timeline].timeline
    assert found[plain] == found[with_orders]
    run_jobs([with_timeline], tmp_path)  # from the cache
    assert count == [PESTO]
    run_jobs([replace(plain, with_decisions=True)], tmp_path)  # the cached record has none
    assert count == [PESTO] * 2


def test_a_cached_run_has_its_timeline_and_its_curve(model: BenchModel, tmp_path: Path) -> None:
    job = Job(model, "spotlight", MachineVariant(), QUICK, with_timeline=True)
    record = Record(
        key=key_of(job, pesto_version()),
        num_ops=4,
        timeline={"GPU:0": [(0.0, 2.0), (3.0, 4.5)]},
        learning=Learning(
            first_us=3.0,
            first_fits=True,
            first_s=0.5,
            curve=[CurvePoint(seconds=1.0, num_placements=5, mean_us=2.0, best_us=1.0)],
        ),
    )
    path = runs.path_of(tmp_path, record.key)
    path.write_text(json.dumps({"format": FORMAT, "version": 1, **record.model_dump(mode="json")}))
    assert cached(tmp_path, record.key) == record


def test_an_interrupted_command_leaves_complete_files_and_continues_from_them(
    model: BenchModel, tmp_path: Path, count: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    counted = runs.run_job

    def interrupted(job: Job, key: dict[str, object]) -> Record:
        if job.contender == PESTO:
            raise KeyboardInterrupt
        return counted(job, key)

    monkeypatch.setattr(runs, "run_job", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_jobs(jobs_of(model), folder)
    files = list(folder.iterdir())
    assert [json.loads(path.read_text())["format"] for path in files] == ["pesto-bench-run"] * 2
    monkeypatch.setattr(runs, "run_job", counted)
    assert len(run_jobs(jobs_of(model), folder)) == 3
    assert count == ["single", "expert", PESTO]


def test_a_run_with_a_damaged_file_is_run_again(
    model: BenchModel, tmp_path: Path, count: list[str]
) -> None:
    (job,) = jobs_of(model, ("single",))
    key = key_of(job, pesto_version())
    found = run_jobs([job], tmp_path)[job]
    path = runs.path_of(tmp_path, key)
    for content in ("", "{", path.read_text().replace('"single"', '"expert"')):
        path.write_text(content)
        assert cached(tmp_path, key) is None
    assert run_jobs([job], tmp_path)[job].step_us == found.step_us
    assert count == ["single", "single"]


def test_several_processes_have_the_same_results_as_one(model: BenchModel, tmp_path: Path) -> None:
    jobs = jobs_of(model, ("single", "expert"))
    alone, together = tmp_path / "alone", tmp_path / "together"
    for folder in (alone, together):
        folder.mkdir()
    one, two = run_jobs(jobs, alone), run_jobs(jobs, together, processes=2)
    assert {job: record.step_us for job, record in one.items()} == {
        job: record.step_us for job, record in two.items()
    }
    assert {path.name for path in alone.iterdir()} == {path.name for path in together.iterdir()}


def test_a_key_contains_exactly_what_a_result_depends_on(model: BenchModel) -> None:
    def key(contender: str, effort: Effort = QUICK, change: MachineVariant | None = None) -> object:
        return key_of(Job(model, contender, change or MachineVariant(), effort), "0")

    longer = Effort(time_limit_s=9, deterministic=True)
    assert key("single") == key("single", longer)
    assert key(PESTO) != key(PESTO, longer)
    assert key("random") != key("random", Effort(seed=1))
    assert key("single") != key("single", change=MachineVariant(memory_gib=1))
    assert key("single") != key("expert")
    other = BenchModel(model.name, model.path, "0" * 64)
    assert key_of(Job(other, "single", MachineVariant(), QUICK), "0") != key("single")
    assert key_of(Job(model, "single", MachineVariant(), QUICK), "1") != key("single")


def test_a_profile_that_changes_during_a_run_is_refused(
    model: BenchModel, diamond: Problem
) -> None:
    write_profile(model.path, Profile(diamond, {"graph_hash": "1" * 64}))
    with pytest.raises(BadInputError, match="has changed since"):
        model.profile()


def test_a_profile_is_made_once(tmp_path: Path, diamond: Problem) -> None:
    names: list[str] = []

    def make(name: str) -> Profile:
        names.append(name)
        return Profile(diamond)

    hashes = {Models(tmp_path, make).model("some-model").content_hash for _ in range(2)}
    assert names == ["some-model"]
    assert len(hashes) == 1


def test_every_contender_solves_a_problem(model: BenchModel, tmp_path: Path) -> None:
    names = tuple(name for name, each in CONTENDERS.items() if not needs_parts(each.strategy))
    found = run_jobs(jobs_of(model, names), tmp_path)
    assert {record.fits for record in found.values()} == {True}
    assert {record.num_ops for record in found.values()} == {4}
    assert min(record.step_us for record in found.values()) == 14


def test_every_strategy_is_a_contender_and_every_placer_in_all_settings() -> None:
    assert {*BASELINES, PESTO} == set(PLACERS)
    assert set(BAECHI) == TUNED.keys() < set(BASELINES)
    assert len(tuned_names()) == len(BAECHI) * len(SETTINGS)
    # The settings include the three recipes, which are not counted twice.
    assert num_settings() == len(BASELINES) - 3 + 36


# Machines


def test_a_variant_changes_memory_and_speeds_of_the_machine() -> None:
    problem = on_gpus(OpGraph.build(["a", "b"], [Tensor(0, 1000, [1])]), [8, 8])
    changed = MachineVariant(memory_gib=2, compute_speed=4, interconnect_speed=0.5).applied(problem)
    assert changed.duration_us[0, 1:].tolist() == [2, 2]
    # 1 us + 1 us per 1000 bytes, at half the speed.
    assert changed.machine.transfer_us(1000, 1, 2) == 4
    assert [device.memory_bytes for device in changed.machine.devices] == [10**9, *[2 * GIB] * 2]
    assert MachineVariant().applied(problem).machine.devices == problem.machine.devices


def test_a_schedule_that_does_not_fit_is_shown_as_out_of_memory(tmp_path: Path) -> None:
    graph = OpGraph.build(
        ["a", "b"], [Tensor(0, 1000, [1])], resident_bytes=[GIB, GIB], colocation_group=[0, 0]
    )
    path = tmp_path / "wide.profile.json"
    write_profile(path, Profile(on_gpus(graph, [1, 1], two_gpus(memory_bytes=4 * GIB))))
    wide = Models(tmp_path, never).model(str(path))
    request = ExperimentRequest((wide,), (1.0, 4.0), Effort(time_limit_s=0.05))
    records = run_jobs(FIGURE7.jobs(request), tmp_path)
    job = next(job for job in matrix(request) if job.contender == "single")
    assert ms_or_oom(records[job]) == "OOM (0.00200)"
    report = FIGURE7.report(request, records)
    small, large = report.text.split("## GPUs of 4 GB")
    assert "OOM (0.00200)" in small
    assert "OOM" not in large
    assert report.data["1 GB"]["wide"]["over expert"] is None
    assert report.data["4 GB"]["wide"]["over expert"] == 0


# Reports


def record(step_us: float, *, bound_us: float = 40, short: int = 0, took_s: float = 0) -> Record:
    return Record(
        key={},
        num_ops=1,
        step_us=step_us,
        bound_us=bound_us,
        shortfall_bytes=short,
        took_s=took_s,
        orders_us={"rank": 80.0, "fifo": 100.0, "random": 120.0},
    )


def comparison(**steps: Record) -> ModelComparison:
    others = dict.fromkeys((*BASELINES, *tuned_names()), record(200))
    return ModelComparison(
        {**others, **{name.replace("_", "-"): each for name, each in steps.items()}}
    )


def test_reductions_and_the_closed_share_of_the_gap() -> None:
    found = comparison(pesto=record(60, bound_us=50), expert=record(80), m_etf=record(100))
    assert found.baseline is not None
    assert found.baseline.contender == "expert"
    assert found.bound_us == 50
    assert found.reduction(found.baseline) == 1 - 60 / 80
    assert found.reduction(found.baechi) == 1 - 60 / 100
    # 20 of the 30 us between the expert and the bound.
    assert found.share_closed(found.baseline) == pytest.approx(20 / 30)
    tuned = TUNED["m-sct"][3]
    better = ModelComparison({**found.records, tuned: record(64)})
    assert better.tuned_baseline is not None
    assert better.tuned_baseline.contender == tuned
    assert better.reduction(better.tuned_baseline) == 1 - 60 / 64
    assert better.baseline == found.baseline


def test_a_baseline_that_does_not_fit_is_not_compared() -> None:
    found = comparison(pesto=record(60), expert=record(50, short=1), metis=record(75))
    assert found.baseline is not None
    assert found.baseline.contender == "metis"
    assert found.reduction(found.best(["expert"])) is None
    short = comparison(pesto=record(60, short=1))
    assert short.reduction(short.baseline) is None
    assert short.share_closed(short.baseline) is None


def test_no_share_of_the_gap_is_given_if_the_baseline_meets_the_bound() -> None:
    found = comparison(pesto=record(40), expert=record(40))
    assert found.share_closed(found.baseline) is None


def test_the_effort_is_placement_time_plus_the_time_of_all_steps() -> None:
    # 100 us a step.
    assert effort_s(record(100, took_s=5), 350_000) == 5 + 35
    assert effort_s(record(100, took_s=5), 350_000, placement_is_known=True) == 35
    assert effort_s(record(100, short=1), 350_000) is None


def test_the_reduction_and_the_speed_up_by_an_order() -> None:
    assert reduction(record(0), "rank", "fifo") == pytest.approx(0.2)
    assert speed_up(record(0), "rank", "fifo") == 0.25


def test_busy_periods_that_nearly_touch_are_joined() -> None:
    spans = [(5.0, 6.0), (0.0, 1.0), (1.05, 2.0), (3.0, 3.0), (5.5, 5.8)]
    assert list(joined(spans, 0.1)) == [(0.0, 2.0), (5.0, 6.0)]
    assert list(joined([], 0.1)) == []


def test_published_figures_are_those_of_the_papers() -> None:
    assert paper_models() == PAPER_MODELS
    assert published("ops_by_duration")["rows"]["RNNLM-2-2048"] == [3401, 973, 240]
    assert published("placement_minutes")["rows"]["NMT-4-1024"]["placeto"] == 4120
    assert published("training_effort")["rows"]["NASNet-6-148"]["placeto"] == 1.0008
    assert published("reduction")["mean"] == {
        "expert": 0.155,
        "baechi": 0.234,
        "best baseline": 0.14,
    }
    assert published("heterog_order")["rows"]["ResNet200 (192)"] == [0.693, 0.761, 0.098]
    text = json.dumps([published(name) for name in ("congestion", "coarse_size", "fastt_order")])
    for figure in ("3.0", "171", "1440", "0.269"):
        assert figure in text


@pytest.mark.parametrize("name", PAPERS)
def test_all_runs_of_a_paper_have_different_descriptions(name: str) -> None:
    paper, jobs = PAPERS[name], list[Job]()
    for experiment in paper.experiments.values():
        models = tuple(BenchModel(model, Path(model), model) for model in experiment.models)
        jobs += experiment.jobs(ExperimentRequest(models, (80.0, 16.0), Effort()))
    ran = {*runs.shared_runs(jobs).values()}
    assert len({*map(str, ran)}) == len(ran)


def test_the_description_of_a_run_has_its_conditions(model: BenchModel) -> None:
    gpus = MachineVariant(preset="k80x4-pcie", num_gpus=2)
    job = Job(model, "grl", gpus, replace(QUICK, seed=1), max_parts=1)
    assert str(job) == "diamond grl (2 GPUs, whole ops, 0.05 units, seed 1)"
    assert str(Job(model, "heft", MachineVariant(), QUICK)) == "diamond heft"


# The command


def test_all_files_are_written_and_no_run_is_run_twice(
    pesto: Pesto, diamond_profile: Path, tmp_path: Path, count: list[str]
) -> None:
    output = tmp_path / "results"
    folder = output / "paper"
    argv = ("bench", "paper", "--models", diamond_profile, "-o", output, *FAST)
    outcome = pesto(*argv)
    assert outcome.code == 0, outcome.err
    num_runs = len(count)
    assert len(list((folder / "runs").iterdir())) == num_runs
    assert f"{num_runs}/{num_runs} runs: " in outcome.err
    for name in PAPERS["paper"].experiments:
        written = json.loads((folder / f"{name}.json").read_text())
        assert written["conditions"]["time_limit_s"] == 0.05
        text = (folder / f"{name}.md").read_text()
        assert text.index("The cost models differ") < text.index(
            "diamond" if name != "table3" else "##"
        )
    for chart in ("fig5", "fig7-80GB", "fig7-16GB", "fig8a", "fig8b"):
        assert (folder / f"{chart}.svg").read_text().startswith("<svg")
        assert (folder / f"{chart}.png").read_bytes().startswith(b"\x89PNG")
    results = json.loads((folder / "fig7.json").read_text())["results"]["80 GB"]["diamond"]
    assert results["contenders"][FROM_SINGLE]["step_us"] == 14
    assert results["contenders"][PESTO]["orders_us"].keys() == ORDERS.keys()
    again = pesto(*argv, "--only", "fig7,order")
    assert again.code == 0
    assert again.err == ""
    assert len(count) == num_runs


def test_a_comma_before_a_key_is_within_the_name_of_a_model(pesto: Pesto, tmp_path: Path) -> None:
    small, smaller = "RNNLM-tiny@batch=2,steps=2", "RNNLM-tiny@steps=1"
    output = tmp_path / "results"
    folder = output / "paper"
    argv = ("bench", "paper", "-o", output, "--only", "table1", "--quiet")
    outcome = pesto(*argv, "--models", f"{small},{smaller}")
    assert outcome.code == 0, outcome.err
    made = {path.name for path in (folder / "profiles").iterdir()}
    assert made == {f"{small}.profile.json", f"{smaller}.profile.json"}
    table = (folder / "table1.md").read_text()
    assert f"| {small} |" in table
    assert f"| {smaller} |" in table


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("--only", "fig7,fig9"), "--only: there is no experiment 'fig9'; some of table1"),
        (("--only", "fig7,fig7"), "names fig7 twice"),
        (("--memory", "16"), "--memory has the entry '16'; a size in GB was expected, above 0"),
        (("--memory", "0GB"), "--memory has the entry '0GB'"),
        (("--memory", "9999999999GB"), "above 0 and at most 1,048,576, such as 80GB"),
        (("--models", "no-such.profile.json"), "no-such.profile.json does not exist"),
        (("--models", "RNNLM-tiny,RNN-2-2"), "zoo model 'rnn-2-2': not in the zoo"),
        (("--models", "RNNLM-tiny@batch=8,setps=2"), "no argument 'setps'. Did you mean 'steps'?"),
        (("--time-limit", "nan"), "--time-limit is nan"),
    ],
)
def test_bad_input_is_refused(
    pesto: Pesto, tmp_path: Path, argv: tuple[str, ...], message: str
) -> None:
    outcome = pesto("bench", "paper", "-o", tmp_path / "results", "--quiet", *argv)
    assert outcome.code == 2
    assert message.lower() in outcome.err.lower()
    assert list((tmp_path / "results").rglob("*.json")) == []  # no valid model is profiled either


def test_an_output_that_is_no_folder_is_refused(pesto: Pesto, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    assert "is a file; a folder was expected" in pesto("bench", "paper", "-o", file).err
    assert "does not exist" in pesto("bench", "paper", "-o", tmp_path / "no" / "such").err
