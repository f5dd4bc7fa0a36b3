"""`profile` and `comm`: the times of ops and transfers."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from pesto_cli.cli.activity import activity, connected, notes_of_profiles
from pesto_cli.cli.choices import SOURCES, ChoiceOption
from pesto_cli.cli.options import (
    PATH,
    given_options,
    json_option,
    live_options,
    machine_option,
    open_ports_option,
    output_option,
    parts_option,
    quiet_option,
)
from pesto_cli.cli.output import check_output, echo, echo_json, echo_text
from pesto_cli.errors import BadInputError


@click.command()
@click.argument("graph", type=PATH)
@machine_option
@output_option("the profile (.json or .json.gz)")
@click.option(
    "--source",
    cls=ChoiceOption,
    choices=SOURCES,
    help="Source of op times: {names}. csv and trace need a file, as in csv:FILE; run needs real "
    "devices.  [default: run on real devices, else analytic]",
)
@click.option("--comm", type=PATH, help="A fit by `pesto comm`, in place of the machine's links.")
@click.option("--cpu-offload", is_flag=True, help="Let GPU ops run on the CPU too.")
@parts_option("Add the times of parts of ops that are split into N parts, such as 2,4,8.")
@click.option("--plot", type=PATH, help="Draw the spread of measured op times (.svg, .png, .html).")
@live_options(steps=100)
@json_option
@quiet_option()
def profile(
    graph: Path,
    machine: str,
    output: Path,
    source: str | None,
    comm: Path | None,
    cpu_offload: bool,
    parts: tuple[int, ...],
    plot: Path | None,
    as_json: bool,
    quiet: bool,
    **live: Any,
) -> None:
    """Find the time of every op and transfer of GRAPH on a machine."""
    from pesto_cli import api
    from pesto_cli.report.charts import check_chart_path, write_chart
    from pesto_cli.report.layouts import print_layouts
    from pesto_cli.report.spread_plot import spread_chart
    from pesto_cli.report.summary import summarize
    from pesto_cli.report.tables import profile_table
    from pesto_cli.report.whole_ops import whole_ops_table

    measured = Path(source.partition(":")[2]) if source and ":" in source else None
    inputs = graph, comm, measured, Path(machine)
    check_output(output, *inputs)
    if plot is not None:
        check_chart_path(plot)
        check_output(plot, output, *inputs)
    with activity(f"reading {graph}", quiet):
        meta = api.read_meta_graph(graph)
    settings: dict[str, Any] = {
        "cpu_offload": cpu_offload,
        "comm": None if comm is None else api.read_comm(comm),
        "what": str(graph),
        "parts": parts,
    }
    if source == "run" or (source is None and api.is_live(machine)):
        priced = _profiled_by_run(graph, meta, machine, live, settings, quiet)
    else:
        for option in given_options("steps", "warm_up", "feeds"):
            raise BadInputError(
                f"{option} is for real steps; leave it out, or profile on real devices: --source "
                "run."
            )
        known = _known(machine, live["open_ports"], quiet)
        with activity(f"profiling {graph.name}", quiet), notes_of_profiles(quiet):
            priced = api.profile(meta, known, source=source or "analytic", **settings)
    api.write_profile(output, priced)
    if plot is not None:
        write_chart(plot, spread_chart(priced, graph.name))
    summary = summarize(priced.problem, api.critical_path_us(priced.problem))
    whole = priced.provenance["parts"]["whole_ops"] if parts else []
    if as_json:
        echo_json(asdict(summary) | ({"whole_ops": whole} if parts else {}))
    elif not quiet:
        tables = [profile_table(graph.name, summary)]
        print_layouts([*tables, whole_ops_table(whole)] if parts else tables)


def _profiled_by_run(
    graph: Path,
    meta: Any,
    machine: str,
    live: Mapping[str, Any],
    settings: Mapping[str, Any],
    quiet: bool,
) -> Any:
    """Return the profile of real steps; warn on stderr if predictions from it are rough."""
    from pesto_cli import api
    from pesto_cli.report.counts import count_text
    from pesto_cli.report.step_warnings import step_warnings
    from pesto_cli.runtime.feeds import source_file

    if live["feeds"] is not None:
        source_file(live["feeds"])
    steps = {name: value for name, value in live.items() if name != "open_ports"}
    traced = count_text(live["steps"], "step")
    running = f"running {traced} of {graph.name} with a trace and as many without"
    if settings["parts"]:
        running += ", then parts of its ops alone"
    with (
        connected(machine, live["open_ports"], quiet) as cluster,
        activity(running, quiet, is_long=True),
        notes_of_profiles(quiet),
    ):
        priced = api.profile_by_run(meta, cluster, **steps, **settings)
    for note in () if quiet else step_warnings(priced.provenance):
        echo(note, err=True)
    return priced


def _known(machine: str, open_ports: bool, quiet: bool) -> Any:
    """Return the machine of a preset, a file, or real devices."""
    from pesto_cli import api

    if not api.is_live(machine):
        return api.read_machine(machine, "local-workers:N", "local-gpus")
    with connected(machine, open_ports, quiet) as cluster:
        return cluster.machine


@click.command()
@click.option(
    "-m",
    "--machine",
    metavar="MACHINE",
    help="Measure transfers on local-workers:N, local-gpus or a cluster file.",
)
@click.option(
    "--from", "samples", type=PATH, metavar="CSV", help="Read timed transfers from a file."
)
@output_option("the fit")
@click.option(
    "--plot", type=PATH, help="Draw transfer times, fitted lines and residuals (.svg, .png, .html)."
)
@open_ports_option
@json_option
@quiet_option()
def comm(
    machine: str | None,
    samples: Path | None,
    output: Path,
    plot: Path | None,
    open_ports: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Fit latency and slope of transfers by linear regression.

    On MACHINE, transfers of 1 B to 64 MiB are timed in both directions, as well as signals and
    pairs of simultaneous transfers. CSV has the columns src kind, dst kind, bytes and us.
    """
    from pesto_cli import api
    from pesto_cli.profile.comm import fit, read_samples
    from pesto_cli.profile.comm.chains import LIMIT_S
    from pesto_cli.profile.comm.transfers import links_to_time, timed_transfers
    from pesto_cli.report.charts import check_chart_path, write_chart
    from pesto_cli.report.comm_checks import comm_checks
    from pesto_cli.report.comm_plot import comm_chart
    from pesto_cli.report.counts import count_text
    from pesto_cli.report.layouts import print_layouts
    from pesto_cli.report.tables import comm_table

    if (machine is None) == (samples is None):
        found = "neither --machine nor --from was" if machine is None else "both were"
        raise BadInputError(
            "comm measures transfers on --machine, or reads them from the CSV file of --from: "
            f"{found} given; one of the two was expected."
        )
    check_output(output, samples)
    if plot is not None:
        check_chart_path(plot)
        check_output(plot, output, samples)
    if samples is not None:
        rows = read_samples(samples)
        fits = fit(rows)
    else:
        with connected(str(machine), open_ports, quiet) as cluster:
            if not cluster.machine.links:
                raise BadInputError(
                    f"machine {machine} has one device, and so no link to measure; two or more "
                    "devices were expected, as in local-workers:2."
                )
            num_links = sum(map(len, links_to_time(cluster.machine).values()))
            what = f"timing transfers on {machine}, about {LIMIT_S:g} s for each of "
            with activity(f"{what}{count_text(num_links, 'link')}", quiet, is_long=True):
                timed = timed_transfers(cluster)
        rows, fits = timed.samples, timed.fits()
    api.write_comm(output, fits)
    if plot is not None:
        write_chart(plot, comm_chart(rows, fits))
    if as_json:
        echo_json([asdict(row) for row in fits])
    elif not quiet:
        print_layouts([comm_table(samples.name if samples else str(machine), fits)])
        if checks := comm_checks(fits):
            echo_text(checks, err=True)
