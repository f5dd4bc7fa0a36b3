"""A runner: from a model for one device to its training on all devices of a machine."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pesto_cli.api.arguments import expect
from pesto_cli.api.charts import report
from pesto_cli.api.files import save
from pesto_cli.api.placing import placement as placement_of
from pesto_cli.api.placing import solve
from pesto_cli.api.tuning import measured_profile, tune
from pesto_cli.cluster import Cluster, connected
from pesto_cli.data.plan import Plan
from pesto_cli.data.steps import StepTimes
from pesto_cli.errors import BadInputError, EnvironmentFailedError
from pesto_cli.files import CommFit, PlacementFile, Profile, read_placement
from pesto_cli.graphdef.export import export
from pesto_cli.runtime import training
from pesto_cli.runtime.comparison import device_names, planned_run
from pesto_cli.tuning.clock import Clock
from pesto_cli.tuning.tuned import Ended
from pesto_cli.tuning.watch import Watch

Source = str | Path | Callable[[], Any]
"""What `pesto export` takes, or a function at the top of a file: the same as `FILE.py:NAME`."""


@dataclass(frozen=True, eq=False)
class Runner:
    """A training on real devices.

    placement: the placement under which the step runs; its `plan` says which ops are split.
    profile: the costs from which it was found; None if the placement was given.
    """

    placement: PlacementFile
    profile: Profile | None
    _cluster: Cluster = field(repr=False)
    _key: str = field(repr=False)

    @property
    def plan(self) -> Plan:
        """Which ops are split, and how."""
        return self.placement.plan

    def run(self, steps: int) -> StepTimes:
        """Train for some steps; return their times and losses.

        Raises:
            BadInputError: the feeds do not fit, or TensorFlow cannot run the step.
            EnvironmentFailedError: a device failed.
        """
        if steps < 1:
            raise BadInputError(f"{steps} steps; 1 or more were expected.")
        ran = self._cluster.call(training.train, self._key, steps)
        losses = tuple(each.loss for each in ran if each.loss is not None)
        return StepTimes(np.array([[each.us for each in ran]]), losses, {})

    def save(self, prefix: Path | str) -> None:
        """Write a checkpoint. The program can read it without pesto, too.

        prefix: the path of the checkpoint, on the hosts of the devices, without .index.
        """
        self._cluster.call(training.save, self._key, _absolute(prefix))

    def restore(self, prefix: Path | str) -> None:
        """Read a checkpoint that `save` or the program without pesto wrote."""
        self._cluster.call(training.restore, self._key, _absolute(prefix))

    def report(self, path: Path | str) -> None:
        """Write an HTML page that shows the placement.

        Raises:
            BadInputError: the placement was given, so its costs are not known.
        """
        if self.profile is None:
            raise BadInputError(
                "the runner was given a placement and has no profile; a report needs one: use "
                "pesto.report(profile, {'mine': placement})."
            )
        save(path, report(self.profile, {"runner": self.placement}))


@contextmanager
def runner(
    source: Source,
    machine: str | Cluster,
    inputs: Source | None = None,
    *,
    time_limit_s: float = 60.0,
    tuned: bool = False,
    comm: list[CommFit] | None = None,
    placement: PlacementFile | Path | str | None = None,
) -> Iterator[Runner]:
    """Place a model for one device on a machine, and open a session that trains it there.

    The links and the ops are measured first, and `pesto` finds a placement, robust and with split
    ops. If `tuned`, the placement is chosen by measured steps (`tune`). HeteroG (Yi et al., CoNEXT
    '20, Section 5) has such a runner.

    Args:
        source: a graph in the style of TensorFlow 1, a `tf.function` or a Keras model: anything
            that `export` takes, or a function at the top of a file that returns it.
        machine: `local-workers:N`, `local-gpus`, a cluster file, or a cluster from `connected`.
        inputs: the data of the feeds: `FILE.npz`, `script.py:function`, or a function at the top of
            a file, which returns a dict of arrays or an iterable of dicts. By default the data is
            small and valid.
        time_limit_s: of the search; of all measurements and searches if `tuned`.
        tuned: choose the placement by measured steps.
        comm: communication fits for the links; by default transfers are timed.
        placement: a placement of this graph on this machine. Then nothing is measured.

    Raises:
        BadInputError: the source, the inputs or the placement do not fit.
        EnvironmentFailedError: a device does not exist or failed.

    Example:
        >>> with runner("train.py:build", "local-workers:2", "train.py:batches") as training:
        ...     losses = training.run(steps=100).losses
        ...     training.save("model/checkpoint")
    """
    expect("time_limit_s", time_limit_s, float | int)
    meta = export(_spec("the source", source))
    feeds = None if inputs is None else _spec("the inputs", inputs)
    with ExitStack() as stack:
        cluster = machine
        if not isinstance(cluster, Cluster):
            cluster = stack.enter_context(connected(str(machine)))
        if placement is None:
            profile, placed = _placed(meta, cluster, feeds, comm, time_limit_s, tuned)
        else:
            profile = None
            placed = (
                placement if isinstance(placement, PlacementFile) else read_placement(placement)
            )
        step = planned_run(meta, placed, cluster.call(device_names)).meta
        key = cluster.call(training.begin, step, feeds)
        try:
            yield Runner(placed, profile, cluster, key)
        finally:
            with suppress(EnvironmentFailedError):  # the devices are gone, and the session too
                cluster.call(training.end, key)


def _placed(
    meta: Any,
    cluster: Cluster,
    feeds: str | None,
    comm: list[CommFit] | None,
    time_limit_s: float,
    tuned: bool,
) -> tuple[Profile, PlacementFile]:
    if tuned:
        found = tune(meta, cluster, time_limit_s=time_limit_s, comm=comm, feeds=feeds)
        if found.error is not None:
            raise found.error
        if found.ended is Ended.INTERRUPTED:
            raise KeyboardInterrupt
        return found.costs.profile, found.placement
    profile = measured_profile(meta, cluster, comm, None, feeds, Clock(time_limit_s), Watch())
    result = solve(profile, "pesto", time_limit_s=time_limit_s, robust=True)
    return profile, placement_of(profile, result)


def _spec(what: str, source: Source) -> str:
    """Return a source as `export` and `--feeds` take it.

    Raises:
        BadInputError: it is a function that another process cannot find.
    """
    if not callable(source):
        return str(source)
    name = getattr(source, "__qualname__", "")
    try:
        path = inspect.getsourcefile(source)
    except TypeError:
        path = None
    if path is None or not Path(path).is_file() or not name.isidentifier():
        raise BadInputError(
            f"{what}: {source!r} is not a function at the top of a file; such a function was "
            "expected, because another process loads its file: move it to a .py file."
        )
    return f"{path}:{name}"


def _absolute(prefix: Path | str) -> str:
    """Return the absolute path of a checkpoint, because workers may run in another folder."""
    return str(Path(prefix).absolute())
