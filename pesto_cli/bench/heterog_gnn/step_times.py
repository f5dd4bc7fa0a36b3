"""HeteroG's Table 1 with its learned policy: step times on 8 GPUs of three kinds."""

from typing import Any

from pesto_cli.bench.contenders import PESTO
from pesto_cli.bench.experiment import (
    Experiment,
    ExperimentRequest,
    Report,
    figure,
    ms,
    ms_or_oom,
    percent,
)
from pesto_cli.bench.heterog.rows import EIGHT
from pesto_cli.bench.heterog.step_times import FOUR_BASELINES
from pesto_cli.bench.heterog_gnn.runs import (
    MODELS,
    POLICY,
    REFUSED,
    from_scratch,
    row_of,
    run_of,
    title,
)
from pesto_cli.bench.models import BenchModel
from pesto_cli.bench.published import published
from pesto_cli.bench.rivals import NUM_SEEDS, Runs, median, runs_of
from pesto_cli.bench.runs import Job, Records
from pesto_cli.report.markdown import markdown_table

NAMES = (*FOUR_BASELINES, POLICY, PESTO)


def _of(model: BenchModel, request: ExperimentRequest) -> list[Job]:
    others = (run_of(model, name, request.effort) for name in (*FOUR_BASELINES, PESTO))
    return [*others, *from_scratch(model, request.effort)]


def _jobs(request: ExperimentRequest) -> list[Job]:
    return [job for model in request.models for job in _of(model, request)]


def _runs(model: BenchModel, request: ExperimentRequest, records: Records) -> Runs:
    """Return the records of a model; that of the policy is the median of its seeds."""
    learned = median(records[job] for job in from_scratch(model, request.effort))
    return Runs({**runs_of(_of(model, request), records).records, POLICY: learned})


def _report(request: ExperimentRequest, records: Records) -> Report:
    found = {model: _runs(model, request, records) for model in request.models}
    columns = ["model (batch)", *FOUR_BASELINES, POLICY, PESTO, "bound"]
    columns += ["heterog less than the best of the four", "pesto less than it"]
    columns += ["paper: HeteroG, ms", "best of the four", "less"]
    won = [gain > 0 for runs in found.values() if (gain := _gain(runs, POLICY)) is not None]
    text = (
        "Step times in ms. `heterog` learns from scratch on each graph for the time limit (the "
        f"median of {NUM_SEEDS} seeds), and `pesto` searches for the same time. *less than the "
        "best of the four*: by how much the step is shorter than that of the best baseline that "
        f"fits into memory. {REFUSED}\n\n"
        f"{markdown_table(columns, [_line(*each) for each in found.items()])}\n\n`heterog` is "
        f"below its four baselines on {sum(won)} of {len(won)} models; in the paper on all.\n\n"
        f"The paper's figures: {published(EIGHT.key)['source']}."
    )
    return Report([_data(*each) for each in found.items()], text)


def _gain(runs: Runs, name: str) -> float | None:
    ours_us, theirs_us = runs.step_us([name]), runs.step_us(FOUR_BASELINES)
    return None if ours_us is None or theirs_us is None else 1 - ours_us / theirs_us


def _line(model: BenchModel, runs: Runs) -> list[str]:
    row = row_of(model)
    best_s = row.best_baseline_s if row else None
    return [
        title(model),
        *(ms_or_oom(runs.records[name]) for name in NAMES),
        ms(runs.bound_us),
        *(percent(_gain(runs, name), "-") for name in (POLICY, PESTO)),
        f"{row.heterog_s * 1e3:.0f}" if row else "",
        figure(None if best_s is None else best_s * 1e3, ".0f"),
        percent(None if row is None or best_s is None else 1 - row.heterog_s / best_s),
    ]


def _data(model: BenchModel, runs: Runs) -> dict[str, Any]:
    return {
        "model": title(model),
        "steps_us": {name: runs.step_us([name]) for name in NAMES},
        "refused": {name: each.refused for name, each in runs.records.items() if each.refused},
        "bound_us": runs.bound_us,
        "less than the best of the four": {name: _gain(runs, name) for name in (POLICY, PESTO)},
    }


TABLE1 = Experiment("Table 1 with the learned policy: 8 GPUs", MODELS, _jobs, _report)
