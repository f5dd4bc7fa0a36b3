"""FastT's Table 4: how long Algorithm 2 takes."""

from dataclasses import replace

from pesto_cli.bench.contenders import PESTO
from pesto_cli.bench.experiment import Experiment, ExperimentRequest, Report
from pesto_cli.bench.fastt.rows import IN_ONE_SERVER, ROWS, asked_rows, model_of
from pesto_cli.bench.published import published
from pesto_cli.bench.rivals import jobs_of
from pesto_cli.bench.runs import Job, Records
from pesto_cli.report.markdown import markdown_table

NAMES = ("os-dpos", PESTO)
# Table 4 has BERT-large with a batch of 32, Table 1 with 16.
BATCH = published("fastt_seconds")["batch"]
ROWS4 = tuple(replace(row, batch=BATCH[row.title] // row.unit) for row in ROWS)


def _jobs(request: ExperimentRequest) -> list[Job]:
    return [
        job
        for row in asked_rows(request, ROWS4)
        for cluster in IN_ONE_SERVER
        for job in jobs_of(model_of(request, row.model()), cluster.machine, NAMES, request.effort)
    ]


def _report(request: ExperimentRequest, records: Records) -> Report:
    paper, lines, data = published("fastt_seconds"), [], []
    jobs = _jobs(request)
    for row in asked_rows(request, ROWS4):
        took = {
            name: [
                records[job].took_s
                for job in jobs
                if job.model.name == row.model() and job.contender == name
            ]
            for name in NAMES
        }
        theirs = paper["seconds"][row.title]
        cells = [
            f"{each:.1f}"
            for place in range(len(IN_ONE_SERVER))
            for each in (*(took[name][place] for name in NAMES), theirs[place])
        ]
        lines.append([row.title, *cells])
        data.append({"model": row.title, **took, "paper": theirs})
    columns = ["model"]
    for cluster in IN_ONE_SERVER:
        columns += [f"{cluster.name} GPUs: os-dpos", "pesto", "paper"]
    text = (
        "Seconds until a placement is found. `os-dpos` ends by itself, but at the latest at the "
        "time limit, as pesto does. The paper's figures contain profiling and restarts on real "
        f"GPUs.\n\n{markdown_table(columns, lines)}\n\nThe paper's figures: {paper['source']}."
    )
    return Report(data, text)


TABLE4 = Experiment(
    "Table 4: time of Algorithm 2", tuple(row.model() for row in ROWS4), _jobs, _report
)
