"""Run jobs and cache their records: one file for each run, named by all that its result depends on.

A file is written atomically when its run ends. So an interrupted command continues where it was
stopped, and experiments share their common runs.
"""

import json
import re
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pesto_cli.bench.contenders import CONTENDERS
from pesto_cli.bench.decisions import decisions_of
from pesto_cli.bench.learning import Watch, trained_on
from pesto_cli.bench.machine_variant import MachineVariant
from pesto_cli.bench.models import BenchModel
from pesto_cli.bench.preparation import prepare
from pesto_cli.bench.record import FORMAT, Record
from pesto_cli.bench.timeline import timeline
from pesto_cli.bench.version import pesto_version
from pesto_cli.data.limits import Limits
from pesto_cli.data.plan import Local
from pesto_cli.data.problem import Problem
from pesto_cli.data.schedule import Schedule, shortfall_bytes
from pesto_cli.errors import BadInputError, EnvironmentFailedError, PestoError
from pesto_cli.evaluation.simulator import Simulator
from pesto_cli.files import read_bytes, sha256
from pesto_cli.files.storage import parse_json, write_json
from pesto_cli.strategies import Context
from pesto_cli.strategies.context import learns, with_parameters
from pesto_cli.strategies.order import ORDERS
from pesto_cli.strategies.run import judged

# Time limit of a strategy that ends by itself.
ENDLESS_S = 1e9


@dataclass(frozen=True)
class Effort:
    """The limits of every search, as in `limits.Limits`."""

    time_limit_s: float = 60.0
    seed: int = 0
    workers: int = 1
    deterministic: bool = False


@dataclass(frozen=True)
class Job:
    """One run: a contender on a model and a machine.

    with_orders, with_timeline, with_decisions: whether these fields of the record are filled.
    max_parts: the largest number of parts that strategies may use; 1 for whole ops.
    local_batch_norm: whether parts of batch normalisation use the mean and variance of their rows.
    trained_on: the graphs that a policy learns from before, for the time limit each.
    """

    model: BenchModel
    contender: str
    machine: MachineVariant
    effort: Effort
    num_nodes: int = 200
    congestion: bool = True
    with_orders: bool = False
    with_timeline: bool = False
    with_decisions: bool = False
    max_parts: int | None = None
    local_batch_norm: bool = False
    trained_on: tuple[BenchModel, ...] = ()

    def __str__(self) -> str:
        """Return a description that differs from those of all other runs of a paper."""
        contender, effort = CONTENDERS[self.contender], self.effort
        unit = "units" if effort.deterministic else "s"
        conditions = (
            *self.machine.changes,
            "whole ops" if self.max_parts == 1 else "",
            f"{self.num_nodes} nodes" if self.num_nodes != Job.num_nodes else "",
            "" if self.congestion else "no congestion",
            f"{effort.time_limit_s:g} {unit}" if contender.uses_time else "",
            f"seed {effort.seed}" if learns(contender.strategy) else "",
            "after other graphs" if self.trained_on else "",
        )
        shown = ", ".join(filter(None, conditions))
        return f"{self.model.name} {self.contender}" + (f" ({shown})" if shown else "")

    def is_answered_by(self, record: Record) -> bool:
        """Whether a record of this search has all fields that the job asks for."""
        lacks_orders = self.with_orders and not record.orders_us
        lacks_timeline = self.with_timeline and not record.timeline
        lacks_decisions = self.with_decisions and record.decisions is None
        return bool(record.refused) or not (lacks_orders or lacks_timeline or lacks_decisions)


Records = Mapping[Job, Record]


@dataclass(frozen=True)
class JobDone:
    """The end of a run: its record, and the counts of finished runs and of all runs.

    was_cached: whether the record was read from the cache.
    """

    job: Job
    record: Record
    num_done: int
    num_jobs: int
    was_cached: bool


def key_of(job: Job, pesto: str) -> dict[str, Any]:
    """Return all that a run's search depends on; `pesto` is the `pesto_version`."""
    effort = asdict(job.effort)
    if not CONTENDERS[job.contender].uses_time:
        effort = {"seed": job.effort.seed}
    return {
        "pesto": pesto,
        "model": job.model.name,
        "profile": job.model.content_hash,
        "machine": asdict(job.machine),
        "contender": job.contender,
        "effort": effort,
        "num_nodes": job.num_nodes,
        "congestion": job.congestion,
        "max_parts": job.max_parts,
        "local_batch_norm": job.local_batch_norm,
        "trained_on": [model.content_hash for model in job.trained_on],
    }


def shared_runs(jobs: Iterable[Job]) -> Mapping[Job, Job]:
    """Return the run of each job; jobs that need other fields of the same record share a run."""
    jobs_of = defaultdict[Job, list[Job]](list)
    for job in jobs:
        search = replace(job, with_orders=False, with_timeline=False, with_decisions=False)
        jobs_of[search].append(job)
    found = dict[Job, Job]()
    for search, some in jobs_of.items():
        run = replace(
            search,
            with_orders=any(job.with_orders for job in some),
            with_timeline=any(job.with_timeline for job in some),
            with_decisions=any(job.with_decisions for job in some),
        )
        found |= dict.fromkeys(some, run)
    return found


