"""The steps of `pesto place`: each writes its file, or reuses an earlier one."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from pesto_cli.cli.activity import activity, notes_of_profiles, searching
from pesto_cli.cli.options import FOLDER_SUFFIX, file_of
from pesto_cli.cli.output import echo
from pesto_cli.cli.searches import context_from, made_by, stoppable
from pesto_cli.errors import BadInputError

# Steps that are measured on real devices: as many with a trace as without.
STEPS = 50


@dataclass
class Run:
    """The state of one call.

    folder: contains the files of the single steps.
    reused: names of the steps whose earlier results are still fresh.
    """

    folder: Path
    quiet: bool
    reused: list[str] = field(default_factory=list)

    def path(self, name: str) -> Path:
        """Return the path of a step's file."""
        return self.folder / name

    def tell(self, step: str, text: str, *, reused: bool = False) -> None:
        """Print a summary of a step to stderr."""
        if reused:
            self.reused.append(step)
            text += " (still fresh, reused)"
        if not self.quiet:
            echo(f"{step:<8} {text}", err=True)


@dataclass(frozen=True)
class Target:
    """The machine that the user has named.

    cluster: its real devices; None for a preset or a machine file.
    fits: links that `pesto comm` has measured, or None.
    """

    machine: Any
    cluster: Any
    fits: Any


def exported(run: Run, source: str, step: dict[str, Any]) -> Any:
    """Return the graph of the training step. A graph that export wrote is used as it is."""
    from pesto_cli import api
    from pesto_cli.apply import PLACED
    from pesto_cli.graphdef.fetches import fetch_names, init_names
    from pesto_cli.graphdef.training import untrained

    with activity(f"exporting {source}", run.quiet):
        meta = None if any(step.values()) else api.read_graph(source)
        if meta is None or not init_names(meta):
            meta = api.export(source, **step)
    if PLACED in meta.collection_def:
        raise BadInputError(
            f"{source} is a placed graph, whose control dependencies would restrict every other "
            "placement; the graph before it was placed was expected: after pesto place, it is "
            f"graph.meta in the folder next to the output ({file_of(source).stem}{FOLDER_SUFFIX})."
        )
    api.write_meta_graph(run.path("graph.meta"), meta)
    fetched = ", ".join(fetch_names(meta))
    run.tell("export", f"{len(meta.graph_def.node):,} nodes; fetches {fetched}")
    if not run.quiet and (remark := untrained(meta)):
        echo(remark, err=True)
    return meta


def profiled(run: Run, meta: Any, target: Target, what: str, parts: tuple[int, ...]) -> Any:
    """Return the profile, from its file if that is still fresh."""
    from pesto_cli import api
    from pesto_cli.files.comm import with_comm

    if target.cluster is None:
        source, price = "analytic", partial(api.profile, meta, target.machine)
    else:
        source, price = "run", partial(api.profile_by_run, meta, target.cluster, steps=STEPS)
    path = run.path("profile.json")
    linked = target.machine if target.fits is None else with_comm(target.machine, target.fits)
    profile = api.fresh_profile(path, meta, linked, source, parts)
    is_fresh = profile is not None
    if not is_fresh:
        with activity(f"profiling ops of {what}", run.quiet), notes_of_profiles(run.quiet):
            api.write_profile(path, price(comm=target.fits, what=what, parts=parts))
        profile = api.read_profile(path)
    run.tell("profile", _sizes(profile), reused=is_fresh)
    return profile


def _sizes(profile: Any) -> str:
    from pesto_cli import api
    from pesto_cli.report.summary import summarize
    from pesto_cli.report.times import time_text

    figures = summarize(profile.problem, api.critical_path_us(profile.problem))
    return (
        f"{figures.num_ops:,} ops on {profile.problem.num_devices} devices; work "
        f"{time_text(figures.work_us)}, critical path {time_text(figures.critical_path_us)}"
    )


def solved(
    run: Run,
    meta: Any,
    priced: Any,
    settings: dict[str, Any],
    record: Mapping[str, Any],
    robust: bool,
) -> Any:
    """Return the result of the search, or of the earlier placement if that is still fresh."""
    from pesto_cli import api
    from pesto_cli.data.result import SolveStatus

    path = run.path("placement.json")
    parameters = dict(sorted({**made_by("pesto", {"robust": robust}, settings), **record}.items()))
    earlier = api.earlier_placement(path)
    if earlier is not None and api.is_fresh_placement(earlier, meta, priced, parameters):
        run.tell("solve", "placement", reused=True)
        return api.earlier_result(earlier, priced)
    start = None if earlier is None else api.carry_over(priced, earlier)
    with stoppable() as stop:
        context = context_from(settings, stop, run.quiet)
        if earlier is not None and start is not None and start.num_by_name:
            context = replace(context, warm_start=start.placement, split_start=start.split_start)
            parameters["warm_start"] = earlier.file_hash
            run.tell(
                "solve", f"starts from the earlier placement: {start.share_by_name:.0%} of ops"
            )
        with searching("pesto", context, run.quiet) as watched:
            result = api.solve(priced, "pesto", watched, robust=robust)
    if result.status is SolveStatus.INTERRUPTED:
        parameters["time_limit"] = result.runtime_s  # a second call continues the search
    api.write_placement(path, api.placement(priced, result, parameters))
    return result


def applied(run: Run, meta: Any, placed: Any, output: Path, what: str) -> Any:
    """Write the placed graph, and return what was changed in it."""
    from pesto_cli import api
    from pesto_cli.apply import planned_changes, with_changes
    from pesto_cli.apply.split_variables import note_on_copies

    with activity(f"writing {output}", run.quiet):
        changes = planned_changes(meta, placed, what=what)
        api.write_meta_graph(output, with_changes(meta, changes))
    count = f"{len(changes.device):,} nodes placed"
    run.tell("apply", f"{count}, {changes.num_control_edges:,} control dependencies added")
    note = note_on_copies(placed.plan)
    if note is not None:
        run.tell("apply", note)
    return changes
