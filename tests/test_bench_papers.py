"""`pesto bench fastt` and `heterog`: rows, machines and figures of the papers."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import Pesto
from test_intra_op import wide
from test_tensor_parallel import priced, priced_model
from test_zoo import exported as zoo_graph
from training_graphs import exported

from pesto_cli import api
from pesto_cli.bench import PAPERS
from pesto_cli.bench.decisions import decisions_of
from pesto_cli.bench.experiment import ExperimentRequest
from pesto_cli.bench.fastt.rows import ROWS, STRONG
from pesto_cli.bench.fastt.scaling import RIVALS, Cell, Model, paper_speed_up
from pesto_cli.bench.fastt.splits import BYTES_OF_PARAMETER, cluster_of, ops_of
from pesto_cli.bench.heterog.end_to_end import num_steps
from pesto_cli.bench.heterog.rows import EIGHT, TWELVE
from pesto_cli.bench.heterog.step_times import TABLE1, jobs
from pesto_cli.bench.machine_variant import MachineVariant, with_gpus
from pesto_cli.bench.models import Models
from pesto_cli.bench.published import published
from pesto_cli.bench.record import Record
from pesto_cli.bench.rivals import Runs, jobs_of
from pesto_cli.bench.runs import Effort, run_job
from pesto_cli.data.presets import PRESETS
from pesto_cli.strategies import STRATEGIES, Context
from pesto_cli.zoo import check_name


@pytest.mark.parametrize("name", ["fastt", "heterog"])
def test_all_models_are_in_the_zoo(name: str) -> None:
    paper = PAPERS[name]
    for experiment in paper.experiments.values():
        assert experiment.models
        for model in experiment.models:
            check_name(model)


def test_models_are_chosen_by_their_names_without_arguments() -> None:
    paper = PAPERS["heterog"]
    assert paper.models("table1", ["ResNet-200"]) == (
        "ResNet-200@batch=192",
        "ResNet-200@batch=384",
    )
    assert paper.models("table1", ["BERT-large@batch=24,layers=48,length=64"])
    assert paper.models("table1", ["LeNet"]) == ()


@pytest.mark.parametrize("key", ["fastt_strong", "fastt_weak"])
def test_the_papers_speeds_give_its_speed_ups(key: str) -> None:
    """The best speed of FastT over the best one of all baselines, rounded or truncated."""
    table = published(key)
    assert table["speed_up"].keys() == table["samples_per_s"].keys()
    for name, speed_up in table["speed_up"].items():
        speeds = dict(zip(table["columns"], table["samples_per_s"][name], strict=True))
        assert paper_speed_up(speeds) == pytest.approx(speed_up, abs=1e-3), name


def test_a_speed_up_is_that_of_the_best_numbers_of_gpus() -> None:
    row = next(row for row in ROWS if row.title == "LeNet")

    def cell(cluster: int, one_us: float, dp_us: float, pesto_us: float) -> Cell:
        steps_us = dict.fromkeys(RIVALS, 2 * dp_us) | {"ev-ps": dp_us, "pesto": pesto_us}
        runs = {
            name: Record(key={}, num_ops=1, step_us=step_us, bound_us=50.0)
            for name, step_us in steps_us.items()
        }
        single = Runs({"single": Record(key={}, num_ops=1, step_us=one_us)})
        return Cell(row, STRONG[cluster], 1, single, Runs(runs), {})

    model = Model(row, [cell(0, 120.0, 200.0, 60.0), cell(1, 120.0, 100.0, 80.0)])
    assert model.baseline == (row.batch / 100e-6, "4")
    assert model.best("pesto") == (row.batch / 60e-6, "2")
    assert model.speed_up("pesto") == pytest.approx(100 / 60 - 1)
    assert model.speed_up("bound") == pytest.approx(100 / 50 - 1)
    slow = Model(row, [cell(0, 50.0, 200.0, 60.0)])
    assert slow.baseline == (row.batch / 50e-6, "1")


def test_rows_of_table_6_have_the_gpus_of_their_step_times() -> None:
    assert {row.title: cluster_of(row).name for row in ROWS} == {
        "Inception-v3": "4+4",
        **dict.fromkeys(["VGG-19", "ResNet-200", "LeNet", "AlexNet"], "2"),
        "GNMT-4": "4",
        "RNNLM": "2",
        "Transformer": "4",
        "BERT-large": "4",
    }


def test_table_4_has_the_batches_of_the_paper() -> None:
    assert "BERT-large@batch=32,length=64" in PAPERS["fastt"].experiments["table4"].models
    assert "BERT-large@batch=16,length=64" in PAPERS["fastt"].experiments["table6"].models


def test_ops_of_table_5_read_as_many_parameters_as_in_the_paper() -> None:
    """In thousands; here a bias is read by an op of its own."""
    profile = api.profile(api.export("zoo:VGG-19@batch=2"), "v100x2-nvlink", parts=(2,))
    longest = {
        op.name: op for op in decisions_of(STRATEGIES["ev-ps"](profile.problem, Context())).longest
    }
    found = {title: ops_of(title, longest) for title in published("fastt_splits")["ops"]}
    for title, (_, thousands, _) in published("fastt_splits")["ops"].items():
        assert {op.num_parts for op in found[title]} == {2}
        weights = max(op.weight_bytes for op in found[title]) / BYTES_OF_PARAMETER / 1e3
        assert weights == pytest.approx(thousands, rel=0.04), title
    backward = {op.type for op in found["Conv1_2bp"]}
    assert backward == {"Conv2DBackpropInput", "Conv2DBackpropFilter"}


def test_figures_of_heterog_are_those_of_the_paper() -> None:
    rows = {row.title: row for row in EIGHT.rows}
    assert rows["VGG-19 (192)"].best_baseline_s == 0.591
    assert rows["ResNet-200 (384)"].best_baseline_s is None
    assert {row.title.partition(" ")[0] for row in TWELVE.rows} == {
        title.partition(" ")[0] for title in rows
    }


def test_the_number_of_steps_is_the_papers_time_by_its_step_time() -> None:
    row = next(row for row in EIGHT.rows if row.title == "VGG-19 (192)")
    assert num_steps(row, 513.1) == pytest.approx(66_636, rel=1e-3)


def test_a_machine_of_some_gpus_has_the_first_ones_and_their_hosts() -> None:
    machine = with_gpus(PRESETS["2x4-v100"], 3)
    assert [device.name for device in machine.devices] == [
        "worker:0/CPU:0",
        "worker:0/GPU:0",
        "worker:0/GPU:1",
        "worker:0/GPU:2",
    ]
    assert len(machine.links) == 4 * 3
    halves = MachineVariant(preset="2x8-v100", gpus_of_host=4)
    of_each = halves.applied(priced_model("chain").problem).machine
    assert [device.name for device in of_each.devices] == [
        f"worker:{server}/{device}"
        for server in range(2)
        for device in ("CPU:0", *(f"GPU:{gpu}" for gpu in range(4)))
    ]
    problem = priced_model("chain").problem
    placed = MachineVariant(preset="v100x8-nvlink", num_gpus=4).applied(problem)
    assert placed.num_devices == 5
    assert placed.permitted.all()


def test_the_best_of_several_rivals_fits_into_memory() -> None:
    fits = Record(key={}, num_ops=1, step_us=20.0, bound_us=5.0)
    too_large = Record(key={}, num_ops=1, step_us=10.0, shortfall_bytes=1)
    refused = Record(key={}, num_ops=1, refused="no inputs")
    runs = Runs({"a": fits, "b": too_large, "c": refused})
    assert runs.best(["a", "b", "c"]) == "a"
    assert runs.best_shown(["b", "c"]) == "OOM"
    assert runs.best_shown(["c"]) == "refused"
    assert runs.bound_us == 5.0


def test_decisions_count_whole_even_and_uneven_ops() -> None:
    problem = priced_model("chain", "v100x4-nvlink").problem
    even = decisions_of(STRATEGIES["ev-ps"](problem, Context()))
    assert even.even > 0
    assert even.uneven == 0
    assert even.variables.keys() == {"whole"}
    assert even.longest[0].num_parts == 4
    mirrored = decisions_of(STRATEGIES["ev-ar"](problem, Context()))
    assert "mirrored" in mirrored.variables
    single = decisions_of(STRATEGIES["single"](problem, Context()))
    assert single.even == single.uneven == 0
    assert set(single.whole) <= {"CPU:0", "GPU:0"}
    assert {op.num_parts for op in single.longest} == {1}


def test_proportional_parts_are_uneven() -> None:
    """Large products take 1.4 times as long on a GTX 1080 Ti as on a V100."""
    problem = priced(exported(wide(65_536, 1024)), "heterog-4").problem
    assert decisions_of(STRATEGIES["ev-ps"](problem, Context())).uneven == 0
    assert decisions_of(STRATEGIES["cp-ps"](problem, Context())).uneven > 0


def test_replicas_normalise_their_own_rows(tmp_path: Path) -> None:
    """As those of the papers: nothing is sent for batch normalisation, so steps are shorter."""
    graph = zoo_graph("MobileNet-v2-tiny")
    profile = api.profile(graph, "v100x4-nvlink", parts=(2, 4))
    model = Models(tmp_path, lambda name: profile).model("MobileNet-v2-tiny")
    (job,) = jobs_of(model, MachineVariant(), ["ev-ps"], Effort())
    local, exact = (run_job(each, {}) for each in (job, replace(job, local_batch_norm=False)))
    assert local.step_us < 0.9 * exact.step_us


def test_tables_of_fastt_have_ours_and_the_papers_figures(pesto: Pesto, tmp_path: Path) -> None:
    output = tmp_path / "results"
    folder = output / "fastt"
    argv = ("bench", "fastt", "-o", output, "--models", "LeNet", "--quiet", "--deterministic")
    outcome = pesto(*argv, "--time-limit", "0.05", "--only", "table1,table6,table3")
    assert outcome.code == 0, outcome.err
    assert not (folder / "table3.md").exists()  # only BERT-large is in Table 3
    results = json.loads((folder / "table1.json").read_text())["results"]
    rows, (speed_up,) = results["speeds"], results["speed-ups"]
    assert speed_up["FastT"] <= speed_up["pesto"] <= speed_up["bound"]
    assert [row["GPUs"] for row in rows] == ["2", "4", "8", "4+4"]
    for row in rows:
        speeds = [row["DP"], row["FastT"], row["best rival"], row["pesto"]]
        assert max(speeds) == row["pesto"] <= row["bound"]
    assert "| LeNet (256) | 2 |" in (folder / "table1.md").read_text()
    assert "14,222" in (folder / "table1.md").read_text()
    assert (folder / "table1.svg").read_text().startswith("<svg")


def test_models_that_a_paper_does_not_have_are_refused(pesto: Pesto, tmp_path: Path) -> None:
    outcome = pesto("bench", "heterog", "-o", tmp_path / "results", "--models", "LeNet")
    assert outcome.code == 2
    assert "have no model 'LeNet'; some of VGG-19" in outcome.err


def test_the_all_reduce_of_heterog_is_the_better_of_plain_sums_and_rings(tmp_path: Path) -> None:
    (row,) = (row for row in EIGHT.rows if row.title == "VGG-19 (192)")
    profile = api.profile(zoo_graph("MobileNet-v2-tiny"), "heterog-8", parts=(2,))
    model = Models(tmp_path, lambda name: profile).model(row.model)
    request = ExperimentRequest((model,), (16.0,), Effort())
    steps_us = {"ev-ps": 5e5, "ev-ar": 4e5, "horovod": 2e5, "cp-ps": 6e5, "pesto": 1e5}
    records = {
        job: Record(key={}, num_ops=1, step_us=steps_us.get(job.contender, 9e5))
        for job in jobs(EIGHT, request)
    }
    report = TABLE1.report(request, records)
    assert "| VGG-19 (192) | 500.0 | 200.0 (horovod) | 600.0 | 900.0 |" in report.text
    assert report.data[0]["less than the best of the four"] == pytest.approx(0.5)
