"""Tuning during the training of a script: its first steps choose the placement of the others."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pesto_cli
from pesto_cli.api.tuning import check_same, measured_profile
from pesto_cli.cluster import Cluster
from pesto_cli.data.limits import Limits
from pesto_cli.errors import BadInputError, EnvironmentFailedError
from pesto_cli.files import CommFit, Profile, TuningLog
from pesto_cli.graphdef.fetches import step_protos
from pesto_cli.graphdef.programs.capture import capture
from pesto_cli.graphdef.self_contained import DEQUEUES
from pesto_cli.runtime import live_training
from pesto_cli.runtime.comparison import RealRun
from pesto_cli.runtime.feeds import write_feeds
from pesto_cli.strategies.warm_up import warm_up
from pesto_cli.tuning.budget import StepBudget
from pesto_cli.tuning.clock import Clock, Phase
from pesto_cli.tuning.rounds import Measure
from pesto_cli.tuning.tuned import Ended, Tuned, tuned
from pesto_cli.tuning.watch import Watch

# The links and the ops are measured as for a tuning whose searches take this share of its time.
SEARCH_SHARE = 0.12


@dataclass(frozen=True, eq=False)
class TunedTraining:
    """A training that was tuned.

    tuned: what was found. rest: the steps after the tuning, under the placement that was found;
    None if there were none, or if the tuning ended early.
    """

    tuned: Tuned
    rest: RealRun | None


def tune_script(
    script: Path | str,
    arguments: Sequence[str],
    cluster: Cluster,
    *,
    steps: int = 200,
    time_limit_s: float = 60.0,
    profile: Profile | None = None,
    comm: list[CommFit] | None = None,
    parts: Sequence[int] | None = None,
    limits: Limits | None = None,
    on_round: Callable[[TuningLog], None] = lambda log: None,
    on_tuned: Callable[[Tuned], None] = lambda found: None,
    watch: Watch | None = None,
) -> TunedTraining:
    """Train a script in the style of TensorFlow 1, and tune its placement in its first steps.

    The links and the ops are measured first, on a copy of the step. Then the script runs. Its first
    steps run under several placements by turns, as `tune` runs them. Variables, optimiser slots and
    the positions of data sets are carried from the session of one placement to that of the next, so
    that each step is a step of the training. All later steps run under the placement that was
    measured to be the fastest.

    Args:
        script: the path of the script.
        arguments: those of the script.
        cluster: the real devices, from `connected`.
        steps: the number of training steps for the tuning, at least `StepBudget.fewest`.
        time_limit_s: seconds for the searches of each round.
        profile: a profile of the script's step on these devices; by default the step is profiled.
        comm: communication fits for the links; by default transfers are timed.
        parts: the numbers of parts whose prices are measured, as in `tune`.
        limits: seed, workers, and the event that stops the tuning.
        on_round: receives the log after each round.
        on_tuned: receives what was found, before the training goes on.
        watch: is told what goes on.

    Raises:
        BadInputError: the script fails, has no training step, or its state cannot be carried.
        ScriptEndedError: the script ended before the first round had ended.
        EnvironmentFailedError: a device failed before the first round had ended, or afterwards.

    Example:
        >>> with connected("local-workers:2") as cluster:
        ...     training = tune_script("train.py", ["--steps", "10000"], cluster)
    """
    if steps < StepBudget.fewest:
        raise BadInputError(
            f"{steps} steps for a tuning; at least {StepBudget.fewest} were expected, so that one "
            "round and the final round fit."
        )
    path = Path(script)
    warm_up()
    clock, watch = Clock(time_limit_s / SEARCH_SHARE), watch or Watch()
    with _captured(path, arguments) as (meta, feeds):
        if profile is None:
            profile = measured_profile(meta, cluster, comm, parts, feeds, clock, watch)
        check_same(profile, meta, cluster)
        known = TuningLog(profile, provenance={"pesto_version": pesto_cli.__version__})
    budget = StepBudget(steps, time_limit_s)
    with _started(path, arguments, cluster) as measure:
        found = tuned(known, measure, clock, limits or Limits(), on_round, watch, budget)
        on_tuned(found)
        if found.ended is not Ended.DONE:
            return TunedTraining(found, None)
        with watch.during(Phase.STEPS, f"running {path}"):
            rest = cluster.call(live_training.finish, found.placement)
    return TunedTraining(found, rest)


@contextmanager
def _started(path: Path, arguments: Sequence[str], cluster: Cluster) -> Iterator[Measure]:
    """Start a script, and yield the function that runs its steps; end it if it still runs."""
    cluster.call(live_training.begin, path, arguments)
    try:
        yield lambda placements, turns: cluster.call(live_training.steps, placements, turns)
    finally:
        with suppress(EnvironmentFailedError):  # the devices are gone, and the script too
            cluster.call(live_training.stop)


@contextmanager
def _captured(path: Path, arguments: Sequence[str]) -> Iterator[tuple[Any, str | None]]:
    """Yield the step of a script, and the source of its feeds."""
    found = capture(path, arguments)
    if found.is_of_model:
        raise BadInputError(
            f"{path}: the script trains by `fit` of a Keras model, whose variables cannot move to "
            "other devices during the training; a script that trains by sessions was expected: "
            "tune the step (pesto tune), and run the script with that placement (pesto run "
            "--placement)."
        )
    for node in step_protos(found.meta):
        if DEQUEUES.fullmatch(node.op):
            raise BadInputError(
                f"{path}: the step takes data from a queue, by {node.name!r} ({node.op}), whose "
                "state cannot be carried to the session of another placement; data sets or feeds "
                "were expected."
            )
    if not found.feeds:
        yield found.meta, None
        return
    with TemporaryDirectory() as folder:
        feeds = Path(folder) / "feeds.npz"
        write_feeds(feeds, found.feeds)
        yield found.meta, str(feeds)
