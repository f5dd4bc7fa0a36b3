"""The runs of HeteroG's policy: learned from scratch, and from graphs of other families."""

from collections.abc import Iterator
from dataclasses import replace

from pesto_cli.bench.contenders import PESTO
from pesto_cli.bench.experiment import ExperimentRequest
from pesto_cli.bench.heterog.rows import EIGHT, Row
from pesto_cli.bench.models import BenchModel
from pesto_cli.bench.published import family
from pesto_cli.bench.rivals import jobs_of, with_seeds
from pesto_cli.bench.runs import Effort, Job

POLICY = "heterog"
ROWS = {row.model: row for row in EIGHT.rows if row.best_baseline_s is not None}
# The models with the smaller batch of HeteroG's Table 1, which fit into memory. They are of
# different families.
MODELS = tuple(ROWS)
NUM_GPUS = EIGHT.num_gpus
REFUSED = (
    "*refused*: the strategies cannot be used for the graph, for example because its batch cannot "
    "be split into a part for each GPU; the JSON file has the reasons."
)


def title(model: BenchModel) -> str:
    """Return the title of a model: HeteroG's, if the model is one of its table."""
    row = row_of(model)
    return model.name if row is None else row.title


def row_of(model: BenchModel) -> Row | None:
    """Return the paper's row of a model."""
    return ROWS.get(model.name)


def run_of(model: BenchModel, name: str, effort: Effort) -> Job:
    """Return the run of a contender on 8 GPUs."""
    (job,) = jobs_of(model, EIGHT.machine, (name,), effort)
    return job


def from_scratch(model: BenchModel, effort: Effort) -> tuple[Job, ...]:
    """Return the runs of the policy that learns on this graph alone, with several seeds."""
    return with_seeds(run_of(model, POLICY, effort))


def fine_tuned(model: BenchModel, request: ExperimentRequest) -> Job | None:
    """Return the run of the policy that has learned on the graphs of other families before.

    None if there are none.
    """
    others = tuple(other for other in request.models if family(other.name) != family(model.name))
    job = run_of(model, POLICY, request.effort)
    return replace(job, trained_on=others) if others else None


def pairs(request: ExperimentRequest) -> Iterator[tuple[BenchModel, tuple[Job, ...], Job]]:
    """Yield each model with the runs from scratch and from other graphs."""
    for model in request.models:
        tuned = fine_tuned(model, request)
        if tuned is not None:
            yield model, from_scratch(model, request.effort), tuned


def searched(model: BenchModel, effort: Effort, time_limit_s: float) -> Job:
    """Return a run of pesto for at most this time."""
    limit_s = min(time_limit_s, effort.time_limit_s)
    return run_of(model, PESTO, replace(effort, time_limit_s=limit_s))
