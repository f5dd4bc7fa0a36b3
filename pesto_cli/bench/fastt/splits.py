"""FastT's Tables 5 and 6: which ops are split, and what splitting is worth."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pesto_cli.bench.contenders import PESTO, WITHOUT_SPLITS
from pesto_cli.bench.experiment import Experiment, ExperimentRequest, Report, ms_or_oom, percent
from pesto_cli.bench.fastt.rows import ROWS, STRONG, Cluster, Row, asked_rows, model_of
from pesto_cli.bench.published import published
from pesto_cli.bench.record import LongOp, Record
from pesto_cli.bench.rivals import jobs_of
from pesto_cli.bench.runs import Job, Records
from pesto_cli.report.markdown import markdown_table

OF_FASTT = (WITHOUT_SPLITS, "os-dpos")
VGG = next(row for row in ROWS if row.title == "VGG-19")
# Forward op of Table 5 -> its name in the zoo's VGG-19.
OPS = {
    "Conv1_1": "conv1_1/Conv2D",
    "Conv1_2": "conv1_2/Conv2D",
    "Relu1_2": "conv1_2/Relu",
    "Pool1": "pool1",
    "Fc6": "fc6/MatMul",
}
BACKWARD = "bp"
BYTES_OF_PARAMETER = 4
NUM_KEY_TYPES = 3
KEY_SHARE = 0.05


def cluster_of(row: Row) -> Cluster:
    """Return the GPUs of a row of Table 6, those of Table 1 with FastT's best speed-up.

    The paper does not name them. They follow from the step time: with these GPUs, FastT's speed in
    Table 1 is nearest to the batch divided by the step time.
    """
    table, step_s = published("fastt_strong"), published("fastt_gain")["rows"][row.title][1]
    speeds = dict(zip(table["columns"], table["samples_per_s"][row.title], strict=True))
    speed = row.batch * row.unit / step_s
    return min(STRONG, key=lambda cluster: abs(speeds[f"{cluster.name} FastT"] - speed))


def _jobs_of_fastt(request: ExperimentRequest, row: Row) -> list[Job]:
    """Return the runs on the replicated graph and on that with further splits."""
    model = model_of(request, row.model())
    return jobs_of(model, cluster_of(row).machine, OF_FASTT, request.effort)


def _jobs_of_pesto(request: ExperimentRequest, row: Row) -> list[Job]:
    """Return the runs with whole ops and with split ones."""
    model = model_of(request, row.model())
    (split,) = jobs_of(model, cluster_of(row).machine, (PESTO,), request.effort)
    return [replace(split, max_parts=1), split]


def _jobs(request: ExperimentRequest) -> list[Job]:
    return [
        job
        for row in asked_rows(request)
        for job in (*_jobs_of_fastt(request, row), *_jobs_of_pesto(request, row))
    ]


def ops_of(title: str, longest: Mapping[str, LongOp]) -> list[LongOp]:
    """Return the ops of the zoo's VGG-19 that compute an op of Table 5; longest: by name."""
    forward = longest[OPS[title.removesuffix(BACKWARD)]]
    if not title.endswith(BACKWARD):
        return [forward]
    gradients = [op for name, op in longest.items() if f"{forward.name}_" in name]
    return [op for op in gradients if op.type.startswith(forward.type)]


