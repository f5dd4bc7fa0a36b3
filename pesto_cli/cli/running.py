"""`run` and `worker`: run steps on real devices."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from shlex import join
from typing import Any

import click

from pesto_cli.cli.activity import activity, connected, searching
from pesto_cli.cli.choices import STRATEGIES, ChoiceOption
from pesto_cli.cli.live_tuning import run_tuned
from pesto_cli.cli.measured import check_as_planned, show_runs
from pesto_cli.cli.options import (
    FOLDER_SUFFIX,
    PATH,
    check_script,
    given_options,
    json_option,
    listed,
    live_options,
    quiet_option,
    seed_option,
    time_limit_option,
)
from pesto_cli.cli.output import echo_json
from pesto_cli.errors import BadInputError, about, did_you_mean


@click.command(short_help="Run steps of GRAPH on real devices, and verify them.")
@click.argument("graph", type=PATH)
@click.argument("arguments", nargs=-1, metavar="[-- ARGS...]")
@click.option(
    "-m", "--machine", required=True, help="local-workers:N, local-gpus or a cluster file (TOML)."
)
@click.option("--placement", type=PATH, help="Apply this placement to GRAPH.")
@click.option(
    "--compare",
    cls=ChoiceOption,
    choices=STRATEGIES,
    metavar="A,B,...",
    help="Strategies and placement files, whose steps are run alternately.",
)
@click.option(
    "--profile",
    type=PATH,
    help="A profile of GRAPH on this machine, to solve and to predict step times.",
)
@click.option(
    "--tune",
    type=click.IntRange(min=1),
    metavar="STEPS",
    help="Choose the placement of a script by the first STEPS steps of its training.",
)
@click.option("-o", "--output", type=PATH, help="With --tune: where to write the placement.")
@live_options(steps=50)
@click.option("--verify", is_flag=True, help="Fail if TensorFlow deviates from the placement.")
@time_limit_option(
    "Time limit of each strategy's search; with --tune, of the searches of each round."
)
@seed_option
@json_option
@quiet_option()
def run(
    graph: Path,
    arguments: tuple[str, ...],
    machine: str,
    placement: Path | None,
    compare: str | None,
    profile: Path | None,
    tune: int | None,
    output: Path | None,
    steps: int,
    warm_up: int,
    feeds: str | None,
    verify: bool,
    time_limit: float,
    seed: int,
    open_ports: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Run steps of GRAPH on real devices, and compare their time with the prediction.

    GRAPH is an exported graph with --placement or --compare, or a graph placed by `pesto apply`. It
    can also be a script that trains by Keras's fit or by sessions of TensorFlow 1: the script runs
    with ARGS, and the placement is applied to its training step. With --tune, the first steps of
    its sessions choose the placement.
    """
    from pesto_cli import api
    from pesto_cli.report.runs import RunRow, runs_json
    from pesto_cli.runtime.feeds import source_file

    options = {"--compare": compare, "--profile": profile, "--feeds": feeds}
    options |= {"--placement": placement, "--output": output, **given_options("steps", "warm_up")}
    _check_script(graph, arguments, tune, options)
    if tune is not None:
        run_tuned(
            graph,
            arguments,
            machine,
            steps=tune,
            output=output,
            profile=profile,
            time_limit=time_limit,
            seed=seed,
            open_ports=open_ports,
            as_json=as_json,
            quiet=quiet,
            verify=verify,
        )
        return
    names = _names(compare, placement, profile)
    if feeds is not None:
        source_file(feeds)
    meta, is_unplaced = None, False
    if graph.suffix != ".py":
        meta, is_unplaced = _checked_meta(graph, bool(names), verify, quiet)
    priced = None if profile is None else api.read_profile(profile)
    files = [name for name in names if compare is None or name not in api.STRATEGIES]
    given = {name: api.read_placement(name) for name in files}
    with connected(machine, open_ports, quiet) as cluster:
        if priced is not None:
            api.check_same_machine(priced, cluster.machine)
        limits = api.Limits(time_limit_s=time_limit, seed=seed, workers=os.cpu_count() or 1)
        chosen = [given.get(name) or _solved(name, priced, limits, quiet) for name in names]
        chosen = chosen or [None]
        measured = {"steps": steps, "warm_up": warm_up, "feeds": feeds}
        found = _ran(graph, arguments, cluster, meta, chosen, quiet, **measured)
    rows = [
        RunRow(name, real.times, None if placed is None else api.predicted_us(placed, priced))
        for name, placed, real in zip(names or [graph.name], chosen, found, strict=True)
    ]
    if as_json:
        records = runs_json(rows)
        for record, real in zip(records, found, strict=True):
            record["verification"] = asdict(real.verification)
        echo_json(records)
    elif not quiet:
        remark = "" if names or meta is None else _no_prediction(graph, machine, is_unplaced)
        show_runs(rows, f"{graph.name} on {machine}", remark)
    if verify:
        for row, real in zip(rows, found, strict=True):
            check_as_planned(row.name, real.verification, quiet)


