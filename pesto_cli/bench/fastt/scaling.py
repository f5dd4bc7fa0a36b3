"""FastT's Tables 1 and 2: training speed with strong and with weak scaling."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pesto_cli.bench.contenders import PESTO, SPLITTING
from pesto_cli.bench.experiment import Experiment, ExperimentRequest, Report, percent
from pesto_cli.bench.fastt.rows import ONE, ROWS, STRONG, WEAK, Cluster, Row, asked_rows, model_of
from pesto_cli.bench.published import published
from pesto_cli.bench.rivals import DATA_PARALLEL, Runs, jobs_of, runs_of
from pesto_cli.bench.runs import Job, Records
from pesto_cli.report.markdown import markdown_table

if TYPE_CHECKING:
    import altair as alt

OF_FASTT = ("fastt", "os-dpos")
RIVALS = tuple(dict.fromkeys(("single", "expert", *OF_FASTT, *SPLITTING)))
CONTENDERS_OF: dict[str, Sequence[str]] = {
    "DP": DATA_PARALLEL,
    "FastT": OF_FASTT,
    "best rival": RIVALS,
    "pesto": (PESTO,),
}
COLUMNS = (
    *("model (batch)", "GPUs", "1 GPU", "DP", "FastT", "best rival", "pesto", "bound"),
    *("paper: 1 GPU", "DP", "FastT"),
)
SPEED_UPS = ("model", "1 GPU or DP", "FastT", "pesto", "speed-up of FastT", "of pesto", "bound")
PANEL_WIDTH, PANEL_HEIGHT, PANELS_IN_A_ROW = 220, 150, 3


@dataclass(frozen=True)
class Table:
    """One of the two tables.

    key: of the paper's figures. batch: how many times the batch of one GPU a cluster has.
    """

    key: str
    clusters: Sequence[Cluster]
    batch: Callable[[Cluster], int]

    def models(self) -> tuple[str, ...]:
        """Return the names of all models."""
        every = (row.model(self.batch(each)) for row in ROWS for each in (ONE, *self.clusters))
        return tuple(dict.fromkeys(every))

    def jobs(self, request: ExperimentRequest) -> list[Job]:
        """Return all runs."""
        return [
            job
            for row in asked_rows(request)
            for cluster in (ONE, *self.clusters)
            for job in self._jobs(request, row, cluster)
        ]

    def report(self, request: ExperimentRequest, records: Records) -> Report:
        """Report speeds in samples per second."""
        cells = [*self._cells(request, records)]
        models = [
            Model(row, [cell for cell in cells if cell.row is row]) for row in asked_rows(request)
        ]
        notes = (
            "Training speed in samples per second (Transformer: words). *DP*: the best of "
            "`ev-ps`, `ev-ar` and `horovod`, which has one ring of all GPUs at a time. *FastT*: "
            "the better of `fastt`, which places whole ops, and `os-dpos`. *best rival*: the best "
            "of all strategies but pesto, chosen by the speed that is compared. *bound*: no plan, "
            "placement and order is faster."
        )
        table = markdown_table(COLUMNS, [cell.line() for cell in cells], num_text=2)
        about_speed_ups = (
            "The best speed of a model with any number of GPUs, which is in brackets. "
            "*speed-up*: over the best of one GPU and DP, as in the paper. *bound*: no speed-up is "
            "higher."
        )
        paper = published(self.key)
        speed_ups = markdown_table(
            [*SPEED_UPS, "paper"],
            [[*model.line(), percent(paper["speed_up"][model.row.title])] for model in models],
        )
        text = (
            f"{notes}\n\n{table}\n\n## Speed-ups\n\n{about_speed_ups}\n\n{speed_ups}\n\n"
            f"The paper's figures: {paper['source']}."
        )
        data = {
            "speeds": [cell.data() for cell in cells],
            "speed-ups": [model.data() for model in models],
        }
        return Report(data, text, {"": chart(cells)})

    def _jobs(self, request: ExperimentRequest, row: Row, cluster: Cluster) -> list[Job]:
        model = model_of(request, row.model(self.batch(cluster)))
        names = ("single",) if cluster is ONE else (*RIVALS, PESTO)
        return jobs_of(model, cluster.machine, names, request.effort)

    def _cells(self, request: ExperimentRequest, records: Records) -> Iterator["Cell"]:
        paper = published(self.key)
        for row in asked_rows(request):
            theirs = paper["samples_per_s"][row.title]
            single, *others = (
                runs_of(self._jobs(request, row, cluster), records)
                for cluster in (ONE, *self.clusters)
            )
            for cluster, runs in zip(self.clusters, others, strict=True):
                speeds = dict(zip(paper["columns"], theirs, strict=True))
                yield Cell(row, cluster, self.batch(cluster), single, runs, speeds)


@dataclass(frozen=True)
class Cell:
    """One model on one cluster.

    times: how many times the batch of one GPU. single: the runs on one GPU. paper: the paper's
        speeds by column.
    """

    row: Row
    cluster: Cluster
    times: int
    single: Runs
    runs: Runs
    paper: dict[str, float]

    @property
    def samples(self) -> int:
        """Samples of a step."""
        return self.times * self.row.batch * self.row.unit

    @property
    def one_gpu(self) -> float | None:
        """Samples per second of one GPU, with its own batch; None if it does not fit."""
        step_us = self.single.step_us(["single"])
        return None if step_us is None else self.row.batch * self.row.unit / step_us * 1e6

    @property
    def bound(self) -> float:
        """No plan, placement and order has more samples per second."""
        return self.samples / self.runs.bound_us * 1e6

    def speed(self, column: str) -> float | None:
        """Return the samples per second of a column; None if nothing fits into memory."""
        if column == "bound":
            return self.bound
        step_us = self.runs.step_us(CONTENDERS_OF[column])
        return None if step_us is None else self.samples / step_us * 1e6

    def line(self) -> list[str]:
        """Return the cells of the table."""
        best = self.runs.best(RIVALS)
        return [
            f"{self.row.title} ({self.samples})",
            self.cluster.name,
            shown(self.one_gpu),
            shown(self.speed("DP")),
            shown(self.speed("FastT")),
            shown(self.speed("best rival")) + (f" ({best})" if best else ""),
            shown(self.speed("pesto")),
            shown(self.bound),
            shown(self.paper["1"]),
            *(shown(self.paper[f"{self.cluster.name} {name}"]) for name in ("DP", "FastT")),
        ]

    def data(self) -> dict[str, Any]:
        """Return the figures for the JSON file."""
        return {
            "model": self.row.title,
            "samples": self.samples,
            "GPUs": self.cluster.name,
            "one GPU": self.one_gpu,
            **{column: self.speed(column) for column in CONTENDERS_OF},
            "bound": self.bound,
            "best rival's name": self.runs.best(RIVALS),
            "steps_us": {name: self.runs.step_us([name]) for name in self.runs.records},
            "took_s": {name: record.took_s for name, record in self.runs.records.items()},
        }


@dataclass(frozen=True)
class Model:
    """All cells of a model: its speeds with each number of GPUs."""

    row: Row
    cells: Sequence[Cell]

    def best(self, column: str) -> tuple[float, str] | None:
        """Return the best speed of a column, and its number of GPUs; None if nothing fits."""
        speeds = [(cell.speed(column), cell.cluster.name) for cell in self.cells]
        return max(((speed, gpus) for speed, gpus in speeds if speed is not None), default=None)

    @property
    def baseline(self) -> tuple[float, str] | None:
        """The best speed of one GPU and DP, and its number of GPUs; None if nothing fits."""
        one = self.cells[0].one_gpu
        found = [self.best("DP"), None if one is None else (one, ONE.name)]
        return max((each for each in found if each is not None), default=None)

    def speed_up(self, column: str) -> float | None:
        """Return by how much the best speed of a column is above the baseline, as a share."""
        best, before = self.best(column), self.baseline
        return None if best is None or before is None else best[0] / before[0] - 1

    def line(self) -> list[str]:
        """Return the cells of the table of speed-ups."""
        bests = [self.baseline, self.best("FastT"), self.best("pesto")]
        return [
            self.row.title,
            *("OOM" if best is None else f"{shown(best[0])} ({best[1]})" for best in bests),
            *(percent(self.speed_up(column), "-") for column in ("FastT", "pesto", "bound")),
        ]

    def data(self) -> dict[str, Any]:
        """Return the figures for the JSON file."""
        return {
            "model": self.row.title,
            **{column: self.speed_up(column) for column in ("FastT", "pesto", "bound")},
        }


def paper_speed_up(speeds: Mapping[str, float]) -> float:
    """Return the speed-up of FastT that follows from the paper's speeds by column, as a share.

    It is that of the best number of GPUs of FastT over the best one of all baselines.
    """
    fastt = max(speed for column, speed in speeds.items() if column.endswith("FastT"))
    return fastt / max(speed for column, speed in speeds.items() if "FastT" not in column) - 1


def shown(speed: float | None) -> str:
    """Format samples per second; OOM if there are none."""
    if speed is None:
        return "OOM"
    return f"{speed:,.1f}" if speed < 1e4 else f"{speed:,.0f}"


def chart(cells: Sequence[Cell]) -> "alt.FacetChart":
    """Draw the speed relative to one GPU, a panel for each model."""
    import altair as alt

    columns = ("DP", "FastT", "pesto", "bound")
    values = [
        {
            "model": cell.row.title,
            "GPUs": cell.cluster.name,
            "strategy": column,
            "times": speed / cell.one_gpu,
        }
        for cell in cells
        for column in columns
        for speed in [cell.speed(column)]
        if speed is not None and cell.one_gpu is not None
    ]
    order = list(dict.fromkeys(cell.cluster.name for cell in cells))
    drawn: alt.FacetChart = (
        alt.Chart(alt.InlineData(values=values))
        .mark_line(point=True)
        .encode(
            x=alt.X("GPUs:N", sort=order, title="GPUs", axis=alt.Axis(labelAngle=0)),
            y=alt.Y("times:Q", title="speed, times that of one GPU"),
            color=alt.Color("strategy:N", title=None, sort=[*columns]),
        )
        .properties(width=PANEL_WIDTH, height=PANEL_HEIGHT)
        .facet(facet=alt.Facet("model:N", title=None), columns=PANELS_IN_A_ROW)
        .resolve_scale(y="independent")
    )
    return drawn


STRONG_TABLE = Table("fastt_strong", STRONG, lambda cluster: 1)
WEAK_TABLE = Table("fastt_weak", WEAK, lambda cluster: cluster.num_gpus)
TABLE1 = Experiment(
    "Table 1: speed with strong scaling",
    STRONG_TABLE.models(),
    STRONG_TABLE.jobs,
    STRONG_TABLE.report,
)
TABLE2 = Experiment(
    "Table 2: speed with weak scaling", WEAK_TABLE.models(), WEAK_TABLE.jobs, WEAK_TABLE.report
)
