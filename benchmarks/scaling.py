"""Step times on 1 to 16 GPUs: `python -m benchmarks.scaling [MODEL]...`.

The machines have V100s of 80 GB, up to four in a server. Each model is placed by pesto with whole
ops, by strategies that split every op in one way, and by pesto with splitting. All times are
simulated. The results are written as JSON, and printed as tables; results that the file already
has are not computed again, so a run can be continued with the same code. Profiles are cached in
the folder of `--profiles`.
"""

import argparse
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.quality import conditions, profile_of, with_memory
from pesto_cli import api as pesto
from pesto_cli.bounds.plans import all_plans_bound_us
from pesto_cli.data.machine import Machine
from pesto_cli.data.presets import (
    HOST_TO_V100,
    NETWORK,
    PRESETS,
    TWO_NVLINKS,
    cluster,
    v100_server,
)
from pesto_cli.data.result import Result, gap
from pesto_cli.errors import PestoError
from pesto_cli.files import Profile, atomic_write
from pesto_cli.report.charts import check_chart_path, write_chart
from pesto_cli.report.markdown import markdown_table
from pesto_cli.zoo import PAPER_MODELS

if TYPE_CHECKING:
    import altair as alt

GPU_GIB = 80
MACHINES: Mapping[int, Machine] = {
    1: v100_server(1, HOST_TO_V100, TWO_NVLINKS),
    2: PRESETS["v100x2-nvlink"],
    4: PRESETS["v100x4-nvlink"],
    8: PRESETS["2x4-v100"],
    16: cluster([v100_server(4, HOST_TO_V100, TWO_NVLINKS)] * 4, [NETWORK] * 4),
}
PARTS = (2, 4, 8, 16)

SINGLE, WHOLE, PESTO, BOUND = "single", "pesto, whole ops", "pesto", "bound"
# The strategies of each column; the best of those that can be used counts.
COLUMNS: Mapping[str, Sequence[str]] = {
    WHOLE: ["pesto"],
    "data-parallel": ["data-parallel", "ev-ps", "ev-ar", "cp-ps", "cp-ar"],
    "tensor-parallel": ["tensor-parallel"],
    "os-dpos": ["os-dpos"],
    "other rivals": ["horovod", "pipeline", "intra-op"],
    PESTO: ["pesto"],
}
MEAN = "geometric mean"
PANEL_WIDTH, PANEL_HEIGHT, PANELS_IN_A_ROW = 210, 160, 4


@dataclass(frozen=True)
class Row:
    """The result of one column for one model and machine.

    column: a name in COLUMNS, SINGLE (on one GPU), or BOUND (on the step time of all plans).
    strategy: the best strategy of the column; empty if none can be used.
    step_ms: None if no strategy of the column can be used; `left_out` then has the reasons.
    """

    model: str
    num_gpus: int
    column: str
    strategy: str = ""
    step_ms: float | None = None
    took_s: float = 0.0
    left_out: str = ""


