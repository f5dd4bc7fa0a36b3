"""FastT's Table 3: steps of BERT-large by batch size, and what does not fit into memory."""

from pesto_cli.bench.contenders import PESTO
from pesto_cli.bench.experiment import Experiment, ExperimentRequest, Report, figure, ms_or_oom
from pesto_cli.bench.fastt.rows import IN_ONE_SERVER, ONE
from pesto_cli.bench.fastt.scaling import CONTENDERS_OF, OF_FASTT
from pesto_cli.bench.published import published
from pesto_cli.bench.rivals import DATA_PARALLEL, jobs_of, runs_of
from pesto_cli.bench.runs import Job, Records
from pesto_cli.report.markdown import markdown_table

TWO = IN_ONE_SERVER[0]
NAMES = (*DATA_PARALLEL, *OF_FASTT, PESTO)


def _model(batch: str) -> str:
    return f"BERT-large@batch={batch},length={published('fastt_batch')['length']}"


def _jobs(request: ExperimentRequest) -> list[Job]:
    return [
        job
        for model in request.models
        for cluster, names in ((ONE, ("single",)), (TWO, NAMES))
        for job in jobs_of(model, cluster.machine, names, request.effort)
    ]


def _report(request: ExperimentRequest, records: Records) -> Report:
    paper, lines, data = published("fastt_batch"), [], []
    for batch, theirs in paper["step_s"].items():
        jobs = [job for job in _jobs(request) if job.model.name == _model(batch)]
        if not jobs:
            continue
        runs = runs_of(jobs, records)
        peaks = {name: max(record.peak_bytes.values()) for name, record in runs.records.items()}
        lines.append(
            [
                batch,
                ms_or_oom(runs.records["single"]),
                *(runs.best_shown(CONTENDERS_OF[column]) for column in ("DP", "FastT", "pesto")),
                *(figure(None if step is None else step * 1e3, ".0f", "OOM") for step in theirs),
                f"{peaks['single'] / 2**30:.1f}",
            ]
        )
        steps_us = {name: runs.step_us([name]) for name in runs.records}
        data.append({"batch": int(batch), "steps_us": steps_us, "peak_bytes": peaks})
    columns = ["batch", "1 GPU", "2 GPUs: DP", "FastT", "pesto"]
    columns += ["paper: 1 GPU", "DP", "FastT", "peak on 1 GPU, GiB"]
    text = (
        "Step times of BERT-large in ms, with sentences of 64 words, on GPUs of 16 GB. The "
        "estimate of memory contains variables and tensors; it contains neither the workspace "
        "of kernels nor fragmentation, and the model has no dropout masks. So larger batches "
        f"fit than in the paper.\n\n{markdown_table(columns, lines)}\n\nThe paper's figures: "
        f"{paper['source']}."
    )
    return Report(data, text)


TABLE3 = Experiment(
    "Table 3: BERT-large by batch size",
    tuple(map(_model, published("fastt_batch")["step_s"])),
    _jobs,
    _report,
)
