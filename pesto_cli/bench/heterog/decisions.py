"""HeteroG's Tables 2 and 3: the shares of ops by kind of decision, on 8 GPUs."""

from pesto_cli.bench.contenders import PESTO
from pesto_cli.bench.experiment import Experiment, ExperimentRequest, Report
from pesto_cli.bench.heterog.rows import EIGHT
from pesto_cli.bench.published import published
from pesto_cli.bench.record import Decisions
from pesto_cli.bench.rivals import jobs_of
from pesto_cli.bench.runs import Job, Records
from pesto_cli.report.markdown import markdown_table

NUM_GPUS = 8


def _jobs(request: ExperimentRequest) -> list[Job]:
    return [
        job
        for _, model in EIGHT.asked(request)
        for job in jobs_of(model, EIGHT.machine, (PESTO,), request.effort)
    ]


def _report(request: ExperimentRequest, records: Records) -> Report:
    lines, data = [], {}
    of = {job.model.name: records[job].decisions for job in _jobs(request)}
    for row, model in EIGHT.asked(request):
        decisions = of[model.name]
        if decisions is not None:
            lines.append([row.title, *_shares(decisions), *_variables(decisions)])
            data[row.title] = decisions.model_dump(exclude={"longest"})
    gpus = [f"G{index}" for index in range(NUM_GPUS)]
    columns = ["model (batch)", "CPU", *gpus, "even", "uneven", "variables: whole", "split"]
    table = markdown_table([*columns, "mirrored"], lines)
    paper = published("heterog_decisions")
    theirs = markdown_table(
        ["model (batch)", *paper["columns"]],
        [[name, *(f"{share:g}%" for share in row)] for name, row in paper["percent"].items()],
    )
    text = (
        "Forward and backward ops of pesto's plans on 8 GPUs (G0, G1: V100; G2 to G5: GTX 1080 Ti; "
        "G6, G7: P100), in per cent: whole on a device, split evenly over all GPUs, or split "
        "otherwise. And variables: whole with one owner (parameter servers), split, or mirrored "
        f"(all-reduce).\n\n{table}\n\n## In the paper\n\n{theirs}\n\n{paper['source']}. EV and CP: "
        "even replicas, and replicas in proportion to the speed of a GPU. For the Transformer with "
        "a batch of 120, Table 3 prints 48 layers, and Table 1 prints 24."
    )
    return Report(data, text)


def _shares(decisions: Decisions) -> list[str]:
    total = sum(decisions.whole.values()) + decisions.even + decisions.uneven
    whole = {"CPU": 0, **dict.fromkeys(map(str, range(NUM_GPUS)), 0)}
    gpus = [name for name in decisions.devices if "CPU" not in name]
    for name, count in decisions.whole.items():
        whole["CPU" if "CPU" in name else str(gpus.index(name))] += count
    counts = [*whole.values(), decisions.even, decisions.uneven]
    return [f"{count / max(total, 1):.1%}" for count in counts]


def _variables(decisions: Decisions) -> list[str]:
    return [str(decisions.variables.get(layout, 0)) for layout in ("whole", "split", "mirrored")]


TABLES23 = Experiment(
    "Tables 2 and 3: what is decided for ops",
    tuple(dict.fromkeys(row.model for row in EIGHT.rows)),
    _jobs,
    _report,
)
