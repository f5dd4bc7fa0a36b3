"""HeteroG's Tables 1 and 4: step times on 8 and 12 GPUs of three kinds."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from pesto_cli.bench.contenders import BASELINES, PESTO, SPLITTING
from pesto_cli.bench.experiment import (
    Experiment,
    ExperimentRequest,
    Report,
    figure,
    ms,
    ms_or_oom,
    percent,
)
from pesto_cli.bench.heterog.rows import EIGHT, TWELVE, Row, Table
from pesto_cli.bench.published import published
from pesto_cli.bench.rivals import Runs, jobs_of, runs_of
from pesto_cli.bench.runs import Job, Records
from pesto_cli.report.markdown import markdown_table

if TYPE_CHECKING:
    import altair as alt

# The strategies that stand for each baseline of HeteroG; the best of them counts. HeteroG's
# all-reduce is a ring or hierarchical. `horovod` uses rings. It divides the batch into equal parts
# only, so it stands for EV-AR, and not for CP-AR.
CONTENDERS_OF: Mapping[str, Sequence[str]] = {
    "EV-PS": ("ev-ps",),
    "EV-AR": ("ev-ar", "horovod"),
    "CP-PS": ("cp-ps",),
    "CP-AR": ("cp-ar",),
}
FOUR_BASELINES = tuple(name for names in CONTENDERS_OF.values() for name in names)
# Placers of whole ops that are fast on large graphs.
PLACERS = tuple(
    name for name in ("single", "expert", "heft", "fastt", "metis") if name in BASELINES
)
OTHERS = (*PLACERS, *(name for name in SPLITTING if name not in FOUR_BASELINES))
NAMES = (*FOUR_BASELINES, *OTHERS, PESTO)
PANEL_WIDTH, BAR_STEP, PANELS_IN_A_ROW = 230, 16, 3


def jobs(table: Table, request: ExperimentRequest) -> list[Job]:
    """Return the runs of a table."""
    return [
        job
        for _, model in table.asked(request)
        for job in jobs_of(model, table.machine, NAMES, request.effort)
    ]


def runs_by_row(table: Table, request: ExperimentRequest, records: Records) -> Mapping[Row, Runs]:
    """Return the records of each row."""
    return {
        row: runs_of(jobs_of(model, table.machine, NAMES, request.effort), records)
        for row, model in table.asked(request)
    }


def _report(table: Table, request: ExperimentRequest, records: Records) -> Report:
    found = runs_by_row(table, request, records)
    lines = [_line(row, runs) for row, runs in found.items()]
    gains = {row: _gain(runs) for row, runs in found.items()}
    known = [gain for gain in gains.values() if gain is not None]
    lines.append(["*mean*", *[""] * 7, percent(sum(known) / len(known) if known else None, "-")])
    lines[-1] += [""] * (len(lines[0]) - len(lines[-1])) if len(lines) > 1 else []
    notes = (
        "Step times in ms. OOM: the schedule exceeds the memory of a GPU; its time is in brackets. "
        "*EV-AR*: the better of `ev-ar` and `horovod`, which fuses gradients and has one ring of "
        "all GPUs at a time. *best other*: the best of all strategies other than pesto and the "
        "baselines, chosen by the time that is compared. *less than the best of the four*: by how "
        "much pesto's step is shorter; a dash if all four are out of memory."
    )
    columns = ["model (batch)", *CONTENDERS_OF, "best other", PESTO, "bound"]
    columns += ["less than the best of the four", "paper: HeteroG, ms", "best of the four", "less"]
    source = published(table.key)["source"]
    text = f"{notes}\n\n{markdown_table(columns, lines)}\n\nThe paper's figures: {source}."
    return Report([_data(row, runs) for row, runs in found.items()], text, {"": chart(found)})


def _gain(runs: Runs) -> float | None:
    ours_us, theirs_us = runs.step_us([PESTO]), runs.step_us(FOUR_BASELINES)
    return None if ours_us is None or theirs_us is None else 1 - ours_us / theirs_us


def _line(row: Row, runs: Runs) -> list[str]:
    best_s = row.best_baseline_s
    return [
        row.title,
        *(_baseline(runs, names) for names in CONTENDERS_OF.values()),
        runs.best_shown(OTHERS),
        ms_or_oom(runs.records[PESTO]),
        ms(runs.bound_us),
        percent(_gain(runs), "-"),
        f"{row.heterog_s * 1e3:.0f}",
        figure(None if best_s is None else best_s * 1e3, ".0f", "OOM"),
        percent(None if best_s is None else 1 - row.heterog_s / best_s, "-"),
    ]


def _baseline(runs: Runs, names: Sequence[str]) -> str:
    first, *others = names
    return runs.best_shown(names) if others else ms_or_oom(runs.records[first])


def _data(row: Row, runs: Runs) -> dict[str, Any]:
    return {
        "model": row.title,
        "steps_us": {name: runs.step_us([name]) for name in runs.records},
        "refused": {name: each.refused for name, each in runs.records.items() if each.refused},
        "took_s": {name: each.took_s for name, each in runs.records.items()},
        "bound_us": runs.bound_us,
        "less than the best of the four": _gain(runs),
        "paper": {"heterog_s": row.heterog_s, "best of the four": row.best_baseline_s},
    }


def chart(found: Mapping[Row, Runs]) -> "alt.FacetChart":
    """Draw step times as bars, with a panel for each row."""
    import altair as alt

    values = [
        {"model": row.title, "strategy": name, "ms": step_us / 1e3, "is pesto": name == PESTO}
        for row, runs in found.items()
        for name in (*FOUR_BASELINES, PESTO)
        for step_us in [runs.step_us([name])]
        if step_us is not None
    ]
    drawn: alt.FacetChart = (
        alt.Chart(alt.InlineData(values=values))
        .mark_bar()
        .encode(
            x=alt.X("ms:Q", title="step, ms", axis=alt.Axis(tickCount=3)),
            y=alt.Y("strategy:N", sort=[*FOUR_BASELINES, PESTO], title=None),
            color=alt.Color(
                "is pesto:N",
                legend=None,
                scale=alt.Scale(domain=[False, True], range=["#9aa5b1", "#e4572e"]),
            ),
        )
        .properties(width=PANEL_WIDTH, height=alt.Step(BAR_STEP))
        .facet(
            facet=alt.Facet("model:N", title=None, sort=[row.title for row in found]),
            columns=PANELS_IN_A_ROW,
        )
        .resolve_scale(x="independent")
    )
    return drawn


def _experiment(title: str, table: Table) -> Experiment:
    models = tuple(dict.fromkeys(row.model for row in table.rows))
    return Experiment(title, models, partial(jobs, table), partial(_report, table))


TABLE1 = _experiment("Table 1: step times on 8 GPUs", EIGHT)
TABLE4 = _experiment("Table 4: step times on 12 GPUs", TWELVE)
