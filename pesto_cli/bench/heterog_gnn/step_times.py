"""HeteroG's Table 1 with its learned policy: step times on 8 GPUs of three kinds."""

from collections.abc import Sequence
from dataclasses import dataclass
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
from pesto_cli.bench.record import Record
from pesto_cli.bench.rivals import NUM_SEEDS, Runs, by_step, median, runs_of
from pesto_cli.bench.runs import Job, Records
from pesto_cli.report.markdown import markdown_table

NAMES = (*FOUR_BASELINES, POLICY, PESTO)


def _of(model: BenchModel, request: ExperimentRequest) -> list[Job]:
    others = (run_of(model, name, request.effort) for name in (*FOUR_BASELINES, PESTO))
    return [*others, *from_scratch(model, request.effort)]


def _jobs(request: ExperimentRequest) -> list[Job]:
    return [job for model in request.models for job in _of(model, request)]


@dataclass(frozen=True)
class Found:
    """The records of a model.

    runs: that of the policy is the median of its seeds. seeds: all of these, see `by_step`.
    """

    runs: Runs
    seeds: Sequence[Record]

    def gain(self, name: str) -> float | None:
        """Return by how much a step is shorter than that of the best baseline."""
        return _gain(self.runs.step_us([name]), self.runs)

    @property
    def least_gain(self) -> float | None:
        """The gain of the policy with the seed whose step is longest."""
        longest = self.seeds[-1]
        return _gain(longest.step_us if longest.fits else None, self.runs)


def _gain(step_us: float | None, runs: Runs) -> float | None:
    theirs_us = runs.step_us(FOUR_BASELINES)
    return None if step_us is None or theirs_us is None else 1 - step_us / theirs_us


def _found(model: BenchModel, request: ExperimentRequest, records: Records) -> Found:
    seeds = by_step(records[job] for job in from_scratch(model, request.effort))
    runs = runs_of(_of(model, request), records).records
    return Found(Runs({**runs, POLICY: median(seeds)}), seeds)


def _report(request: ExperimentRequest, records: Records) -> Report:
    found = {model: _found(model, request, records) for model in request.models}
    columns = ["model (batch)", *FOUR_BASELINES, POLICY, "its seeds", PESTO, "bound"]
    columns += ["heterog less than the best of the four", "pesto less than it"]
    columns += ["paper: HeteroG, ms", "best of the four", "less"]
    won = sum((each.gain(POLICY) or 0) > 0 for each in found.values())
    always = sum((each.least_gain or 0) > 0 for each in found.values())
    text = (
        "Step times in ms. `heterog` learns from scratch on each graph for the time limit (the "
        f"median of {NUM_SEEDS} seeds; *its seeds*: the shortest and the longest step), and "
        "`pesto` searches for the same time. *less than the best of the four*: by how much the "
        f"step is shorter than that of the best baseline that fits into memory. {REFUSED}\n\n"
        f"{markdown_table(columns, [_line(*each) for each in found.items()])}\n\n`heterog` is "
        f"below its four baselines on {won} of {len(found)} models, and with each "
        f"seed on {always}; in the paper on all.\n\n"
        f"The paper's figures: {published(EIGHT.key)['source']}."
    )
    return Report([_data(*each) for each in found.items()], text)


def _line(model: BenchModel, found: Found) -> list[str]:
    row, runs, seeds = row_of(model), found.runs, found.seeds
    best_s = row.best_baseline_s if row else None
    return [
        title(model),
        *(ms_or_oom(runs.records[name]) for name in (*FOUR_BASELINES, POLICY)),
        f"{ms_or_oom(seeds[0])} to {ms_or_oom(seeds[-1])}",
        ms_or_oom(runs.records[PESTO]),
        ms(runs.bound_us),
        *(percent(found.gain(name), "-") for name in (POLICY, PESTO)),
        f"{row.heterog_s * 1e3:.0f}" if row else "",
        figure(None if best_s is None else best_s * 1e3, ".0f"),
        percent(None if row is None or best_s is None else 1 - row.heterog_s / best_s),
    ]


def _data(model: BenchModel, found: Found) -> dict[str, Any]:
    runs = found.runs
    return {
        "model": title(model),
        "steps_us": {name: runs.step_us([name]) for name in NAMES},
        "refused": {name: each.refused for name, each in runs.records.items() if each.refused},
        "seeds_us": [each.step_us if each.fits else None for each in found.seeds],
        "bound_us": runs.bound_us,
        "less than the best of the four": {name: found.gain(name) for name in (POLICY, PESTO)},
    }


TABLE1 = Experiment("Table 1 with the learned policy: 8 GPUs", MODELS, _jobs, _report)
