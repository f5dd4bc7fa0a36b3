"""The report page: a single HTML file that contains its style, script, charts and data."""

import base64
import gzip
import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from string import Template
from typing import Any

import numpy as np

from pesto_cli.data.graph import FloatArray, IntArray, OpGraph
from pesto_cli.data.problem import Problem
from pesto_cli.data.result import Result
from pesto_cli.data.solution import Solution
from pesto_cli.files import Profile
from pesto_cli.printable import printable_chart
from pesto_cli.report.families import NAMES, Made
from pesto_cli.report.page import sections
from pesto_cli.report.page.markup import escape
from pesto_cli.report.page.reference import Reference
from pesto_cli.report.page.shown import Coarse, Shown
from pesto_cli.report.pictures.busy import busy_chart
from pesto_cli.report.pictures.layers import layers_chart
from pesto_cli.report.pictures.over_time import over_time_chart
from pesto_cli.report.pictures.spans import MOST_BARS, NO_TYPE, Drawn, output_bytes
from pesto_cli.report.pictures.timeline import timeline_note
from pesto_cli.report.times import TimeScale

# Level 9 takes twice as long and saves a thousandth of the size.
GZIP_LEVEL = 7
# A node of the coarse graph is drawn on its main device if this share of its work is there.
MAIN_SHARE = 0.75


def report_page(
    title: str,
    profile: Profile,
    shown: Sequence[Shown],
    baselines: Sequence[Result],
    data: str,
) -> str:
    """Return the HTML of a page that can switch between placements of one profile.

    title: the name of the profile. baselines: results to compare with, one for each strategy; these
        may include some of the placements. data: the result of `page_data`.
    """
    problem = profile.problem
    results = [each.result for each in shown]
    others = [result for result in baselines if result not in results]
    named = [(each.name, each.result) for each in shown]
    named += [(result.strategy, result) for result in others]
    return _part("page.html").substitute(
        title=escape(title),
        style=_part("page.css").template,
        script=_part("page.js").template,
        vega=vega(),
        data=data,
        switch="".join(
            f'<label><input type="radio" name="placement" value="{index}"'
            f"{' checked' if index == 0 else ''}>{escape(each.name)}</label>\n"
            for index, each in enumerate(shown)
        ),
        placements="".join(
            _placement(index, each, baselines, Reference.of(each, named))
            for index, each in enumerate(shown)
        ),
        compared=sections.compared(problem, named),
        provenance=sections.provenance(profile, shown, title),
    )


def _placement(
    index: int, shown: Shown, baselines: Sequence[Result], reference: Reference | None
) -> str:
    problem = shown.result.problem
    return _part("placement.html").substitute(
        index=index,
        name=escape(shown.name),
        headline=sections.headline(problem, shown, baselines, reference),
        note=escape(timeline_note(shown.drawn)),
        split=sections.split_tables(shown, reference),
        step=sections.step_table(problem, shown),
        devices=sections.devices_table(problem, shown),
        links=sections.links_table(problem, shown),
    )


@cache
def vega() -> str:
    """Return the JavaScript that draws the charts: Vega, Vega-Lite and vega-embed."""
    import vl_convert

    script: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return script.replace("</script", "<\\/script")


def _part(name: str) -> Template:
    return Template(files(__package__).joinpath(name).read_text(encoding="utf-8"))


def page_data(problem: Problem, shown: Sequence[Shown], coarse: Coarse) -> str:
    """Return the data that the page's script draws and searches, compressed; op times are in us."""
    first: dict[OpGraph, Shown] = {}
    for each in shown:
        first.setdefault(each.result.problem.graph, each)
    graphs = list(first)
    data = {
        "devices": printable_chart([device.name for device in problem.machine.devices]),
        "graphs": list(map(_ops, first.values())),
        "made": list(Made),
        "added": {made: NAMES[made] for made in (Made.CONVERSION, Made.SUM)},
        "most_bars": MOST_BARS,
        "placements": [
            {"graph": graphs.index(each.result.problem.graph), **_drawn(each, coarse)}
            for each in shown
        ],
    }
    return _compressed(data)


