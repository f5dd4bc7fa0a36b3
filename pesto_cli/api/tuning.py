"""Tuning: a plan that is chosen by measured steps."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import pesto_cli
from pesto_cli.api.checking import check_same_machine
from pesto_cli.api.costs import profile_by_run
from pesto_cli.api.reuse import as_recorded
from pesto_cli.apply import PLACED
from pesto_cli.cluster import Cluster
from pesto_cli.data.limits import Limits
from pesto_cli.errors import BadInputError, about
from pesto_cli.files import CommFit, Profile, TuningLog, read_tuning_log, write_tuning_log
from pesto_cli.graphdef.read import read_step
from pesto_cli.profile.comm.chains import Effort
from pesto_cli.profile.comm.transfers import (
    USUAL,
    TimedTransfers,
    links_to_time,
    timed_transfers,
)
from pesto_cli.runtime.comparison import compared
from pesto_cli.strategies.warm_up import warm_up
from pesto_cli.tuning.clock import Clock, Phase
from pesto_cli.tuning.tuned import Tuned, tuned
from pesto_cli.tuning.watch import Watch

# Steps of the profile, as many with a trace as without. A short time limit allows fewer of them and
# fewer turns of `pesto comm`: one for so many seconds, and at least the fewest.
PROFILE_STEPS, SECONDS_OF_A_PROFILE_STEP, FEWEST_STEPS = 30, 20.0, 3
SECONDS_OF_A_TURN, FEWEST_TURNS = 60.0, 10
# The share of the time limit for the steps of the profile, for those beside other devices, and for
# parts that run alone; for each of them.
PROFILE_SHARE = 0.1
# The share of the time limit for all links, and the usual time of a link.
LINKS_SHARE, SECONDS_OF_A_LINK = 0.15, 75.0


def tune(
    meta: Any,
    cluster: Cluster,
    *,
    time_limit_s: float = 600.0,
    profile: Profile | None = None,
    comm: list[CommFit] | None = None,
    parts: Sequence[int] | None = None,
    log: Path | str | None = None,
    feeds: str | None = None,
    limits: Limits | None = None,
    constrained: Callable[[Profile], Profile] = lambda profile: profile,
    settings: Mapping[str, Any] | None = None,
    on_round: Callable[[TuningLog], None] = lambda log: None,
    watch: Watch | None = None,
) -> Tuned:
    """Find a plan whose measured steps are the fastest of all that were tried.

    The links and the ops are measured first, unless they are given. Then rounds follow: searches
    for plans of several forms, steps of the best ones by turns, and a correction of the costs. A
    final round decides. The answer is never slower than `single`, `expert` and `data-parallel`, as
    measured in the final round.

    Args:
        meta: a MetaGraphDef, as `export` returns it.
        cluster: the real devices, from `connected`.
        time_limit_s: seconds from the call to the end of the final round. At least one round runs.
        profile: a profile of this graph on these devices; by default the graph is profiled.
        comm: communication fits for the links; by default transfers are timed.
        parts: the numbers of parts whose prices are measured; by default as many parts as there are
            devices, and twice as many. If it is empty, ops stay whole.
        log: a file that is written after every round. If it exists, the tuning continues from it.
        feeds: the data of the feeds, `FILE.npz` or `script.py:function`.
        limits: seed, workers, and the event that stops the tuning; its time limit is not used.
        constrained: adds constraints to the measured profile, as `constrain` does.
        settings: names these constraints in the log, which continues only with equal ones.
        on_round: receives the log after each round.
        watch: is told what goes on.

    Raises:
        BadInputError: the profile or the log is of another graph, of other devices, or the log has
            other settings.
        EnvironmentFailedError: a device failed before the first round had ended.
        KeyboardInterrupt: the tuning was stopped before the first round had ended.

    Example:
        >>> with connected("local-workers:2") as cluster:
        ...     found = tune(export("zoo:RNNLM-tiny"), cluster, time_limit_s=60)
        >>> save("tuned.placement.json", found.placement)
    """
    _check_unplaced(meta)
    warm_up()
    clock, watch = Clock(time_limit_s), watch or Watch()
    asked = as_recorded(settings or {})
    known = _earlier(log, meta, cluster, asked, watch)
    if known is None:
        if profile is None:
            profile = measured_profile(meta, cluster, comm, parts, feeds, clock, watch)
        check_same(profile, meta, cluster)
        provenance = {"pesto_version": pesto_cli.__version__, "settings": asked}
        known = TuningLog(profile, provenance=provenance)
        _write(log, known)  # the measurements are kept if the constraints are refused
    known = replace(known, profile=constrained(known.profile))

    def ended(latest: TuningLog) -> None:
        _write(log, latest)
        on_round(latest)

    measure = partial(compared, meta, cluster, feeds=feeds)
    return tuned(known, measure, clock, limits or Limits(), ended, watch)


def _earlier(
    log: Path | str | None,
    meta: Any,
    cluster: Cluster,
    settings: Mapping[str, Any],
    watch: Watch,
) -> TuningLog | None:
    """Return the log of an earlier tuning of this graph; None if there is none."""
    if log is None or not Path(log).exists():
        return None
    known = read_tuning_log(log)
    with about(log):
        check_same(known.profile, meta, cluster)
        _check_hosts(known.profile, cluster)
        if known.candidates:
            _check_settings(known.settings, settings)
        else:  # no candidate breaks other constraints, but the prices of parts are measured
            _check_settings(*(_of_parts(each) for each in (known.settings, settings)))
            known = replace(known, provenance={**known.provenance, "settings": settings})
    watch.note(
        f"{log} exists: its profile is used; of its candidates, the best one runs again in each "
        "round, and the fastest ones in the final round, for comparison."
    )
    return known


def _check_hosts(profile: Profile, cluster: Cluster) -> None:
    """Refuse to continue a log if a device is on another host now, as its times are of that one."""
    before = {each.name: each.host for each in profile.problem.machine.devices}
    for each in cluster.machine.devices:
        if each.host != before[each.name]:
            raise BadInputError(
                f"the tuning began with {each.name} on host {before[each.name]!r}, and it is on "
                f"{each.host!r} now; the same hosts in the same order were expected: begin with "
                "another log."
            )


def _of_parts(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the settings that the profile depends on."""
    return {key: value for key, value in settings.items() if key in ("parts", "whole")}


