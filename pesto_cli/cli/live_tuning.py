"""`run SCRIPT --tune`: a script whose first steps choose the placement of the others."""

import os
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from pesto_cli.cli.activity import connected, notes_of_profiles
from pesto_cli.cli.measured import check_as_planned, show_runs
from pesto_cli.cli.output import check_output, echo_json
from pesto_cli.cli.searches import compile_before
from pesto_cli.cli.tuning import Shown, leave_if_early, tuning_json


def run_tuned(
    script: Path, arguments: Sequence[str], machine: str, *, verify: bool, **options: Any
) -> None:
    """Run a script, tune its placement in its first steps, and show the other steps.

    The arguments are those of `run`.
    """
    from pesto_cli.report.runs import RunRow, runs_json

    training = _trained(script, arguments, machine, **options)
    found, rest = training.tuned, training.rest
    rows = []
    if rest is not None:
        predicted_us = found.placement.predicted["step_us"]
        rows = [RunRow(found.choice.answer, rest.times, predicted_us)]
    if options["as_json"]:
        record = {**tuning_json(found), "rest": None}
        if rest is not None:
            record["rest"] = {**runs_json(rows)[0], "verification": asdict(rest.verification)}
        echo_json(record)
    elif rows and not options["quiet"]:
        show_runs(rows, f"{script.name} on {machine}, after the tuning", "")
    if verify and rest is not None:
        check_as_planned(found.choice.answer, rest.verification, options["quiet"])


def _trained(
    script: Path,
    arguments: Sequence[str],
    machine: str,
    *,
    steps: int,
    output: Path | None,
    profile: Path | None,
    time_limit: float,
    seed: int,
    open_ports: bool,
    as_json: bool,
    quiet: bool,
) -> Any:
    """Return the `api.TunedTraining`; the placement is written before the training goes on."""
    from pesto_cli import api

    if output is not None:
        check_output(output, script, profile)
    priced = None if profile is None else api.read_profile(profile)
    limits = api.Limits(seed=seed, workers=os.cpu_count() or 1)
    shown = Shown(as_json or quiet, quiet)

    def keep(found: Any) -> None:
        if output is not None:
            api.write_placement(output, found.placement)
        if not as_json:
            shown.end(found, as_json=False)
        elif found.ended != "done":
            echo_json({**tuning_json(found), "rest": None})
        leave_if_early(found, output)

    compile_before(quiet)
    with (
        shown.stoppable() as stop,
        connected(machine, open_ports, quiet) as cluster,
        notes_of_profiles(quiet),
    ):
        return api.tune_script(
            script,
            arguments,
            cluster,
            steps=steps,
            time_limit_s=time_limit,
            profile=priced,
            limits=replace(limits, stop=stop),
            on_round=shown.round,
            on_tuned=keep,
            watch=shown.watch(),
        )
