"""Draw when the devices compute under three placements of one graph, on one axis of time.

    python timelines.py PROFILE PLACEMENT OUTPUT.png

The placements are all ops on one GPU, the layers over the GPUs, and the given one.
"""

import sys

import altair as alt

from pesto_cli import api as pesto
from pesto_cli.data.labels import Phase
from pesto_cli.data.result import Result
from pesto_cli.files import Profile

PHASES = {"forward": "#4c78a8", "backward": "#f58518", "update": "#54a24b"}


def bars(profile: Profile, title: str, result: Result) -> list[dict[str, object]]:
    """Return a bar for every op that takes time."""
    problem, schedule = profile.problem, result.schedule
    names = [device.name for device in problem.machine.devices]
    label = f"{title}: {result.makespan_us / 1e3:.1f} ms"
    return [
        {
            "placement": label,
            "device": names[schedule.device[op]],
            "start": schedule.start_us[op] / 1e3,
            "end": schedule.end_us[op] / 1e3,
            "phase": Phase(problem.graph.labels.phase[op]).name.lower(),
        }
        for op in range(problem.num_ops)
        if schedule.end_us[op] > schedule.start_us[op]
    ]


def main(profile_path: str, placement_path: str, output: str) -> None:
    """Draw the three placements one below the other."""
    profile = pesto.load(profile_path)
    single, expert = pesto.compare(profile, ["single", "expert"])
    found = pesto.simulate(profile, pesto.load(placement_path))
    results = {"one GPU": single, "layers over two GPUs": expert, "pesto": found}
    rows = [row for title, result in results.items() for row in bars(profile, title, result)]
    order = list(dict.fromkeys(row["placement"] for row in rows))
    chart = (
        alt.Chart(alt.Data(values=rows))
        .mark_bar(height=18)
        .encode(
            x=alt.X("start:Q", title="ms"),
            x2="end:Q",
            y=alt.Y("device:N", title=None),
            color=alt.Color(
                "phase:N",
                title=None,
                scale=alt.Scale(domain=list(PHASES), range=list(PHASES.values())),
                legend=alt.Legend(orient="top"),
            ),
        )
        .properties(width=800, height=alt.Step(24))
        .facet(
            row=alt.Row(
                "placement:N",
                title=None,
                sort=order,
                header=alt.Header(labelOrient="top", labelAnchor="start", labelFontSize=13),
            )
        )
    )
    pesto.save(output, chart)


if __name__ == "__main__":
    main(*sys.argv[1:])
