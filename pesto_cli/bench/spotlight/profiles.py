"""Spotlight's Figure 6: what devices and links do in a step of the CIFAR-10 model."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pesto_cli.bench.busy_bars import busy_bars
from pesto_cli.bench.contenders import PESTO
from pesto_cli.bench.experiment import Experiment, ExperimentRequest, Report, ms, ms_or_oom, percent
from pesto_cli.bench.models import BenchModel
from pesto_cli.bench.record import Busy, Record
from pesto_cli.bench.runs import Job, Records
from pesto_cli.bench.spotlight.runs import CIFAR, GRL, SPOTLIGHT, TOWERS, found, jobs_of
from pesto_cli.report.markdown import markdown_table

if TYPE_CHECKING:
    import altair as alt

# The least length of a step. Times are divided by it, and a step without ops has the length 0.
LEAST_US = 1e-3
# GPUs -> the placements of the figure, and pesto's.
SHOWN = {2: ("single", GRL, SPOTLIGHT, PESTO), 4: (TOWERS, SPOTLIGHT, PESTO)}


def _jobs(request: ExperimentRequest) -> list[Job]:
    return [
        job
        for model in request.models
        for num_gpus, names in SHOWN.items()
        for _, job in jobs_of(model, num_gpus, request.effort, names)
    ]


def _report(request: ExperimentRequest, records: Records) -> Report:
    lines, data, charts = [], list[dict[str, Any]](), {}
    for model in request.models:
        for num_gpus in SHOWN:
            of = _medians(model, num_gpus, request, records)
            for name, record in of.items():
                busy = {row: _busy_us(spans) for row, spans in record.timeline.items()}
                lines.append([model.name, str(num_gpus), name, *_cells(record, busy, num_gpus)])
                about = {"model": model.name, "gpus": num_gpus, "placement": name}
                data.append({**about, "step_us": record.step_us, "busy_us": busy})
            if of:
                charts[f"{model.name}-{num_gpus}"] = _chart(num_gpus, of)
    columns = ["model", "GPUs", "placement", "step, ms"]
    columns += [f"GPU:{index}" for index in range(max(SHOWN))] + ["CPU:0", "all links"]
    text = (
        "The share of the step in which each device computes, and the sum of these shares of all "
        "links. Of a policy it is the run with the median step. In the paper, GRL sends tensors "
        "between GPUs in each layer; Spotlight divides the convolutions, which are connected only "
        "in part, between two GPUs, and leaves two of four idle; towers wait for the CPU "
        "(Section 5.5, Figure 6)."
        f"\n\n{markdown_table(columns, lines, num_text=3)}"
    )
    return Report(data, text, charts)


def _medians(
    model: BenchModel, num_gpus: int, request: ExperimentRequest, records: Records
) -> dict[str, Record]:
    names = SHOWN[num_gpus]
    of = found(jobs_of(model, num_gpus, request.effort, names), records)
    return {name: record for name in names if not (record := of.median(name)).refused}


def _busy_us(spans: Busy) -> float:
    return sum(end - start for start, end in spans)


def _cells(record: Record, busy: dict[str, float], num_gpus: int) -> Iterable[str]:
    def share(row: str) -> str:
        return percent(busy.get(row, 0.0) / max(record.step_us, LEAST_US))

    yield ms_or_oom(record)
    for index in range(max(SHOWN)):
        yield share(f"GPU:{index}") if index < num_gpus else ""
    yield share("CPU:0")
    links_us = sum(busy_us for row, busy_us in busy.items() if "->" in row)
    yield percent(links_us / max(record.step_us, LEAST_US))


def _chart(num_gpus: int, of: dict[str, Record]) -> "alt.VConcatChart":
    import altair as alt

    longest_ms = max(record.step_us for record in of.values()) / 1e3
    whole: alt.VConcatChart = alt.vconcat(
        *(
            busy_bars(f"{name}, {num_gpus} GPUs: {ms(record.step_us)} ms", record, longest_ms)
            for name, record in of.items()
        )
    )
    return whole


FIGURE6 = Experiment("Figure 6: what devices and links do", CIFAR, _jobs, _report)
