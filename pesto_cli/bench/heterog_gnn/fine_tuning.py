"""HeteroG's Table 6: learning from scratch against fine-tuning on unseen graphs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pesto_cli.bench.experiment import (
    Experiment,
    ExperimentRequest,
    Report,
    figure,
    ms_or_oom,
    percent,
)
from pesto_cli.bench.heterog_gnn.runs import MODELS, pairs, title
from pesto_cli.bench.published import family, published
from pesto_cli.bench.record import CurvePoint, Learning, Record
from pesto_cli.bench.runs import Job, Records
from pesto_cli.report.markdown import markdown_table

if TYPE_CHECKING:
    import altair as alt

SCRATCH, TUNED = "from scratch", "fine-tuned"
COLOURS = {SCRATCH: "#4c78a8", TUNED: "#f58518"}
WIDTH, HEIGHT = 300, 180


@dataclass(frozen=True)
class Row:
    """An unseen graph: its records from scratch and fine-tuned."""

    model: str
    name: str
    scratch: Record
    tuned: Record

    @property
    def goal_us(self) -> float:
        """The best step that was found from scratch."""
        curve = _curve(self.scratch)
        return curve[-1].best_us if curve else self.scratch.step_us

    @property
    def converged(self) -> CurvePoint | None:
        """When this step was found from scratch."""
        return reached(_curve(self.scratch), self.goal_us)

    @property
    def caught_up(self) -> CurvePoint | None:
        """When the fine-tuned policy had a step that is as short; None: not within the limit."""
        learning = self.tuned.learning
        if learning is not None and learning.first_fits and learning.first_us <= self.goal_us:
            return at_once(learning)
        return reached(_curve(self.tuned), self.goal_us)

    @property
    def ratio(self) -> float | None:
        """The time to catch up, as a share of the time from scratch."""
        if self.converged is None or self.caught_up is None:
            return None
        return self.caught_up.seconds / self.converged.seconds


def reached(curve: Sequence[CurvePoint], step_us: float) -> CurvePoint | None:
    """Return the first point with a step that is not longer."""
    return next((point for point in curve if point.best_us <= step_us), None)


def at_once(learning: Learning) -> CurvePoint:
    """Return the most probable placement, before anything is learned, as a point."""
    step_us = learning.first_us
    return CurvePoint(seconds=learning.first_s, num_placements=0, mean_us=step_us, best_us=step_us)


def _curve(record: Record) -> Sequence[CurvePoint]:
    return record.learning.curve if record.learning else ()


def _jobs(request: ExperimentRequest) -> list[Job]:
    return [job for _, *both in pairs(request) for job in both]


def _report(request: ExperimentRequest, records: Records) -> Report:
    rows = [
        Row(title(model), model.name, records[scratch], records[tuned])
        for model, scratch, tuned in pairs(request)
    ]
    columns = ["model (batch)", "trained before, s", "from scratch, ms", "after s"]
    columns += ["after placements", "fine-tuned, ms", "as good after s", "after placements"]
    columns += ["ratio", "paper: from scratch, min", "fine-tuned", "ratio"]
    text = (
        "The policy learns from scratch on a graph for the time limit: its best step, and when it "
        "was found. *fine-tuned*: it has learned on the graphs of all other families for the "
        "time limit each (*trained before*), and then learns on this graph for the time limit: "
        "its best step, and when it was as good as from scratch; a dash if it was not. *ratio*: "
        "of these two times. A plan that does not fit into memory does not count as good.\n\n"
        f"{markdown_table(columns, [_line(row) for row in rows])}\n\nThe paper's figures, for 8 "
        f"GPUs: {published('heterog_gnn')['source']}."
    )
    data = [
        {
            "model": row.model,
            "trained_s": row.tuned.learning.trained_s if row.tuned.learning else None,
            "num_trained": row.tuned.learning.num_trained if row.tuned.learning else None,
            "step_us": {SCRATCH: row.scratch.step_us, TUNED: row.tuned.step_us},
            "fits": {SCRATCH: row.scratch.fits, TUNED: row.tuned.fits},
            "ratio": row.ratio,
            "curves": {
                SCRATCH: [point.model_dump() for point in _curve(row.scratch)],
                TUNED: [point.model_dump() for point in _curve(row.tuned)],
            },
        }
        for row in rows
    ]
    return Report(data, text, {"": _chart(rows)} if rows else {})


def _line(row: Row) -> list[str]:
    theirs = published("heterog_gnn")["minutes"].get(_paper_name(row.name))
    trained_s = row.tuned.learning.trained_s if row.tuned.learning else None
    return [
        row.model,
        figure(trained_s, ".0f", "-"),
        ms_or_oom(row.scratch),
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


def _chart(rows: Sequence[Row]) -> "alt.ConcatChart":
    """Draw the best step so far from scratch and fine-tuned, one panel for each graph."""
    import altair as alt

    colours = alt.Scale(domain=list(COLOURS), range=list(COLOURS.values()))
    panels = []
    for row in rows:
        values = [
            {"policy": name, "seconds": point.seconds, "ms": point.best_us / 1e3}
            for name, record in ((SCRATCH, row.scratch), (TUNED, row.tuned))
            for point in _curve(record)
        ]
        panels.append(
            alt.Chart(alt.InlineData(values=values))
            .mark_line(interpolate="step-after")
            .encode(
                x=alt.X("seconds:Q", scale=alt.Scale(type="log", nice=False)),
                y=alt.Y("ms:Q", title="best step, ms", scale=alt.Scale(type="log", nice=False)),
                color=alt.Color("policy:N", title=None, scale=colours),
            )
            .properties(width=WIDTH, height=HEIGHT, title=row.model)
        )
    whole: alt.ConcatChart = alt.concat(*panels, columns=2)
    return whole


TABLE6 = Experiment("Table 6: from scratch and fine-tuned", MODELS, _jobs, _report)
