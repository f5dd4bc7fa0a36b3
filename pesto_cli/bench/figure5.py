"""Pesto's Figure 5: what the integer program's congestion constraints are worth."""

from typing import TYPE_CHECKING

from pesto_cli.bench.contenders import ILP_ALONE, PESTO
from pesto_cli.bench.experiment import Asked, Experiment, Report, figure, gib, ms, ms_or_oom
from pesto_cli.bench.published import published
from pesto_cli.bench.record import Record
from pesto_cli.bench.runs import Job, Records
from pesto_cli.report.markdown import markdown_table

if TYPE_CHECKING:
    import altair as alt

NAMES = (ILP_ALONE, PESTO)


def _jobs(asked: Asked) -> list[Job]:
    return [
        Job(model, name, asked.first, asked.effort, congestion=congestion, with_timeline=True)
        for model in asked.models
        for name in NAMES
        for congestion in (False, True)
    ]


def _report(asked: Asked, records: Records) -> Report:
    paper = published("congestion")
    rows, data, charts = [], [], {}
    for model in asked.models:
        for name in NAMES:
            without, with_ = (
                next(
                    records[job]
                    for job in _jobs(asked)
                    if (job.model, job.contender, job.congestion) == (model, name, congestion)
                )
                for congestion in (False, True)
            )
            ratio = without.step_us / with_.step_us if with_.step_us else None
            is_papers = model.name == paper["model"] and name == ILP_ALONE
            theirs = paper["step_without_over_with"] if is_papers else None
            rows.append(
                [
                    model.name,
                    name,
                    ms_or_oom(without),
                    ms_or_oom(with_),
                    figure(ratio, ".3f", "-"),
                    figure(theirs, ".0f"),
                ]
            )
            found = {"without_us": without.step_us, "with_us": with_.step_us, "ratio": ratio}
            data.append({"model": model.name, "search": name, **found, "paper": theirs})
            if name == ILP_ALONE:
                charts[model.name] = _chart(model.name, without, with_)
    if len(charts) == 1:
        charts = {"": charts.popitem()[1]}
    said = (
        f"Step times in ms, GPUs of {gib(asked.memory_gib[0])}: the program does not know, or "
        "knows, that a link carries one transfer at a time; the simulator knows it in both cases. "
        f"*{ILP_ALONE}* is what the paper's figure shows: the program's placement and order, "
        f"expanded. *{PESTO}* refines both, so that little of the difference is left."
    )
    columns = ["model", "search", "without", "with", "without / with", "paper"]
    return Report(data, f"{said}\n\n{markdown_table(columns, rows, num_text=2)}", charts)


def _chart(model: str, without: Record, with_: Record) -> "alt.LayerChart | alt.VConcatChart":
    """Busy times of devices and links, one below the other on one scale of time."""
    import altair as alt

    longest_ms = max(without.step_us, with_.step_us) / 1e3
    panels = []
    for title, record in (("without", without), ("with", with_)):
        rows = [
            {"row": row, "from": start / 1e3, "to": end / 1e3, "link": "->" in row}
            for row, spans in record.timeline.items()
            for start, end in spans
        ]
        bars = (
            alt.Chart(alt.InlineData(values=rows))
            .mark_bar(height=12)
            .encode(
                x=alt.X("from:Q", title="ms", scale=alt.Scale(domain=[0, longest_ms], nice=False)),
                x2="to:Q",
                y=alt.Y("row:N", title=None, sort=list(record.timeline)),
                color=alt.Color(
                    "link:N",
                    legend=None,
                    scale=alt.Scale(domain=[False, True], range=["#4c78a8", "#e4572e"]),
                ),
            )
            .properties(
                width=640,
                height=alt.Step(18),
                title=f"{model}, {title} congestion constraints: {ms(record.step_us)} ms",
            )
        )
        panels.append(bars)
    return alt.vconcat(*panels)


FIGURE5 = Experiment(
    title="Figure 5: congestion constraints",
    models=(published("congestion")["model"],),
    jobs=_jobs,
    report=_report,
)