def _ops(shown: Shown) -> dict[str, Any]:
    """Return the ops of a placement's graph, which may be a rewritten one.

    If ops were split: also what each op is (an index into `made`), and the op of the original graph
    to which it belongs.
    """
    graph, families = shown.result.problem.graph, shown.families
    ops = {**_named(graph), "output_bytes": output_bytes(graph)}
    if families is None:
        return ops
    number = {made: index for index, made in enumerate(Made)}
    return ops | {
        "whole": _named(shown.result.solution.asked.graph),
        "family": families.of.tolist(),
        "made": [number[made] for made in families.made],
    }


def _named(graph: OpGraph) -> dict[str, Any]:
    return {
        "names": printable_chart(graph.names),
        "types": printable_chart([name or NO_TYPE for name in graph.types]),
    }


def _drawn(shown: Shown, coarse: Coarse) -> dict[str, Any]:
    drawn, schedule = shown.drawn, shown.result.schedule
    scale = TimeScale.of([schedule.makespan_us])  # the scale of the charts
    device, share = _of_nodes(shown.result.solution, coarse)
    several = None if shown.families is None else share < MAIN_SHARE
    main = [coarse.problem.machine.devices[each].name for each in device]
    notes = [
        f"{each:.0%} of its work is on {name}" if each < 1 else ""
        for name, each in zip(main, share.tolist(), strict=True)
    ]
    charts = {
        "busy": busy_chart(drawn),
        "over_time": over_time_chart(drawn, shown.held),
        "layers": layers_chart(coarse.problem, device, notes=notes, several=several),
    }
    critical = {segment.op for segment in drawn.path if segment.kind == "op"}
    return {
        **{name: printable_chart(chart.to_dict()) for name, chart in charts.items()},
        "makespan_us": schedule.makespan_us,
        "unit": scale.unit,
        "us_per_unit": scale.us_per_unit,
        "device": schedule.device.tolist(),
        "start_steps_ns": _steps_ns(schedule.start_us),
        "took_us": (schedule.end_us - schedule.start_us).round(3).tolist(),
        "critical": sorted(critical),
        "transfers": _transfers(drawn),
    }


def _steps_ns(times_us: FloatArray) -> list[int]:
    """Return each time minus the one before, the first as it is: many are equal, and compress."""
    steps: list[int] = np.diff((times_us * 1e3).round().astype(np.int64), prepend=0).tolist()
    return steps


def _transfers(drawn: Drawn) -> dict[str, list[Any]]:
    """Return the transfers on the drawn links, by column; `op` is the producer of the tensor."""
    bars = drawn.transfers
    return {
        "row": printable_chart([bar.row for bar in bars]),
        "op": [drawn.problem.graph.index_of[bar.name] for bar in bars],
        "start_steps_ns": _steps_ns(np.array([bar.from_us for bar in bars])),
        "took_us": [round(bar.took_us, 3) for bar in bars],
        "bytes": [bar.num_bytes for bar in bars],
    }


def _of_nodes(solution: Solution, coarse: Coarse) -> tuple[IntArray, FloatArray]:
    """Return, for every node, the device with most of its work, and the share of that work."""
    problem, ops = solution.problem, np.flatnonzero(solution.origin >= 0)
    us = np.zeros((coarse.problem.num_ops, problem.num_devices))
    node, device = coarse.node_of_op[solution.origin[ops]], solution.schedule.device[ops]
    # The small summand lets ops without time count, for nodes that have no other ops.
    np.add.at(us, (node, device), problem.min_duration_us[ops] + 1e-9)
    total_us = us.sum(axis=1)
    share = np.divide(us.max(axis=1), total_us, out=np.ones_like(total_us), where=total_us > 0)
    return us.argmax(axis=1), share


def _compressed(value: dict[str, Any]) -> str:
    """Encode a JSON value for the page: compressed, and without special characters of HTML."""
    data = json.dumps(value, separators=(",", ":")).encode()
    return base64.b64encode(gzip.compress(data, GZIP_LEVEL, mtime=0)).decode()