def run_jobs(
    jobs: Iterable[Job],
    folder: Path,
    processes: int = 1,
    on_done: Callable[[JobDone], None] = lambda done: None,
) -> Records:
    """Return the record of each job: a cached one, or that of a new run, which is then cached.

    Jobs that need other fields of the same record share a run.
    """
    from joblib import Parallel, delayed

    version, run_of = pesto_version(), shared_runs(jobs)
    keys = {job: key_of(job, version) for job in dict.fromkeys(run_of.values())}
    records: dict[Job, Record] = {}

    def finish(job: Job, record: Record, was_cached: bool) -> None:
        records[job] = record
        on_done(JobDone(job, record, len(records), len(keys), was_cached))

    left = []
    for job, key in keys.items():
        record = cached(folder, key)
        if record is None or not job.is_answered_by(record):
            left.append(job)
        else:
            finish(job, record, True)
    tasks = (delayed(run_and_cache)(job, keys[job], folder) for job in left)
    with warnings.catch_warnings():
        # joblib replaces a process whose memory has grown by 300 MB, as that of TensorFlow does,
        # and repeats no run; but it warns, if runs are left.
        warnings.filterwarnings("ignore", "A worker stopped while some jobs were given")
        for job, record in Parallel(n_jobs=processes, return_as="generator_unordered")(tasks):
            finish(job, record, False)
    return {job: records[run] for job, run in run_of.items()}


def path_of(folder: Path, key: Mapping[str, Any]) -> Path:
    """Return the file of a run: model and contender in readable form, and a hash of its key."""
    words = re.sub(r"[^A-Za-z0-9-]+", "_", f"{key['model']}.{key['contender']}")
    return folder / f"{words}.{sha256(json.dumps(key, sort_keys=True).encode())[:16]}.json"


def cached(folder: Path, key: Mapping[str, Any]) -> Record | None:
    """Return the cached record with this key; None if there is no file, or it is damaged."""
    path = path_of(folder, key)
    if not path.exists():
        return None
    try:
        record = parse_json(path, read_bytes(path), FORMAT, "run of pesto bench", Record)
    except BadInputError:
        return None
    return record if record.key == key else None


def run_and_cache(job: Job, key: Mapping[str, Any], folder: Path) -> tuple[Job, Record]:
    """Run a job and write its record to its file."""
    record = run_job(job, key)
    value = {"format": FORMAT, "version": 1, **record.model_dump(mode="json")}
    write_json(path_of(folder, key), value)
    return job, record


def run_job(job: Job, key: Mapping[str, Any]) -> Record:
    """Solve the problem of a job with its contender; return the record."""
    prepare(job.contender)
    problem = _problem(job, job.model)
    about: dict[str, Any] = {"key": dict(key), "num_ops": problem.num_ops}
    limits = Limits(**asdict(job.effort))
    if not CONTENDERS[job.contender].uses_time:
        limits = replace(limits, time_limit_s=ENDLESS_S)  # baselines have no time limit
    strategy = with_parameters(
        CONTENDERS[job.contender].strategy, num_nodes=job.num_nodes, congestion=job.congestion
    )
    others = [_problem(job, model) for model in job.trained_on]
    try:
        with trained_on(others, strategy, limits) as start:
            watch = Watch()
            began_s, began_cpu_s = time.perf_counter(), time.process_time()
            context = Context(limits, on_progress=watch.progress, on_reward=watch.reward)
            solution = start.strategy(problem, context)
    except EnvironmentFailedError:
        raise  # the next call may succeed, so it is no result
    except PestoError as error:
        return Record(**about, refused=str(error))
    took_s, cpu_s = time.perf_counter() - began_s, time.process_time() - began_cpu_s
    result = judged(job.contender, solution, took_s)
    schedule, solved = result.schedule, solution.problem
    peaks = zip(problem.machine.devices, schedule.peak_bytes.tolist(), strict=True)
    return Record(
        **about,
        step_us=result.makespan_us,
        bound_us=result.lower_bound_us,
        shortfall_bytes=int(shortfall_bytes(problem, schedule).sum()),
        peak_bytes={device.name: peak for device, peak in peaks},
        took_s=took_s,
        cpu_s=cpu_s,
        orders_us=_orders_us(solved, schedule) if job.with_orders else {},
        timeline=timeline(solved, schedule) if job.with_timeline else {},
        decisions=decisions_of(solution) if job.with_decisions else None,
        learning=watch.learning(start),
    )


def _problem(job: Job, model: BenchModel) -> Problem:
    """Return the problem of a model under the conditions of a job."""
    problem = job.machine.applied(model.profile().problem)
    if job.max_parts is not None:
        problem = problem.limited(job.max_parts)
    if job.local_batch_norm:
        problem = replace(problem, local=frozenset({Local.BATCH_NORM}))
    return problem


def _orders_us(problem: Problem, schedule: Schedule) -> dict[str, float]:
    simulator = Simulator(problem)
    return {name: order(simulator, schedule.device).makespan_us for name, order in ORDERS.items()}
