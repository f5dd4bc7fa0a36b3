"""Unseen graphs: a policy that has learned on graphs of other families, and pesto."""

from dataclasses import dataclass
from typing import Any

from pesto_cli.bench.contenders import PESTO
from pesto_cli.bench.experiment import Experiment, ExperimentRequest, Report, ms, ms_or_oom
from pesto_cli.bench.heterog.step_times import FOUR_BASELINES
from pesto_cli.bench.heterog_gnn.runs import (
    MODELS,
    POLICY,
    REFUSED,
    fine_tuned,
    run_of,
    searched,
    title,
)
from pesto_cli.bench.models import BenchModel
from pesto_cli.bench.record import Record
from pesto_cli.bench.rivals import Runs, runs_of
from pesto_cli.bench.runs import Job, Records
from pesto_cli.report.markdown import markdown_table

SHORT_S = 2.0


@dataclass(frozen=True)
class Jobs:
    """The runs of one graph."""

    tuned: Job
    pesto: Job
    short: Job
    baselines: tuple[Job, ...]


def _of(model: BenchModel, request: ExperimentRequest) -> Jobs | None:
    tuned, effort = fine_tuned(model, request), request.effort
    if tuned is None:
        return None
    return Jobs(
        tuned,
        searched(model, effort, effort.time_limit_s),
        searched(model, effort, SHORT_S),
        tuple(run_of(model, name, effort) for name in FOUR_BASELINES),
    )


def _all(request: ExperimentRequest) -> dict[BenchModel, Jobs]:
    return {model: of for model in request.models if (of := _of(model, request)) is not None}


def _jobs(request: ExperimentRequest) -> list[Job]:
    return [
        job
        for of in _all(request).values()
        for job in (of.tuned, of.pesto, of.short, *of.baselines)
    ]


def _report(request: ExperimentRequest, records: Records) -> Report:
    lines, data = [], []
    for model, of in _all(request).items():
        tuned, pesto, short = (records[job] for job in (of.tuned, of.pesto, of.short))
        baselines = runs_of(of.baselines, records)
        bound_us = max(record.bound_us for record in (tuned, pesto, short))
        lines.append(
            [
                title(model),
                *_zero_shot(tuned),
                ms_or_oom(tuned),
                ms_or_oom(pesto),
                ms_or_oom(short),
                baselines.best_shown(FOUR_BASELINES),
                ms(bound_us),
            ]
        )
        data.append(_data(model, tuned, pesto, short, baselines))
    limit_s = request.effort.time_limit_s
    columns = ["model (batch)", "ops", "trained on placements", "zero-shot", "after s"]
    columns += [f"fine-tuned for {limit_s:g} s", f"pesto, {limit_s:g} s"]
    columns += [f"pesto, {min(SHORT_S, limit_s):g} s", "best of the four", "bound"]
    text = (
        "Step times in ms on 8 GPUs. The policy has learned on the graphs of all other families, "
        "for the time limit each. *zero-shot*: its most probable plan for this graph, and the "
        "seconds from the problem to the plan, with TensorFlow loaded. *fine-tuned*: the best plan "
        "after the policy has learned on this graph too. The time of its training before is not "
        f"counted, so the comparison favours the policy. *best of the four*: that of HeteroG's "
        f"baselines, {', '.join(FOUR_BASELINES)}. {REFUSED}\n\n{markdown_table(columns, lines)}"
    )
    return Report(data, text)


def _zero_shot(record: Record) -> list[str]:
    """Return the cells of ops, placements of the training, step and seconds."""
    learning = record.learning
    if learning is None:
        return [f"{record.num_ops:,}", "-", "refused", "-"]
    step = ms(learning.first_us)
    return [
        f"{record.num_ops:,}",
        f"{learning.num_trained:,}",
        step if learning.first_fits else f"OOM ({step})",
        f"{learning.first_s:.2f}",
    ]


def _data(
    model: BenchModel, tuned: Record, pesto: Record, short: Record, baselines: Runs
) -> dict[str, Any]:
    learning = tuned.learning
    return {
        "model": title(model),
        "zero-shot": None if learning is None else learning.model_dump(exclude={"curve"}),
        "steps_us": {
            "fine-tuned": tuned.step_us if tuned.fits else None,
            "pesto": pesto.step_us if pesto.fits else None,
            "pesto, short": short.step_us if short.fits else None,
            "best of the four": baselines.step_us(FOUR_BASELINES),
        },
        "refused": {
            name: record.refused
            for name, record in {POLICY: tuned, PESTO: pesto, **baselines.records}.items()
            if record.refused
        },
    }


UNSEEN = Experiment("Unseen graphs: zero-shot, fine-tuned, and pesto", MODELS, _jobs, _report)