def _report5(request: ExperimentRequest, records: Records) -> Report:
    jobs = (*_jobs_of_fastt(request, VGG), *_jobs_of_pesto(request, VGG)[1:])
    found = [records[job].decisions for job in jobs]
    longest = [{op.name: op for op in each.longest} for each in found if each is not None]
    if len(longest) < len(jobs):
        return Report([], "A strategy was refused.")
    paper, lines, data = published("fastt_splits"), [], []
    for title, (theirs_ms, their_parameters, is_split) in paper["ops"].items():
        ops = ops_of(title, longest[0])
        parts = [sorted({of[op.name].num_parts for op in ops}) for of in longest]
        time_ms = sum(op.time_us for op in ops) / 1e3
        parameters = max(op.weight_bytes for op in ops) / BYTES_OF_PARAMETER / 1e3
        lines.append(
            [
                *(title, f"{time_ms:.2f}", f"{parameters:,.0f}"),
                *(" and ".join(map(str, each)) for each in parts),
                *(f"{theirs_ms:.2f}", f"{their_parameters:,.0f}", "yes" if is_split else "no"),
            ]
        )
        data.append({"op": title, "ms": time_ms, "parts": parts, "paper": paper["ops"][title]})
    columns = ["op", "ms", "parameters, 1000", "parts: no split", "os-dpos", "pesto"]
    columns += ["paper: ms", "parameters, 1000", "split"]
    text = (
        f"Ops of {VGG.title} with {VGG.batch} images on {cluster_of(VGG).name} GPUs: the time of "
        "the whole op, the parameters that it reads, and in how many parts it is. *no split*: "
        "before `os-dpos` splits ops further. Here a bias is read by an op of its own. The paper's "
        "unit of weights is called KB, but its figures are thousands of parameters. It does not "
        "give the number of GPUs; these are the ones of Table 6.\n\n"
        f"{markdown_table(columns, lines)}\n\nThe paper's figures: {paper['source']}."
    )
    return Report(data, text)


def _report6(request: ExperimentRequest, records: Records) -> Report:
    paper, lines, data = published("fastt_gain"), [], list[dict[str, Any]]()
    for row in asked_rows(request):
        cells, gains = list[str](), list[float | None]()
        for jobs in (_jobs_of_fastt(request, row), _jobs_of_pesto(request, row)):
            before, after = (records[job] for job in jobs)
            gains.append(_gain(before, after))
            cells += [ms_or_oom(before), ms_or_oom(after), percent(gains[-1], "-")]
            cells.append(_key_types(before, after))
        no_split_s, split_s, theirs, key_ops = paper["rows"][row.title]
        gpus = cluster_of(row).name
        lines.append(
            [
                *(row.title, gpus, *cells),
                *(f"{no_split_s * 1e3:.0f}", f"{split_s * 1e3:.0f}", percent(theirs), key_ops),
            ]
        )
        data.append(
            {"model": row.title, "GPUs": gpus}
            | dict(zip(("os-dpos", "pesto"), gains, strict=True))
            | {"paper": theirs}
        )
    columns = ["model", "GPUs"]
    for name, first in (("FastT", "no split"), ("pesto", "whole"), ("paper", "no split")):
        columns += [f"{name}: {first}", "split", "gain", "key ops"]
    text = (
        "Step times in ms. *no split*: the best of the data-parallel step and of DPOS on its graph "
        "and on that of the model, which splits nothing further; *split*: `os-dpos`. pesto has "
        "whole ops without prices of parts, and split ones. *gain*: by how much the first step is "
        "longer. *key ops*: the types with most of the work whose number of parts differs. *GPUs*: "
        "those with the paper's best speed-up in Table 1, which follow from its step times.\n\n"
        f"{markdown_table(columns, lines)}\n\nThe paper's figures: {paper['source']}."
    )
    return Report(data, text)


def _gain(whole: Record, split: Record) -> float | None:
    return whole.step_us / split.step_us - 1 if whole.fits and split.fits else None


def _key_types(before: Record, after: Record) -> str:
    """Return the types with at least a share of the work that is split further.

    These are of the longest ops that have another number of parts.
    """
    if before.decisions is None or after.decisions is None:
        return "none"
    parts_before = {op.name: op.num_parts for op in before.decisions.longest}
    work_us = Counter[str]()
    for op in after.decisions.longest:
        if op.num_parts != parts_before[op.name]:
            work_us[op.type] += round(op.time_us)
    least_us = KEY_SHARE * work_us.total()
    types = [name for name, time_us in work_us.most_common(NUM_KEY_TYPES) if time_us >= least_us]
    return ", ".join(types) or "none"


TABLE5 = Experiment("Table 5: which ops are split", (VGG.model(),), _jobs, _report5)
TABLE6 = Experiment(
    "Table 6: with and without splitting", tuple(row.model() for row in ROWS), _jobs, _report6
)