def main(arguments: Sequence[str] | None = None) -> None:
    """Place the models, write the results as JSON, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=PAPER_MODELS, metavar="MODEL")
    parser.add_argument("--time-limit", type=float, default=90.0, help="of each search of pesto")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--deterministic", action="store_true", help="count units of work, not seconds"
    )
    parser.add_argument(
        "--devices",
        type=_gpu_counts,
        default=[*MACHINES],
        metavar="1,2,...",
        help="numbers of GPUs",
    )
    parser.add_argument(
        "--columns", nargs="+", choices=[*COLUMNS], default=[*COLUMNS], metavar="COLUMN"
    )
    parser.add_argument("--profiles", type=Path, default=Path("build/profiles"))
    parser.add_argument("--output", type=Path, default=Path("build/scaling.json"))
    parser.add_argument("--plot", type=Path, help="a chart of the speed-ups: .svg, .png or .html")
    options = parser.parse_args(arguments)
    if options.plot:
        check_chart_path(options.plot)
    limits = pesto.Limits(
        time_limit_s=options.time_limit,
        seed=options.seed,
        workers=os.cpu_count() or 1,
        deterministic=options.deterministic,
    )
    options.output.parent.mkdir(parents=True, exist_ok=True)
    rows = stored_rows(options.output, limits)
    for model in options.models:
        for row in measure(model, options.devices, options.columns, options.profiles, limits, rows):
            rows.append(row)
            found = row.left_out if row.step_ms is None else f"{row.step_ms:.2f} ms"
            print(f"{model} on {row.num_gpus}, {row.column}: {found}", flush=True)
            record = {**conditions(limits), "rows": list(map(asdict, rows))}
            atomic_write(options.output, json.dumps(record, indent=1).encode())
    shown = [row for row in rows if row.model in options.models and row.num_gpus in options.devices]
    shown.sort(key=lambda row: (options.models.index(row.model), row.num_gpus))
    print(markdown(shown), gaps(shown), sep="\n\n")
    if options.plot:
        write_chart(options.plot, chart(shown))


def _gpu_counts(text: str) -> list[int]:
    """Return the numbers of GPUs, ascending and with 1, to which speed-ups are relative."""
    found = sorted({1, *map(int, text.split(","))})
    unknown = [count for count in found if count not in MACHINES]
    if unknown:
        raise argparse.ArgumentTypeError(f"{unknown[0]} GPUs; some of {[*MACHINES]} were expected")
    return found


def stored_rows(path: Path, limits: pesto.Limits) -> list[Row]:
    """Return the rows of an earlier run, which must have had the same limits."""
    if not path.exists():
        return []
    record = json.loads(path.read_text())
    for name in ("time_limit_s", "seed", "deterministic"):
        if record[name] != getattr(limits, name):
            raise SystemExit(
                f"{path} has results with {name} {record[name]}, but {getattr(limits, name)} was "
                "asked for; give another --output."
            )
    return [Row(**row) for row in record["rows"]]


def measure(
    model: str,
    gpu_counts: Sequence[int],
    columns: Sequence[str],
    profiles: Path,
    limits: pesto.Limits,
    known: Sequence[Row],
) -> Iterator[Row]:
    """Yield the results of one model that are not known yet."""
    is_known = {(row.model, row.num_gpus, row.column) for row in known}
    wanted = [
        (count, column)
        for count in gpu_counts
        for column in [*([SINGLE] if count == 1 else columns), BOUND]
        if (model, count, column) not in is_known
    ]
    if not wanted:
        return
    profile = profile_of(profiles, model, parts=PARTS)
    on_gpus = {
        count: on_large_gpus(profile, MACHINES[count])
        for count in dict.fromkeys(count for count, _ in wanted)
    }
    for count, column in wanted:
        placed = on_gpus[count]
        row = Row(model, count, column)
        if column == BOUND:
            yield replace(row, step_ms=all_plans_bound_us(placed.problem) / 1e3)
        else:
            if column == WHOLE:
                placed = pesto.limit_parts(placed, 1)
            yield filled(row, placed, COLUMNS.get(column, [SINGLE]), limits)


def on_machine(profile: Profile, machine: Machine) -> Profile:
    """Return a profile with another machine, which has devices of the same kinds."""
    permitted = np.ones((profile.problem.num_ops, machine.num_devices), dtype=np.bool_)
    problem = replace(profile.problem, machine=machine, permitted=permitted)
    return replace(profile, problem=problem)


def on_large_gpus(profile: Profile, machine: Machine) -> Profile:
    """Return a profile with another machine, whose GPUs get `GPU_GIB` of memory."""
    return with_memory(on_machine(profile, machine), GPU_GIB)


def filled(row: Row, profile: Profile, strategies: Sequence[str], limits: pesto.Limits) -> Row:
    """Return the row with the shortest step of the strategies whose schedule fits into memory."""
    results: list[Result] = []
    reasons = []
    for strategy in strategies:
        try:
            results.append(pesto.solve(profile, strategy, pesto.Context(limits)))
        except PestoError as error:
            reasons.append(f"{strategy}: {error}")
    row = replace(
        row, took_s=sum(result.runtime_s for result in results), left_out="; ".join(reasons)
    )
    if not results:
        return row
    best = min(results, key=lambda result: result.makespan_us)
    return replace(row, strategy=best.strategy, step_ms=best.makespan_us / 1e3)


def speed_ups(rows: Sequence[Row]) -> dict[tuple[str, int, str], float]:
    """Return the speed-up over one GPU by (model, number of GPUs, column), with geometric means.

    A mean is over the models for which the column has a result.
    """
    single_ms = {row.model: row.step_ms for row in rows if row.column == SINGLE and row.step_ms}
    found = {
        (row.model, row.num_gpus, row.column): single_ms[row.model] / row.step_ms
        for row in rows
        if row.step_ms and row.model in single_ms
    }
    for count, column in dict.fromkeys((count, column) for _, count, column in found):
        logs = [math.log(times) for key, times in found.items() if key[1:] == (count, column)]
        found[MEAN, count, column] = math.exp(sum(logs) / len(logs))
    return found


def markdown(rows: Sequence[Row]) -> str:
    """Return the table, with one line for each model and number of GPUs, and their means."""
    of, times = {(row.model, row.num_gpus, row.column): row for row in rows}, speed_ups(rows)
    columns = [each for each in (SINGLE, *COLUMNS, BOUND) if any(key[2] == each for key in of)]

    def cell(model: str, count: int, column: str) -> str:
        key = (model, count, column)
        if key not in times:
            return "-"
        row = of.get(key)
        settings = COLUMNS.get(column, ())
        named = f", {row.strategy}" if row and len(settings) > 1 else ""
        figures = f"{times[key]:.2f}x{named}"
        return f"{row.step_ms:.1f} ({figures})" if row else figures

    lines = dict.fromkeys((model, count) for model, count, _ in [*of, *times])
    return markdown_table(
        ["model", "GPUs", *columns],
        [
            [model, str(count), *(cell(model, count, column) for column in columns)]
            for model, count in lines
        ],
    )


def gaps(rows: Sequence[Row]) -> str:
    """Return a table of pesto's step times, with their gaps to the bound, and the mean gaps."""
    step_ms = {(row.model, row.num_gpus, row.column): row.step_ms for row in rows if row.step_ms}
    counts = sorted({count for _, count, column in step_ms if column == PESTO})
    found: dict[int, list[float]] = {count: [] for count in counts}

    def cell(model: str, count: int) -> str:
        found_ms, bound_ms = (step_ms.get((model, count, column)) for column in (PESTO, BOUND))
        if found_ms is None or bound_ms is None:
            return "-"
        found[count].append(gap(found_ms, bound_ms))
        return f"{found_ms:.1f} ({found[count][-1]:.1%})"

    lines = [
        [model, f"{step_ms[model, 1, SINGLE]:.1f}", *(cell(model, count) for count in counts)]
        for model in dict.fromkeys(row.model for row in rows)
    ]
    means = [f"{sum(each) / len(each):.1%}" if each else "-" for each in found.values()]
    return markdown_table(
        ["model", "1 GPU", *(f"{count} GPUs" for count in counts)],
        [*lines, ["mean gap", "", *means]],
    )


