"""`pesto bench spotlight` and `heterog-gnn`: policies that learn, with their curves."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import Pesto, on_gpus
from test_learned import towers

from pesto_cli.bench import PAPERS, rivals
from pesto_cli.bench.experiment import ExperimentRequest
from pesto_cli.bench.heterog.rows import EIGHT
from pesto_cli.bench.heterog_gnn import fine_tuning, unseen
from pesto_cli.bench.heterog_gnn import runs as heterog_gnn
from pesto_cli.bench.heterog_gnn.fine_tuning import Row, best_so_far
from pesto_cli.bench.heterog_gnn.runs import fine_tuned
from pesto_cli.bench.learning import thinned
from pesto_cli.bench.learning_curves import AXES
from pesto_cli.bench.machine_variant import MachineVariant
from pesto_cli.bench.models import BenchModel, Models
from pesto_cli.bench.published import published
from pesto_cli.bench.record import CurvePoint, Learning, Record
from pesto_cli.bench.runs import Effort, Job, key_of, run_job
from pesto_cli.bench.spotlight import runs
from pesto_cli.bench.spotlight.runs import Found
from pesto_cli.bench.spotlight.training import _theirs
from pesto_cli.data.presets import GIB, PRESETS
from pesto_cli.files import Profile, write_profile
from pesto_cli.zoo import check_name

QUICK = Effort(time_limit_s=0.02, deterministic=True)


@pytest.fixture
def models(tmp_path: Path) -> list[BenchModel]:
    """Three small graphs: two of a family, and one of another."""
    found = Models(tmp_path, lambda name: Profile(on_gpus(towers(2).graph, [1.0] * 4)))
    for name, number in (("LeNet-a", 2), ("LeNet-b", 3), ("VGG-a", 4)):
        write_profile(tmp_path / f"{name}.profile.json", Profile(towers(number)))
    return [found.model(name) for name in ("LeNet-a", "LeNet-b", "VGG-a")]


def point(seconds: float, number: int, best_us: float) -> CurvePoint:
    return CurvePoint(seconds=seconds, num_placements=number, mean_us=2 * best_us, best_us=best_us)


def record(
    step_us: float,
    *points: CurvePoint,
    first_us: float = 99.0,
    fits: bool = True,
    num_trained: int = 35,
) -> Record:
    learning = Learning(
        trained_s=7.0,
        num_trained=num_trained,
        first_us=first_us,
        first_fits=fits,
        first_s=0.5,
        curve=[*points],
    )
    return Record(key={}, num_ops=4, step_us=step_us, bound_us=1.0, learning=learning)


@pytest.mark.parametrize("name", ["spotlight", "heterog-gnn"])
def test_all_models_are_in_the_zoo(name: str) -> None:
    for experiment in PAPERS[name].experiments.values():
        assert experiment.models
        for model in experiment.models:
            check_name(model)


def test_a_k80_has_the_speed_and_the_memory_of_its_data_sheet() -> None:
    machine = PRESETS[runs.SERVER]
    k80 = machine.kinds["GPU"]
    lanes = 192 * k80.num_cores
    assert 2 * lanes == 4992
    assert 2 * lanes * 2 * k80.frequency_mhz / 1e6 == pytest.approx(8.73, abs=0.01)
    assert [device.memory_bytes / GIB for device in machine.devices[1:]] == [12] * 4
    assert machine.kinds["CPU"].num_cores == 8


def test_the_figures_of_spotlight_are_those_that_it_states_in_its_text() -> None:
    steps = published("spotlight_steps")["step_s"]
    gains = [1 - spotlight / grl for _, _, grl, spotlight in steps.values()]
    assert gains == pytest.approx([0.279, 0.236], abs=1e-3)
    assert _theirs(2)["single"] == 100
    assert _theirs(2)["grl"] == pytest.approx(115, abs=0.1)
    assert _theirs(4) == {"spotlight": 58, "ev-ps": 95}
    minutes = published("heterog_gnn")["minutes"]
    assert minutes["VGG-19"][1] / minutes["VGG-19"][0] == pytest.approx(0.257, abs=1e-3)


# Runs


def test_a_policy_records_how_it_learns_and_others_do_not(models: list[BenchModel]) -> None:
    job = Job(models[0], "spotlight", MachineVariant(), QUICK)
    learned = run_job(job, {})
    assert learned.learning is not None
    curve = learned.learning.curve
    assert [each.num_placements for each in curve] == sorted(
        {each.num_placements for each in curve}
    )
    assert curve[0].num_placements == 5
    assert learned.step_us <= min(curve[-1].best_us, learned.learning.first_us)
    assert 0 < learned.learning.first_s < curve[0].seconds <= learned.took_s
    assert learned.learning.num_trained == 0
    assert run_job(Job(models[0], "single", MachineVariant(), QUICK), {}).learning is None


def test_a_policy_learns_on_graphs_of_other_families_before(models: list[BenchModel]) -> None:
    request = ExperimentRequest(tuple(models), (), QUICK)
    jobs = [fine_tuned(model, request) for model in models]
    trained = [() if job is None else job.trained_on for job in jobs]
    assert trained == [(models[2],), (models[2],), (models[0], models[1])]
    assert fine_tuned(models[0], ExperimentRequest((models[0],), (), QUICK)) is None
    job = Job(models[2], "heterog", MachineVariant(), QUICK, trained_on=trained[2])
    found = run_job(job, {})
    assert found.learning is not None
    assert found.learning.num_trained >= 10
    assert found.learning.trained_s > 0
    assert found.learning.curve[0].num_placements == 5  # on this graph
    other = Job(models[2], "heterog", MachineVariant(), QUICK)
    assert key_of(job, "0") != key_of(other, "0")


def test_a_curve_keeps_better_placements_and_ever_fewer_others() -> None:
    curve = [point(n, 5 * n, 10.0 if n < 150 else 9.0) for n in range(1, 202)]
    kept = [each.num_placements for each in thinned(curve)]
    assert kept[:3] == [5, 10, 15]
    assert 750 in kept
    assert kept[-1] == 1005
    assert len(kept) < 80
    assert list(thinned([])) == []


# Reports


def test_the_median_of_seeds_and_what_does_not_fit() -> None:
    found = Found(
        {
            "spotlight": [record(30.0), record(10.0), record(20.0)],
            "single": [Record(key={}, num_ops=4, step_us=5.0, shortfall_bytes=1)],
            "grl": [record(40.0)] * 3,
        }
    )
    assert found.step_us("spotlight") == 20
    assert found.step_us("single") is None
    assert found.ratio("spotlight", "grl") == 0.5
    assert found.ratio("spotlight", "single") is None
    assert found.is_shorter("spotlight", "single")
    assert not found.is_shorter("single", "grl")


def test_fine_tuning_is_compared_by_the_time_to_the_best_step_from_scratch() -> None:
    scratch = record(10.0, point(1, 5, 30.0), point(8, 40, 10.0), point(9, 45, 10.0))
    others = record(9.9, point(1, 5, 9.9)), record(20.0, point(2, 10, 20.0))
    tuned = record(8.0, point(1, 5, 12.0), point(2, 10, 9.0))
    row = Row("a", "a", [others[0], scratch, others[1]], tuned)  # the median counts
    assert row.ratio == 2 / 8
    at_first = record(9.0, point(1, 5, 12.0), first_us=9.0, num_trained=0)
    found = Row("a", "a", [at_first], scratch)  # a plan that was not learned does not count
    assert (found.scratch_us, found.ratio) == (12.0, 8.0)
    assert Row("a", "a", [scratch], record(12.0, point(9, 45, 12.0))).ratio is None
    at_once = Row("a", "a", [scratch], record(9.0, point(1, 5, 9.0), first_us=9.5))
    assert at_once.caught_up is not None
    assert (at_once.caught_up.seconds, at_once.caught_up.num_placements) == (0.5, 0)
    assert Row("a", "a", [scratch], record(10.0, first_us=9.5, fits=False)).ratio is None
    assert best_so_far(Record(key={}, num_ops=4, refused="no choice")) == []
    first = Row("a", "a", [record(9.0, point(1, 5, 12.0), first_us=9.0)], scratch)
    assert first.converged is not None
    assert first.converged.num_placements == 0
    assert first.caught_up is None


def test_reports_of_unseen_graphs_show_zero_shot_plans(models: list[BenchModel]) -> None:
    request = ExperimentRequest(tuple(models), (), QUICK)
    of = record(2e3, point(1, 5, 2e3), first_us=4e3, fits=False)
    report = unseen.UNSEEN.report(request, dict.fromkeys(unseen.UNSEEN.jobs(request), of))
    assert "| LeNet-a | 4 | 35 | OOM (4.00) | 0.50 | 2.00 | 2.00 |" in report.text
    assert "*refused*" in report.text
    refused = Record(key={}, num_ops=4, refused="no input can be split")
    jobs = dict.fromkeys(unseen.UNSEEN.jobs(request), refused)
    report = unseen.UNSEEN.report(request, jobs)
    assert report.data[0]["refused"]["ev-ps"] == "no input can be split"
    table = fine_tuning.TABLE6
    report = table.report(request, dict.fromkeys(table.jobs(request), of))
    assert "| LeNet-a | 7 | 2.00 | 1.0 | 5 | 2.00 | 1.0 | 5 | 100.0% |" in report.text
    assert report.charts.keys() == {""}


# The commands


def test_tables_and_charts_of_spotlight_have_all_rivals(
    pesto: Pesto, tmp_path: Path, models: list[BenchModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rivals, "NUM_SEEDS", 1)
    cifar = tmp_path / "CIFAR-a.profile.json"
    models[0].path.rename(cifar)
    output = tmp_path / "results"
    folder = output / "spotlight"
    argv = ("bench", "spotlight", "-o", output, "--models", cifar, "--quiet", "--deterministic")
    monkeypatch.setattr(runs, "machine", lambda num_gpus: MachineVariant(num_gpus=num_gpus // 2))
    outcome = pesto(*argv, "--time-limit", "0.01", "--only", "table1,fig4,fig6")
    assert outcome.code == 0, outcome.err
    steps = json.loads((folder / "table1.json").read_text())["results"]["CIFAR-a"]
    assert steps["steps_us"]["pesto"][0] == min(min(each) for each in steps["steps_us"].values())
    assert "| pesto is shorter than spotlight |" in (folder / "table1.md").read_text()
    panels = json.loads((folder / "fig4.json").read_text())["results"]
    assert [panel["gpus"] for panel in panels] == [4, 2]
    curve = panels[0]["curves"]["grl"][0]
    assert curve[0]["num_placements"] == 5
    rivals_us = min(panels[0]["steps_us"][name] for name in ("expert", "metis"))
    first = next((each for each in curve if each["best_us"] < rivals_us), None)
    line = next(line for line in (folder / "fig4.md").read_text().splitlines() if "| grl |" in line)
    assert line.split("|")[12].strip() == (f"{first['num_placements']:,}" if first else "-")
    for chart in AXES:
        assert (folder / f"fig4-{chart}.svg").read_text().startswith("<svg")
    assert "| CIFAR-a | 2 | single |" in (folder / "fig6.md").read_text()


def test_the_policy_of_heterog_is_evaluated_on_small_graphs(
    pesto: Pesto, tmp_path: Path, models: list[BenchModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "results"
    folder = output / "heterog-gnn"
    names = ",".join(str(model.path) for model in models[1:])
    monkeypatch.setattr(heterog_gnn, "EIGHT", replace(EIGHT, machine=MachineVariant()))
    argv = ("bench", "heterog-gnn", "-o", output, "--models", names)
    outcome = pesto(*argv, "--quiet", "--deterministic", "--time-limit", "0.01")
    assert outcome.code == 0, outcome.err
    assert {path.stem for path in folder.glob("*.md")} == {"table1", "table6", "unseen"}
    rows = json.loads((folder / "unseen.json").read_text())["results"]
    assert [row["model"] for row in rows] == ["LeNet-b", "VGG-a"]
    assert all(row["zero-shot"]["num_trained"] >= 5 for row in rows)
    table = json.loads((folder / "table1.json").read_text())["results"]
    assert all(row["steps_us"]["heterog"] for row in table)
    tuning = json.loads((folder / "table6.json").read_text())["results"]
    counts = [{name: len(some) for name, some in row["curves"].items()} for row in tuning]
    assert counts == [{"from scratch": 3, "fine-tuned": 1}] * 2
