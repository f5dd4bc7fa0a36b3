"""HeteroG's Figure 3: even against proportional replicas, and op times by kind of GPU."""

import numpy as np

from pesto_cli.bench.contenders import PESTO
from pesto_cli.bench.experiment import Experiment, ExperimentRequest, Report, ms_or_oom, percent
from pesto_cli.bench.heterog.rows import EIGHT, FOUR
from pesto_cli.bench.models import BenchModel
from pesto_cli.bench.published import published
from pesto_cli.bench.rivals import jobs_of, runs_of
from pesto_cli.bench.runs import Job, Records
from pesto_cli.data.presets import PRESETS
from pesto_cli.report.markdown import markdown_table

# Without `horovod`, which has no parts in proportion to speeds.
NAMES = ("ev-ps", "cp-ps", "ev-ar", "cp-ar", PESTO)
TYPES = ("Conv2D", "Conv2DBackpropFilter", "Conv2DBackpropInput", "MatMul", "BatchMatMulV2", "Relu")
KINDS = tuple(kind for kind in PRESETS["heterog-12"].kinds if kind != "CPU")
# The paper does not give the batches of Figure 3. These are the ones of Table 1.
ROWS = tuple(
    row
    for row in EIGHT.rows
    if row.best_baseline_s is not None
    and row.title.partition(" ")[0] in published("heterog_proportional")["models"]
)


def _jobs(request: ExperimentRequest) -> list[Job]:
    return [job for model in request.models for job in jobs_of(model, FOUR, NAMES, request.effort)]


def _report(request: ExperimentRequest, records: Records) -> Report:
    lines, data = [], []
    titles = {row.model: row.title for row in ROWS}
    for model in request.models:
        jobs = jobs_of(model, FOUR, NAMES, request.effort)
        runs = runs_of(jobs, records)
        even, proportional = runs.step_us(["ev-ps", "ev-ar"]), runs.step_us(["cp-ps", "cp-ar"])
        gain = None if even is None or proportional is None else even / proportional - 1
        title = titles.get(model.name, model.name)
        shown = [ms_or_oom(runs.records[name]) for name in NAMES]
        lines.append([title, *shown, percent(gain, "-")])
        data.append({"model": title, "speed-up": gain, "op times": _ratios(model)})
    paper = published("heterog_proportional")
    low, high = paper["speed_up"]
    table = markdown_table(["model (batch)", *NAMES, "speed-up of proportional"], lines)
    ratios = [
        [titles.get(model.name, model.name), op_type, *cells]
        for model in request.models
        for op_type, cells in _ratios(model).items()
    ]
    ops = markdown_table(["model (batch)", "op type", *KINDS], ratios, num_text=2)
    slow, slower = paper["v100_over_1080_ti"]
    text = (
        "Step times in ms on two V100 and two GTX 1080 Ti. *speed-up*: of the better of `cp-ps` "
        f"and `cp-ar` over the better of `ev-ps` and `ev-ar`; in the paper {low:.0%} to "
        f"{high:.0%}.\n\n{table}\n\n## Op times by kind of GPU\n\nThe time of all ops of a "
        f"type, divided by that on a V100, which the paper measures as {slow} to {slower} for a "
        f"GTX 1080 Ti, with large differences between ops. Here they are analytic costs.\n\n"
        f"{ops}\n\n{paper['source']}."
    )
    return Report(data, text)


def _ratios(model: BenchModel) -> dict[str, list[str]]:
    """Return by op type the time on each kind of GPU, divided by that on the first kind."""
    problem = model.profile().problem
    types = np.array(problem.graph.types)
    columns = [problem.kinds.index(kind) for kind in KINDS]
    found = {}
    for op_type in TYPES:
        times_us = np.nansum(problem.time_us[types == op_type][:, columns], axis=0)
        if times_us[0] > 0:
            found[op_type] = [f"{ratio:.2f}" for ratio in times_us / times_us[0]]
    return found


FIGURE3 = Experiment(
    "Figure 3: even and proportional replicas",
    tuple(row.model for row in ROWS),
    _jobs,
    _report,
)
