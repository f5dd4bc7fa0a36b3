"""`profile` and `comm`: what ops and transfers take."""

from dataclasses import asdict
from pathlib import Path

import click

from pesto_cli.cli.options import (
    PATH,
    check_output,
    echo_json,
    json_option,
    output_option,
    quiet_option,
)


@click.command()
@click.argument("graph", type=PATH)
@click.option("-m", "--machine", required=True, help="A preset, or a machine file (TOML).")
@output_option("the profile (.json or .json.gz)")
@click.option("--source", default="analytic", show_default=True, help="analytic, or csv:FILE.")
@click.option("--comm", type=PATH, help="A fit by `pesto comm`, in place of the machine's.")
@click.option("--cpu-offload", is_flag=True, help="Price GPU ops on the CPU too.")
@json_option
@quiet_option()
def profile(
    graph: Path,
    machine: str,
    output: Path,
    source: str,
    comm: Path | None,
    cpu_offload: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Price every op and transfer of GRAPH on a machine."""
    from pesto_cli import api
    from pesto_cli.report.layouts import print_layouts
    from pesto_cli.report.summary import summarize
    from pesto_cli.report.tables import profile_table

    check_output(output, graph)
    priced = api.profile(
        api.read_meta_graph(graph),
        api.read_machine(machine),
        source=source,
        cpu_offload=cpu_offload,
        comm=None if comm is None else api.read_comm(comm),
        what=str(graph),
    )
    api.write_profile(output, priced)
    summary = summarize(priced.problem, api.critical_path_us(priced.problem))
    if as_json:
        echo_json(asdict(summary))
    elif not quiet:
        print_layouts([profile_table(graph.name, summary)])


@click.command()
@click.option("--from", "samples", type=PATH, required=True, metavar="CSV")
@output_option("the fit")
@json_option
@quiet_option()
def comm(samples: Path, output: Path, as_json: bool, quiet: bool) -> None:
    """Fit latency and slope of transfers by linear regression.

    CSV has the columns src kind, dst kind, bytes and us.
    """
    from pesto_cli import api
    from pesto_cli.profile.comm import fit, read_samples
    from pesto_cli.report.layouts import print_layouts
    from pesto_cli.report.tables import comm_table

    check_output(output, samples)
    fits = fit(read_samples(samples))
    api.write_comm(output, fits)
    if as_json:
        echo_json([asdict(row) for row in fits])
    elif not quiet:
        print_layouts([comm_table(samples.name, fits)])