def chart(rows: Sequence[Row]) -> "alt.FacetChart":
    """Draw the speed-up over the number of GPUs, one panel a model and one for the means."""
    import altair as alt

    values: list[dict[str, Any]] = [
        {"model": model, "GPUs": count, "speed-up": times, "strategy": column}
        for (model, count, column), times in speed_ups(rows).items()
        if column != SINGLE
    ]
    panels = list(dict.fromkeys(value["model"] for value in values))
    # All strategies start from the step on one GPU.
    lines = dict.fromkeys((value["model"], value["strategy"]) for value in values)
    values += [
        {"model": model, "GPUs": 1, "speed-up": 1.0, "strategy": column}
        for model, column in lines
        if column != BOUND
    ]
    counts = sorted({value["GPUs"] for value in values})
    logarithmic = alt.Scale(type="log", base=2)
    shown: alt.FacetChart = (
        alt.Chart(alt.InlineData(values=values))
        .mark_line(point=True)
        .encode(
            x=alt.X("GPUs:Q", scale=logarithmic, axis=alt.Axis(values=counts)),
            y=alt.Y("speed-up:Q", scale=logarithmic, title="speed-up over one GPU"),
            color=alt.Color("strategy:N", title=None, sort=[*COLUMNS, BOUND]),
        )
        .properties(width=PANEL_WIDTH, height=PANEL_HEIGHT)
        .facet(facet=alt.Facet("model:N", title=None, sort=panels), columns=PANELS_IN_A_ROW)
    )
    return shown


if __name__ == "__main__":
    main()