def _check_settings(before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuse to continue a log under other constraints: its candidates may break them."""
    differing = sorted(key for key in {*before, *now} if before.get(key) != now.get(key))
    if differing:
        key = differing[0]
        raise BadInputError(
            f"the tuning began with {key} = {before.get(key)}, and {key} = {now.get(key)} is asked "
            "for; the same options were expected: give them again, or begin with another log."
        )


def _write(path: Path | str | None, log: TuningLog) -> None:
    if path is not None:
        write_tuning_log(path, log)


def _check_unplaced(meta: Any) -> None:
    if PLACED in meta.collection_def:
        raise BadInputError(
            "the graph is placed already, and its control dependencies would restrict every plan; "
            "a graph that pesto export wrote was expected."
        )


def check_same(profile: Profile, meta: Any, cluster: Cluster) -> None:
    """Raise BadInputError unless a profile is of this graph and of these devices."""
    step = read_step(meta)
    if profile.graph_hash not in (None, step.graph_hash) or (
        profile.problem.graph.names != step.graph.names
    ):
        raise BadInputError(
            "the profile is of another graph than the one that runs; a profile of this graph was "
            "expected (for pesto tune: begin again with another log)."
        )
    check_same_machine(profile, cluster.machine)


def measured_profile(
    meta: Any,
    cluster: Cluster,
    comm: list[CommFit] | None,
    parts: Sequence[int] | None,
    feeds: str | None,
    clock: Clock,
    watch: Watch,
) -> Profile:
    """Measure the links, unless `comm` has them, and profile the graph."""
    num_devices = cluster.machine.num_devices
    if num_devices < 2:
        raise BadInputError(
            "the machine has one device, so there is nothing to choose; two or more devices were "
            "expected, as in local-workers:2."
        )
    if comm is None:
        with clock.phase(Phase.LINKS), watch.during(Phase.LINKS, "timing transfers"):
            comm = _fitted_links(cluster, clock.limit_s)
    if parts is None:
        parts = (num_devices, 2 * num_devices)
    wanted = clock.limit_s / SECONDS_OF_A_PROFILE_STEP
    steps = int(np.clip(wanted, FEWEST_STEPS, PROFILE_STEPS))
    what = f"running up to {steps} steps with a trace and as many without, then parts of ops alone"
    with clock.phase(Phase.PROFILE), watch.during(Phase.PROFILE, what):
        return profile_by_run(
            meta,
            cluster,
            steps=steps,
            feeds=feeds,
            limit_s=PROFILE_SHARE * clock.limit_s,
            comm=comm,
            parts=parts,
        )


def _fitted_links(cluster: Cluster, limit_s: float) -> list[CommFit]:
    """Time all links in their share of a time limit, and fit lines to the times.

    If larger transfers took less time, something else ran beside them: all links are timed again.

    Raises:
        BadInputError: larger transfers took less time again.
    """
    with suppress(BadInputError):
        return _timed_links(cluster, limit_s).fits()
    return _timed_links(cluster, limit_s).fits()


def _timed_links(cluster: Cluster, limit_s: float) -> TimedTransfers:
    """Time all links in their share of a time limit."""
    num_links = sum(map(len, links_to_time(cluster.machine).values()))
    share = min(1.0, LINKS_SHARE * limit_s / (num_links * SECONDS_OF_A_LINK))
    turns = int(np.clip(limit_s / SECONDS_OF_A_TURN, FEWEST_TURNS, USUAL.num_turns))
    return timed_transfers(cluster, effort=Effort(turns, share))