def _ran(
    graph: Path,
    arguments: tuple[str, ...],
    cluster: Any,
    meta: Any,
    placed: Sequence[Any],
    quiet: bool,
    **measured: Any,
) -> Any:
    """Run a script under its placement, or steps of a graph under each placement."""
    from pesto_cli import api
    from pesto_cli.report.counts import count_text
    from pesto_cli.runtime.scripts import run_script_on

    if meta is None:
        with activity(f"running {graph}", quiet):
            return [cluster.call(run_script_on, graph, arguments, placed[0])]
    times = "" if len(placed) == 1 else f" of each of {len(placed)} placements, alternately"
    steps = count_text(measured["steps"], "step")
    with activity(f"running {steps} of {graph.name}{times}", quiet):
        return api.run_steps(meta, cluster, placed, **measured)


def _checked_meta(graph: Path, has_plans: bool, verify: bool, quiet: bool) -> tuple[Any, bool]:
    """Return the graph, and whether neither the graph nor a placement sets any device."""
    from pesto_cli import api
    from pesto_cli.runtime.comparison import devices_in_graph

    with activity(f"reading {graph}", quiet):
        meta = api.read_meta_graph(graph)
    with about(graph):
        is_unplaced = not has_plans and not devices_in_graph(meta)
    if verify and is_unplaced:
        raise BadInputError(
            f"--verify: {graph} sets no device; a placed graph, or --placement, was expected."
        )
    return meta, is_unplaced


def _no_prediction(graph: Path, machine: str, is_unplaced: bool) -> str:
    """Return a remark on a graph that ran as it is: why there is no predicted step time."""
    if is_unplaced:
        return (
            f"{graph} is not placed: TensorFlow chose the device of every op, and ran ops in any "
            "order, several at once. Use --placement or --compare to run it with a placement."
        )
    folder = graph.with_suffix(FOLDER_SUFFIX)
    files = [folder / name for name in ("graph.meta", "placement.json")]
    if not all(file.exists() for file in files):
        files = [Path("GRAPH"), Path("PLACEMENT")]
    command = ["pesto", "run", files[0], "-m", machine, "--placement", files[1]]
    return (
        f"{graph} contains its placement, but no prediction. To compare with the prediction, run "
        f"the graph and its placement from two files: {join(map(str, command))}"
    )


def _names(compare: str | None, placement: Path | None, profile: Path | None) -> list[str]:
    """Return the strategies and placement files to run, in the order of the table.

    The list is empty if the graph runs as it is.

    Raises:
        BadInputError: a name is neither of both, or a strategy is given without a profile.
    """
    from pesto_cli import api

    if compare is None:
        return [] if placement is None else [str(placement)]
    if placement is not None:
        raise BadInputError(
            f"--placement does not go with --compare; add the placement to --compare: --compare "
            f"{compare},{placement}."
        )
    strategies = ", ".join(api.STRATEGIES)
    names = listed("--compare", compare, f"some of {strategies}, and placement files")
    for name in names:
        if name not in api.STRATEGIES and not Path(name).exists():
            raise BadInputError(
                f"--compare {name!r}: neither a strategy nor a file; one of {strategies}, or a "
                f"placement, was expected.{did_you_mean(name, api.STRATEGIES)}"
            )
        if name in api.STRATEGIES and profile is None:
            raise BadInputError(
                f"--compare {name}: a strategy needs op times; a profile of the graph on this "
                "machine was expected: --profile PROFILE."
            )
    return names


def _check_script(
    script: Path, arguments: tuple[str, ...], tune: int | None, options: Mapping[str, object]
) -> None:
    """Refuse options that a script or a graph does not take, and arguments for a graph.

    options: those that are refused for a script, and `--placement` and `--output`, by name.
    """
    check_script(script, arguments)
    given = {option: value for option, value in options.items() if value is not None}
    if script.suffix != ".py":
        if tune is not None:
            raise BadInputError(
                f"--tune is for a script (.py), whose training it uses, but {script} is a graph: "
                "tune it by pesto tune."
            )
    elif tune is None and "--placement" not in given:
        raise BadInputError(
            f"{script} is a script, which needs --placement PLACEMENT or --tune STEPS; add one."
        )
    elif tune is not None and "--placement" in given:
        raise BadInputError("--tune finds a placement, so --placement does not go with it.")
    if tune is None and "--output" in given:
        raise BadInputError("--output is for the placement that --tune finds; add --tune STEPS.")
    allowed = {"--placement", "--output"} | ({"--profile"} if tune is not None else set())
    refused = [option for option in given if option not in allowed]
    if script.suffix == ".py" and refused:
        raise BadInputError(
            f"{refused[0]} does not go with a script, which has its own steps and data; export its "
            "graph (pesto export --capture) and run the graph."
        )


@click.command()
@click.argument("cluster", type=PATH)
@click.option(
    "--task", type=click.IntRange(min=0), required=True, help="The task's number in its job."
)
@click.option("--job", default="worker", show_default=True, help="The task's job.")
def worker(cluster: Path, task: int, job: str) -> None:
    """Run a task of a CLUSTER file (TOML) on this host, until Ctrl-C.

    Anyone who can connect to its port can run programs as this user.
    """
    from pesto_cli.cluster import serve

    serve(cluster, task, job)


def _solved(strategy: str, priced: Any, limits: Any, quiet: bool) -> Any:
    """Return the placement that a strategy finds."""
    from pesto_cli import api

    with searching(strategy, api.Context(limits=limits), quiet) as context:
        return api.placement(priced, api.solve(priced, strategy, context))
