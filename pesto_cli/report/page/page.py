"""The page: one file without references, with its style, script, charts and data inside."""

import base64
import gzip
import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from string import Template
from typing import Any

import numpy as np

from pesto_cli.data.graph import IntArray, OpGraph
from pesto_cli.data.problem import Problem
from pesto_cli.data.result import Result
from pesto_cli.data.solution import Solution
from pesto_cli.files import Profile
from pesto_cli.printable import printable_chart
from pesto_cli.report.page import sections
from pesto_cli.report.page.markup import escape
from pesto_cli.report.page.shown import Coarse, Shown
from pesto_cli.report.pictures.busy import busy_chart
from pesto_cli.report.pictures.layers import layers_chart
from pesto_cli.report.pictures.over_time import over_time_chart
from pesto_cli.report.pictures.spans import MOST_BARS, NO_TYPE, Drawn, output_bytes
from pesto_cli.report.pictures.timeline import timeline_note
from pesto_cli.report.times import TimeScale

# 9 takes twice as long, for a thousandth of the size.
GZIP_LEVEL = 7


def report_page(
    title: str,
    profile: Profile,
    shown: Sequence[Shown],
    baselines: Sequence[Result],
    coarse: Coarse,
) -> str:
    """The HTML of placements of one profile, that can be switched between.

    title: what the profile is called. baselines: what else to compare with, one a strategy; one of
        the placements may be among them.
    """
    problem = profile.problem
    pictures = [Drawn(each.result.problem, each.result.schedule, each.chain) for each in shown]
    results = [each.result for each in shown]
    others = [result for result in baselines if result not in results]
    named = [(each.name, each.result) for each in shown]
    named += [(result.strategy, result) for result in others]
    return _part("page.html").substitute(
        title=escape(title),
        style=_part("page.css").template,
        script=_part("page.js").template,
        vega=_vega(),
        data=_packed(_data(problem, shown, pictures, coarse)),
        switch="".join(
            f'<label><input type="radio" name="placement" value="{index}"'
            f"{' checked' if index == 0 else ''}>{escape(each.name)}</label>\n"
            for index, each in enumerate(shown)
        ),
        placements="".join(
            _placement(index, each, drawn, baselines)
            for index, (each, drawn) in enumerate(zip(shown, pictures, strict=True))
        ),
        compared=sections.compared(problem, named),
        provenance=sections.provenance(profile, shown, title),
    )


def _placement(index: int, shown: Shown, drawn: Drawn, baselines: Sequence[Result]) -> str:
    problem = drawn.problem
    return _part("placement.html").substitute(
        index=index,
        name=escape(shown.name),
        headline=sections.headline(problem, shown, baselines),
        note=escape(timeline_note(drawn)),
        step=sections.step_table(problem, shown),
        devices=sections.devices_table(problem, shown),
        links=sections.links_table(problem, shown),
    )


@cache
def _vega() -> str:
    """What draws the charts: Vega, Vega-Lite and their way into a page."""
    import vl_convert

    script: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return script.replace("</script", "<\\/script")


def _part(name: str) -> Template:
    return Template(files(__package__).joinpath(name).read_text(encoding="utf-8"))


def _data(
    problem: Problem, shown: Sequence[Shown], pictures: Sequence[Drawn], coarse: Coarse
) -> dict[str, Any]:
    """What the script draws and searches; times of ops in us."""
    graphs = list(dict.fromkeys(drawn.problem.graph for drawn in pictures))
    return {
        "devices": printable_chart([device.name for device in problem.machine.devices]),
        "graphs": list(map(_ops, graphs)),
        "most_bars": MOST_BARS,
        "placements": [
            {"graph": graphs.index(drawn.problem.graph), **_drawn(each, drawn, coarse)}
            for each, drawn in zip(shown, pictures, strict=True)
        ],
    }


def _ops(graph: OpGraph) -> dict[str, Any]:
    """The ops of a graph; that of a placement may be rewritten."""
    return {
        "names": printable_chart(graph.names),
        "types": printable_chart([name or NO_TYPE for name in graph.types]),
        "output_bytes": output_bytes(graph),
    }


def _drawn(shown: Shown, drawn: Drawn, coarse: Coarse) -> dict[str, Any]:
    schedule = drawn.schedule
    scale = TimeScale.of([schedule.makespan_us])  # as the charts have it
    device, share = _of_nodes(shown.result.solution, coarse)
    notes = [f"{each:.0%} of its time on this device" if each < 1 else "" for each in share]
    charts = {
        "busy": busy_chart(drawn),
        "over_time": over_time_chart(drawn, shown.held),
        "layers": layers_chart(coarse.problem, device, notes=notes),
    }
    critical = {piece.op for piece in drawn.chain if piece.kind == "op"}
    return {
        **{name: printable_chart(chart.to_dict()) for name, chart in charts.items()},
        "makespan_us": schedule.makespan_us,
        "unit": scale.unit,
        "us_per_unit": scale.us_per_unit,
        "device": schedule.device.tolist(),
        "start_us": schedule.start_us.round(3).tolist(),
        "took_us": (schedule.end_us - schedule.start_us).round(3).tolist(),
        "critical": sorted(critical),
        "transfers": _transfers(drawn),
    }


def _transfers(drawn: Drawn) -> dict[str, list[Any]]:
    """What is sent on the links that are drawn, by column; `op` makes the tensor."""
    bars = drawn.transfers
    return {
        "row": printable_chart([bar.row for bar in bars]),
        "op": [drawn.problem.graph.index_of[bar.name] for bar in bars],
        "start_us": [round(bar.from_us, 3) for bar in bars],
        "took_us": [round(bar.took_us, 3) for bar in bars],
        "bytes": [bar.num_bytes for bar in bars],
    }


def _of_nodes(solution: Solution, coarse: Coarse) -> tuple[IntArray, list[float]]:
    """Of every node, the device on which most of its time is spent, and which share of it."""
    problem, ops = solution.problem, np.flatnonzero(solution.origin >= 0)
    us = np.zeros((coarse.problem.num_ops, problem.num_devices))
    node, device = coarse.node_of_op[solution.origin[ops]], solution.schedule.device[ops]
    # What takes no time counts a little.
    np.add.at(us, (node, device), problem.min_duration_us[ops] + 1e-9)
    return us.argmax(axis=1), (us.max(axis=1) / us.sum(axis=1)).tolist()


def _packed(value: dict[str, Any]) -> str:
    """JSON for a page: small, and without a character that means something in HTML."""
    data = json.dumps(value, separators=(",", ":")).encode()
    return base64.b64encode(gzip.compress(data, GZIP_LEVEL, mtime=0)).decode()
