"""HeteroG's Table 6: learning from scratch against fine-tuning on unseen graphs."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pesto_cli.bench.experiment import (
    Experiment,
    ExperimentRequest,
    Report,
    figure,
    ms,
    ms_or_oom,
    percent,
)
from pesto_cli.bench.heterog_gnn.runs import MODELS, pairs, title
from pesto_cli.bench.learning_curves import Panel, curves_chart
from pesto_cli.bench.published import family, published
from pesto_cli.bench.record import CurvePoint, Record
from pesto_cli.bench.rivals import NUM_SEEDS, median
from pesto_cli.bench.runs import Job, Records
from pesto_cli.data.result import optimal_up_to_us
from pesto_cli.report.markdown import markdown_table

SCRATCH, TUNED = "from scratch", "fine-tuned"
COLOURS = {SCRATCH: "#4c78a8", TUNED: "#f58518"}


@dataclass(frozen=True)
class Row:
    """An unseen graph: its records from scratch, with several seeds, and fine-tuned."""

    model: str
    name: str
    scratches: Sequence[Record]
    tuned: Record

    @property
    def scratch(self) -> Record:
        """The record from scratch with the median step."""
        return median(self.scratches)

    @property
    def records(self) -> Mapping[str, Sequence[Record]]:
        """All records, by what the policy knew before."""
        return {SCRATCH: self.scratches, TUNED: [self.tuned]}

    @property
    def panel(self) -> Panel:
        """The panel of the chart."""
        curves = {name: [*map(best_so_far, some)] for name, some in self.records.items()}
        return Panel(self.model, curves)

    @property
    def scratch_us(self) -> float | None:
        """The best step that was sampled from scratch; None if it does not fit into memory."""
        curve = best_so_far(self.scratch)
        return curve[-1].best_us if curve and self.scratch.fits else None

    @property
    def converged(self) -> CurvePoint | None:
        """When the best step was found from scratch; None if it does not fit into memory."""
        return self._reached(self.scratch)

    @property
    def caught_up(self) -> CurvePoint | None:
        """When the fine-tuned policy had a step that is as short; None: not within the limit."""
        return self._reached(self.tuned)

    def _reached(self, record: Record) -> CurvePoint | None:
        """Return the first point of a run that is as good as the best step from scratch."""
        if self.scratch_us is None:
            return None
        longest_us = optimal_up_to_us(self.scratch_us)  # sums may differ by rounding
        return next((point for point in best_so_far(record) if point.best_us <= longest_us), None)

    @property
    def ratio(self) -> float | None:
        """The time to catch up, as a share of the time from scratch."""
        if self.converged is None or self.caught_up is None:
            return None
        return self.caught_up.seconds / self.converged.seconds


def best_so_far(record: Record) -> list[CurvePoint]:
    """Return the curve of a run.

    If the policy was trained before, the curve begins with its most probable plan, if that fits.
    From scratch, only sampled plans count.
    """
    learning = record.learning
    if learning is None:
        return []
    if not learning.num_trained:
        return learning.curve
    first_us = learning.first_us if learning.first_fits else math.inf
    first = CurvePoint(
        seconds=learning.first_s, num_placements=0, mean_us=first_us, best_us=first_us
    )
    later = [
        point.model_copy(update={"best_us": min(first_us, point.best_us)})
        for point in learning.curve
    ]
    return [first, *later] if learning.first_fits else later


def _jobs(request: ExperimentRequest) -> list[Job]:
    return [job for _, scratches, tuned in pairs(request) for job in (*scratches, tuned)]


def _report(request: ExperimentRequest, records: Records) -> Report:
    rows = [
        Row(title(model), model.name, [records[job] for job in scratches], records[tuned])
        for model, scratches, tuned in pairs(request)
    ]
    columns = ["model (batch)", "trained before, s", "from scratch, ms", "after s"]
    columns += ["after placements", "fine-tuned, ms", "as good after s", "after placements"]
    columns += ["ratio", "paper: from scratch, min", "fine-tuned", "ratio"]
    text = (
        f"The policy learns from scratch on a graph for the time limit, with {NUM_SEEDS} seeds: "
        "the best step of the median run, and when it was found. *fine-tuned*: it has learned on "
        "the graphs of all other families for the time limit each (*trained before*), and then "
        "learns on this graph for the time limit: its best step, and when it was as good as from "
        "scratch; a dash if it was not. *ratio*: of these two times. After 0 placements is the "
        "most probable plan, before the policy learns on this graph. From scratch, only sampled "
        "plans count. A plan that does not fit into memory does not count as good.\n\n"
        f"{markdown_table(columns, [_line(row) for row in rows])}\n\nThe paper's figures, for 8 "
        f"GPUs: {published('heterog_gnn')['source']}."
    )
    data = [
        {
            "model": row.model,
            "trained_s": row.tuned.learning.trained_s if row.tuned.learning else None,
            "num_trained": row.tuned.learning.num_trained if row.tuned.learning else None,
            "step_us": {SCRATCH: row.scratch_us, TUNED: row.tuned.step_us},
            "fits": {SCRATCH: row.scratch.fits, TUNED: row.tuned.fits},
            "ratio": row.ratio,
            "curves": {
                name: [[point.model_dump() for point in best_so_far(each)] for each in some]
                for name, some in row.records.items()
            },
        }
        for row in rows
    ]
    panels = [row.panel for row in rows]
    return Report(data, text, {"": curves_chart(panels, "seconds", COLOURS)} if rows else {})


def _line(row: Row) -> list[str]:
    theirs = published("heterog_gnn")["minutes"].get(_paper_name(row.name))
    trained_s = row.tuned.learning.trained_s if row.tuned.learning else None
    return [
        row.model,
        figure(trained_s, ".0f", "-"),
        "OOM" if row.scratch_us is None else ms(row.scratch_us),
        *_when(row.converged),
        ms_or_oom(row.tuned),
        *_when(row.caught_up),
        percent(row.ratio, "-"),
        figure(theirs[0] if theirs else None, ".1f"),
        figure(theirs[1] if theirs else None, ".1f"),
        percent(theirs[1] / theirs[0] if theirs else None),
    ]


def _paper_name(model: str) -> str:
    """Return the name in the paper's table; tiny models are not in it."""
    if model not in MODELS:
        return ""
    names = published("heterog_gnn")["minutes"]
    return next((name for name in names if family(name) == family(model)), "")


def _when(point: CurvePoint | None) -> tuple[str, str]:
    if point is None:
        return "-", "-"
    return f"{point.seconds:.1f}", f"{point.num_placements:,}"


TABLE6 = Experiment("Table 6: from scratch and fine-tuned", MODELS, _jobs, _report)
