"""Tuned plans against those of `pesto solve`: `python -m benchmarks.tuning [MODEL]...`.

Each model of `benchmarks.fidelity.models` is tuned for ten minutes on two workers of this host. The
profile that the tuning measured is also solved, without any correction. Then four plans run by
turns in new sessions: the tuned one, that of `solve`, `single` and `expert`. The results are
written as JSON and printed as a table. Models that the file already has are not measured again. Run
it on an idle machine.
"""

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.fidelity import MACHINE
from benchmarks.fidelity.models import MODELS
from benchmarks.fidelity.placements import exported
from benchmarks.quality import conditions
from pesto_cli import api as pesto
from pesto_cli.data.steps import StepTimes, speed_up
from pesto_cli.files import atomic_write
from pesto_cli.report.markdown import markdown_table
from pesto_cli.tuning.clock import Phase

SOLVE_S, STEPS = 20.0, 24
BY_HAND = ("single", "expert")


@dataclass(frozen=True)
class Row:
    """The result for one model.

    answer: the candidate that the tuning chose. rounds: number of its rounds of searches.
    errors: of each round, the mean absolute error of the predictions that were made before it.
    predicted_ms, final_ms: the answer's last prediction, and its measured step in the final round.
    used: share of the tuning's time for searches and steps. seconds: that time.
    step_ms: placement -> measured step of the comparison after the tuning.
    times_solve, times_by_hand: how many times faster the answer is than the plan of `solve`, and
        than the better one by hand; each with the limits of its 95 % interval.
    """

    model: str
    answer: str
    rounds: int
    errors: tuple[float, ...]
    predicted_ms: float
    final_ms: float
    used: float
    seconds: float
    step_ms: dict[str, float]
    times_solve: tuple[float, float, float]
    times_by_hand: tuple[float, float, float]

    @property
    def last_error(self) -> float:
        """The relative error of the answer's last prediction; positive if it was too long."""
        return self.predicted_ms / self.final_ms - 1


def main(arguments: Sequence[str] | None = None) -> None:
    """Tune the models, write the results as JSON, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=list(MODELS), metavar="MODEL")
    parser.add_argument("--machine", default=MACHINE)
    parser.add_argument("--time-limit", type=float, default=600.0, help="of each tuning")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path("build/tuning.json"))
    options = parser.parse_args(arguments)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    limits = pesto.Limits(options.time_limit, seed=options.seed, workers=os.cpu_count() or 1)
    rows = _stored_rows(options.output)
    for model in options.models:
        if model not in {row.model for row in rows}:
            rows.append(measured(model, options.machine, limits, options.output.parent))
            print(asdict(rows[-1]), flush=True)
            record = {**conditions(limits), "rows": list(map(asdict, rows))}
            atomic_write(options.output, json.dumps(record, indent=1).encode())
    print(markdown([row for row in rows if row.model in options.models]))


def _stored_rows(path: Path) -> list[Row]:
    return [Row(**row) for row in json.loads(path.read_text())["rows"]] if path.exists() else []


def measured(model: str, machine: str, limits: pesto.Limits, folder: Path) -> Row:
    """Tune a model, solve its profile, and run the plans by turns; folder: for the log."""
    meta, log = exported(model), folder / f"{model}.tuning.json"
    log.unlink(missing_ok=True)  # of a run that was interrupted
    with pesto.connected(machine) as cluster:
        found = pesto.tune(meta, cluster, time_limit_s=limits.time_limit_s, limits=limits, log=log)
    if found.error is not None:
        raise found.error
    profile = found.log.profile
    context = pesto.Context(pesto.Limits(SOLVE_S, seed=limits.seed, workers=limits.workers))
    results = {
        "solve": pesto.solve(profile, "pesto", context),
        **{name: pesto.solve(profile, name, context) for name in BY_HAND},
    }
    placed = {"tuned": found.placement} | {
        name: pesto.placement(profile, result) for name, result in results.items()
    }
    # New workers: workers do not free the memory of earlier sessions.
    with pesto.connected(machine) as cluster:
        runs = pesto.run_steps(meta, cluster, list(placed.values()), steps=STEPS)
    times = {name: run.times for name, run in zip(placed, runs, strict=True)}
    by_hand = min(BY_HAND, key=lambda name: times[name].median_us)
    last = found.log.rounds[-1].of(found.choice.answer)
    assert last is not None
    return Row(
        model=model,
        answer=found.choice.answer,
        rounds=len(found.log.search_rounds),
        errors=tuple(
            sum(abs(row.error) for row in each.measured) / len(each.measured)
            for each in found.log.rounds
        ),
        predicted_ms=last.predicted_us / 1e3,
        final_ms=last.times.median_us / 1e3,
        used=found.shares[Phase.SEARCH] + found.shares[Phase.STEPS],
        seconds=found.seconds,
        step_ms={name: each.median_us / 1e3 for name, each in times.items()},
        times_solve=_interval(times["solve"], times["tuned"]),
        times_by_hand=_interval(times[by_hand], times["tuned"]),
    )


def _interval(base: StepTimes, other: StepTimes) -> tuple[float, float, float]:
    faster = speed_up(base, other)
    return faster.times, faster.low, faster.high


def markdown(rows: Sequence[Row]) -> str:
    """Return the table with one line for each model."""
    return markdown_table(
        [
            "model",
            "answer",
            "rounds",
            "error by round",
            "last error",
            "tuned ms",
            "`solve`",
            "single",
            "expert",
            "times `solve` (95 %)",
            "times by hand (95 %)",
            "search, steps",
            "s",
        ],
        [
            [
                row.model,
                row.answer,
                str(row.rounds),
                ", ".join(f"{error:.0%}" for error in row.errors),
                f"{row.last_error:+.1%}",
                *(f"{row.step_ms[name]:.0f}" for name in ("tuned", "solve", *BY_HAND)),
                *(
                    f"{times:.2f} ({low:.2f} - {high:.2f})"
                    for times, low, high in (row.times_solve, row.times_by_hand)
                ),
                f"{row.used:.0%}",
                f"{row.seconds:.0f}",
            ]
            for row in rows
        ],
        num_text=2,
    )


if __name__ == "__main__":
    main()
