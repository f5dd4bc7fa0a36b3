"""`export` and `apply`: a graph in, and a placement back into it."""

from pathlib import Path

import click

from pesto_cli.cli.options import PATH, check_output, output_option, quiet_option


@click.command()
@click.argument("source")
@output_option("the graph (.meta)")
@click.option("--fetch", "fetches", multiple=True, metavar="NAME", help="The train op first.")
@click.option("--feed", "feeds", multiple=True, metavar="NAME=SHAPE", help="images=32,224,224,3")
@click.option("--signature", help="Which one of a SavedModel's.")
@click.option("--optimize", is_flag=True, help="Run grappler once, now.")
@quiet_option()
def export(
    source: str,
    output: Path,
    fetches: tuple[str, ...],
    feeds: tuple[str, ...],
    signature: str | None,
    optimize: bool,
    quiet: bool,
) -> None:
    """Write a flat training-step graph.

    SOURCE is script.py:function, zoo:NAME, a SavedModel directory, a .meta, a .pb or a .pbtxt.
    """
    from pesto_cli import api
    from pesto_cli.graphdef.fetches import fetch_names, parse_feed

    check_output(output, Path(source))
    graph = api.export(
        source,
        fetches=fetches,
        feeds=dict(map(parse_feed, feeds)),
        signature=signature,
        optimize=optimize,
    )
    api.write_meta_graph(output, graph)
    if not quiet:
        fetched = ", ".join(fetch_names(graph))
        click.echo(f"{output}: {len(graph.graph_def.node)} nodes; fetches {fetched}", err=True)


@click.command()
@click.argument("graph", type=PATH)
@click.argument("placement", type=PATH)
@output_option("the placed graph (.meta)")
@click.option(
    "--order",
    type=click.Choice(["full", "none"]),
    default="full",
    show_default=True,
    help="Enforce each device's order by control dependencies, or leave it to TensorFlow.",
)
@click.option("--devices", default="", metavar="GPU:0=/device:CPU:0,...", help="Devices at hand.")
@click.option("--tf-pesto", type=PATH, metavar="DIR", help="Also write part.json and cdep.json.")
@quiet_option()
def apply(
    graph: Path,
    placement: Path,
    output: Path,
    order: str,
    devices: str,
    tf_pesto: Path | None,
    quiet: bool,
) -> None:
    """Write PLACEMENT into GRAPH: devices and control dependencies."""
    from pesto_cli import api
    from pesto_cli.apply import parse_devices, planned_changes, with_changes, write_tf_pesto

    check_output(output, graph, placement)
    meta, placed = api.read_meta_graph(graph), api.read_placement(placement)
    changes = planned_changes(
        meta,
        placed,
        order="full" if order == "full" else "none",
        devices=parse_devices(devices),
        what=str(graph),
    )
    if tf_pesto is not None:
        write_tf_pesto(tf_pesto, changes)
    api.write_meta_graph(output, with_changes(meta, changes))
    if not quiet:
        click.echo(
            f"{output}: {len(changes.device)} nodes placed, "
            f"{sum(map(len, changes.waits_for.values()))} control dependencies added. Run it with "
            "pesto_cli.apply.session_config(), or TensorFlow may move ops or lose their order.",
            err=True,
        )
