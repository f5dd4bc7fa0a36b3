"""Pesto's Figure 5: the effect of the ILP's congestion constraints."""

from dataclasses import replace
from typing import TYPE_CHECKING

from pesto_cli.bench.busy_bars import busy_bars
from pesto_cli.bench.contenders import ILP_ALONE
from pesto_cli.bench.experiment import (
    Experiment,
    ExperimentRequest,
    Report,
    figure,
    gib,
    ms,
    ms_or_oom,
)
from pesto_cli.bench.models import BenchModel
from pesto_cli.bench.published import published
from pesto_cli.bench.record import Record
from pesto_cli.bench.runs import Job, Records
from pesto_cli.report.markdown import markdown_table

if TYPE_CHECKING:
    import altair as alt

# (speed of the links, nodes of the coarse graph): NVLink, and about PCIe; an ILP as large as the
# paper's, and one that is solved to optimality.
CASES = ((1.0, 200), (1.0, 40), (0.1, 200), (0.1, 40))
DRAWN = (0.1, 40)


def _pair(
    request: ExperimentRequest, model: BenchModel, speed: float, num_nodes: int
) -> tuple[Job, Job]:
    """Return a job without the congestion constraints, and the same job with them."""
    machine = replace(request.first, interconnect_speed=speed)
    without, with_ = (
        Job(
            model,
            ILP_ALONE,
            machine,
            request.effort,
            num_nodes,
            congestion=congestion,
            with_timeline=True,
        )
        for congestion in (False, True)
    )
    return without, with_


def _jobs(request: ExperimentRequest) -> list[Job]:
    return [
        job for model in request.models for case in CASES for job in _pair(request, model, *case)
    ]


def _report(request: ExperimentRequest, records: Records) -> Report:
    paper = published("congestion")
    rows, data, charts = [], [], {}
    for model in request.models:
        for speed, num_nodes in CASES:
            without, with_ = (records[job] for job in _pair(request, model, speed, num_nodes))
            ratio = without.step_us / with_.step_us if with_.step_us else None
            is_papers = (model.name, speed, num_nodes) == (paper["model"], *CASES[0])
            theirs = paper["step_without_over_with"] if is_papers else None
            rows.append(
                [
                    model.name,
                    f"{speed:g}x",
                    str(num_nodes),
                    ms_or_oom(without),
                    ms_or_oom(with_),
                    figure(ratio, ".2f", "-"),
                    figure(theirs, ".0f"),
                ]
            )
            found = {"without_us": without.step_us, "with_us": with_.step_us, "ratio": ratio}
            case = {"model": model.name, "interconnect_speed": speed, "num_nodes": num_nodes}
            data.append({**case, **found, "paper": theirs})
            if (speed, num_nodes) == DRAWN:
                title = f"{model.name}, links {speed:g}x, {num_nodes} nodes"
                charts[model.name] = _chart(title, without, with_)
    if len(charts) == 1:
        charts = {"": charts.popitem()[1]}
    said = (
        f"Step times in ms, GPUs of {gib(request.memory_gib[0])}, of *{ILP_ALONE}*: the placement "
        "and order that the ILP finds for the coarse graph, expanded and not refined. The ILP is "
        "solved without and with the constraint that a link carries one transfer at a time. The "
        "simulator has this constraint in both cases."
    )
    columns = ["model", "links", "nodes", "without", "with", "without / with", "paper"]
    return Report(data, f"{said}\n\n{markdown_table(columns, rows, num_text=1)}", charts)


def _chart(title: str, without: Record, with_: Record) -> "alt.LayerChart | alt.VConcatChart":
    """Draw the busy times of devices and links, without and with constraints, on one time axis."""
    import altair as alt

    longest_ms = max(without.step_us, with_.step_us) / 1e3
    panels = [
        busy_bars(
            f"{title}, {which} congestion constraints: {ms(record.step_us)} ms", record, longest_ms
        )
        for which, record in (("without", without), ("with", with_))
    ]
    return alt.vconcat(*panels)


FIGURE5 = Experiment(
    title="Figure 5: congestion constraints",
    models=(published("congestion")["model"],),
    jobs=_jobs,
    report=_report,
)
