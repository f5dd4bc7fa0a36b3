"""Draw a step with whole ops and the same step with split ops, on one axis of time.

    python split_step.py PROFILE WHOLE SPLIT OUTPUT.svg

WHOLE and SPLIT are placements of the profile. The number in a bar is that of the op's layer.
"""

import re
import sys
from collections.abc import Iterator

import altair as alt

from pesto_cli import api as pesto
from pesto_cli.data.labels import Phase
from pesto_cli.data.result import Result
from pesto_cli.data.solution import Solution

COLOURS = {
    "forward": "#4c78a8",
    "backward": "#f58518",
    "update": "#54a24b",
    "added by the split": "#b279a2",
    "transfer": "#9d9da1",
}
LAYER = re.compile(r"layer_(\d+)")
SHORTEST_LABELLED_MS = 0.25
Row = dict[str, object]


def bars(title: str, result: Result) -> Iterator[Row]:
    """Yield a bar for every op and every transfer between GPUs that takes time."""
    label = f"{title}: {result.makespan_us / 1e3:.1f} ms"
    for row in (*op_bars(result.solution), *transfer_bars(result.solution)):
        start, end = float(str(row["start"])), float(str(row["end"]))
        shown = row["layer"] if end - start > SHORTEST_LABELLED_MS else ""
        yield {**row, "step": label, "layer": shown, "middle": (start + end) / 2}


def op_bars(solution: Solution) -> Iterator[Row]:
    """Yield a bar for every op on a GPU that takes time."""
    problem, schedule, graph = solution.problem, solution.schedule, solution.problem.graph
    for op in range(problem.num_ops):
        device = problem.machine.devices[schedule.device[op]].name
        if schedule.end_us[op] > schedule.start_us[op] and device.startswith("GPU"):
            phase = Phase(graph.labels.phase[op]).name.lower()
            yield {
                "device": device,
                "start": schedule.start_us[op] / 1e3,
                "end": schedule.end_us[op] / 1e3,
                "kind": phase if solution.origin[op] >= 0 else "added by the split",
                "layer": layer_of(graph.names[op]),
            }


def transfer_bars(solution: Solution) -> Iterator[Row]:
    """Yield a bar for every transfer between GPUs."""
    problem, schedule, graph = solution.problem, solution.schedule, solution.problem.graph
    names = [device.name for device in problem.machine.devices]
    transfers = schedule.transfers
    for tensor, dst, start_us, end_us in zip(
        transfers.tensor, transfers.dst, transfers.start_us, transfers.end_us, strict=True
    ):
        src = schedule.device[graph.tensor_producer[tensor]]
        if names[src].startswith("GPU") and names[dst].startswith("GPU"):
            yield {
                "device": f"{names[src]} to {names[dst]}",
                "start": start_us / 1e3,
                "end": end_us / 1e3,
                "kind": "transfer",
                "layer": "",
            }


def layer_of(name: str) -> str:
    """Return the number of the layer in the name of an op, or an empty text."""
    found = LAYER.search(name)
    return found[1] if found else ""


def drawn(rows: list[Row]) -> alt.FacetChart:
    """Return the steps one below the other."""
    devices = sorted({str(row["device"]) for row in rows}, key=lambda name: (" to " in name, name))
    lanes = alt.Y("device:N", title=None, sort=devices)
    base = alt.Chart(alt.Data(values=rows))
    boxes = base.mark_bar(height=18, stroke="white", strokeWidth=0.5).encode(
        x=alt.X("start:Q", title="ms"),
        x2="end:Q",
        y=lanes,
        color=alt.Color(
            "kind:N",
            title=None,
            scale=alt.Scale(domain=list(COLOURS), range=list(COLOURS.values())),
            legend=alt.Legend(orient="top", columnPadding=30),
        ),
    )
    numbers = base.mark_text(color="white", fontSize=11).encode(
        x="middle:Q", y=lanes, text="layer:N"
    )
    return (
        alt.layer(boxes, numbers)
        .properties(width=800, height=alt.Step(24))
        .facet(
            row=alt.Row(
                "step:N",
                title=None,
                sort=list(dict.fromkeys(str(row["step"]) for row in rows)),
                header=alt.Header(labelOrient="top", labelAnchor="start", labelFontSize=13),
            )
        )
    )


def main(profile_path: str, whole_path: str, split_path: str, output: str) -> None:
    """Draw the two placements."""
    profile = pesto.load(profile_path)
    rows = [
        row
        for title, path in {"whole ops": whole_path, "split ops": split_path}.items()
        for row in bars(title, pesto.simulate(profile, pesto.load(path)))
    ]
    pesto.save(output, drawn(rows))


if __name__ == "__main__":
    main(*sys.argv[1:])
