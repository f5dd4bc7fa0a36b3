"""`export` and `apply`: write a program's graph, and write a placement into that graph."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from pesto_cli.cli.options import (
    PATH,
    file_of,
    json_option,
    output_option,
    quiet_option,
    step_options,
)
from pesto_cli.cli.output import check_output, echo, echo_json
from pesto_cli.errors import BadInputError


@click.command()
@click.argument("source")
@click.argument("arguments", nargs=-1, metavar="[-- ARGS...]")
@output_option("the graph (.meta)")
@step_options
@click.option(
    "--optimize",
    is_flag=True,
    help="Let grappler fold, merge and remove ops. A placement of the result fits only the "
    "exported graph, not the original script or function.",
)
@click.option(
    "--as-built", is_flag=True, help="Keep repeated ops, such as several reads of one variable."
)
@click.option(
    "--capture", is_flag=True, help="Run SOURCE, a script, up to its first training step."
)
@click.option(
    "--feeds-output",
    type=PATH,
    help="Where --capture writes the feeds of that step.  [default: OUTPUT with .feeds.npz]",
)
@json_option
@quiet_option()
def export(
    source: str,
    arguments: tuple[str, ...],
    output: Path,
    fetches: tuple[str, ...],
    feeds: tuple[str, ...],
    signature: str | None,
    optimize: bool,
    as_built: bool,
    capture: bool,
    feeds_output: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Write the graph of a training step as one graph, with inlined functions.

    SOURCE is script.py:function, zoo:NAME, a SavedModel directory, a .meta, a .pb, a .pbtxt, or a
    log directory or event file of TensorBoard. With --capture, SOURCE is a script that trains by
    Keras's fit or by sessions of TensorFlow 1, and ARGS are its arguments.
    """
    from pesto_cli import api
    from pesto_cli.graphdef.fetches import parse_feed
    from pesto_cli.graphdef.training import untrained
    from pesto_cli.runtime.feeds import write_feeds

    # A GraphDef (.pb) has no fetches, and without them no other command accepts the graph.
    check_output(output, file_of(source), endings=(".meta", ".pbtxt"))
    _check_capture(source, arguments, capture, bool(feeds or signature), feeds_output)
    feeds_path = feeds_output or output.with_suffix(".feeds.npz")
    changes = {"optimize": optimize, "as_built": as_built}
    if capture:
        check_output(feeds_path, Path(source), output, endings=(".npz",))
        captured = api.capture(Path(source), arguments, fetches=fetches, **changes)
        graph, data = captured.meta, captured.feeds
    else:
        graph = api.export(
            source,
            fetches=fetches,
            feeds=dict(map(parse_feed, feeds)),
            signature=signature,
            **changes,
        )
        data = {}
    api.write_meta_graph(output, graph)
    has_feeds = bool(data) or feeds_output is not None
    if has_feeds:
        write_feeds(feeds_path, data)
    record = _exported(output, graph, feeds_path if has_feeds else None, data)
    if as_json:
        echo_json(record)
    elif not quiet:
        echo(*_lines(record), err=True)
    if not quiet and (remark := untrained(graph)):
        echo(remark, err=True)


def _exported(
    output: Path, graph: Any, feeds_path: Path | None, data: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a record of the written files as a JSON value."""
    from pesto_cli.graphdef.fetches import fetch_names

    num_nodes, fetched = len(graph.graph_def.node), fetch_names(graph)
    record = {"output": str(output), "num_nodes": num_nodes, "fetches": fetched}
    if feeds_path is None:
        return record
    shapes = {name: list(value.shape) for name, value in data.items()}
    return record | {"feeds": {"output": str(feeds_path), "shapes": shapes}}


def _lines(record: Mapping[str, Any]) -> Iterator[str]:
    """Yield the record as lines of text."""
    fetched = ", ".join(record["fetches"])
    yield f"{record['output']}: {record['num_nodes']} nodes; fetches {fetched}"
    if "feeds" in record:
        shapes = record["feeds"]["shapes"].items()
        what = ", ".join(f"{name} {shape}" for name, shape in shapes) or "nothing"
        yield f"{record['feeds']['output']}: feeds of the step: {what}"


def _check_capture(
    source: str,
    arguments: tuple[str, ...],
    capture: bool,
    shapes_or_signature: bool,
    feeds_output: Path | None,
) -> None:
    if capture:
        if not source.endswith(".py"):
            raise BadInputError(f"{source}: a script (.py) was expected with --capture.")
        if shapes_or_signature:
            raise BadInputError(
                "--capture takes the shapes of feeds from the script; leave out --feed and"
                " --signature."
            )
    elif arguments or feeds_output is not None:
        found = f"arguments ({' '.join(arguments)})" if arguments else "--feeds-output"
        raise BadInputError(f"{found} without --capture, which runs a script; add --capture.")


@click.command()
@click.argument("graph", type=PATH)
@click.argument("placement", type=PATH)
@output_option("the placed graph (.meta)")
@click.option(
    "--order",
    type=click.Choice(["full", "none"]),
    default="full",
    show_default=True,
    help="full: enforce the order of each device by control dependencies; none: leave the order to "
    "TensorFlow.",
)
@click.option(
    "--devices",
    default="",
    metavar="GPU:0=/device:CPU:0,...",
    help="TensorFlow devices to use for planned devices.",
)
@click.option(
    "--tf-pesto", type=PATH, metavar="DIR", help="Also write part.json and cdep.json for TF-Pesto."
)
@json_option
@quiet_option()
def apply(
    graph: Path,
    placement: Path,
    output: Path,
    order: str,
    devices: str,
    tf_pesto: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Write PLACEMENT into GRAPH: devices and control dependencies."""
    from pesto_cli import api
    from pesto_cli.apply import parse_devices, planned_changes, with_changes, write_tf_pesto
    from pesto_cli.apply.split_variables import note_on_copies
    from pesto_cli.files.storage import GRAPH_SUFFIXES

    check_output(output, graph, placement, endings=GRAPH_SUFFIXES)
    if tf_pesto is not None:
        for name in ("part.json", "cdep.json"):
            check_output(tf_pesto / name, output, graph, placement)
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
    num_edges = changes.num_control_edges
    if as_json:
        num_nodes = len(changes.device)
        echo_json(
            {"output": str(output), "num_nodes_placed": num_nodes, "num_control_edges": num_edges}
        )
    elif not quiet:
        echo(
            f"{output}: {len(changes.device)} nodes placed, {num_edges} control dependencies "
            "added. Run it with pesto_cli.apply.session_config(); otherwise TensorFlow may move "
            "ops or change their order.",
            err=True,
        )
        if output.suffix == ".pb":
            echo(
                f"{output} is a GraphDef: it has the ops, but neither fetches nor initialisation. "
                "A .meta has them, too.",
                err=True,
            )
        note = note_on_copies(placed.plan)
        if note is not None:
            echo(f"{placement}: {note}", err=True)
