"""The rounds of a tuning as tables and as JSON values."""

from collections.abc import Mapping
from itertools import count
from typing import Any

from pesto_cli.data.steps import speed_up
from pesto_cli.files import Measurement, TuningLog, TuningRound
from pesto_cli.report.layouts import Layouts, layouts
from pesto_cli.report.times import TimeScale


def round_tables(log: TuningLog) -> list[Layouts]:
    """Return a table for each round of a log: its candidates, the fastest first."""
    return [
        _table(f"{name}: {each.measured[0].us.size} steps of each candidate, by turns", each)
        for name, each in zip(round_names(log), log.rounds, strict=True)
    ]


def _table(title: str, ran: TuningRound) -> Layouts:
    rows = sorted(ran.measured, key=lambda row: row.times.median_us)
    scale = TimeScale.of(row.times.min_us for row in rows)
    columns = ["candidate", f"predicted {scale.unit}", "error", f"measured {scale.unit}"]
    columns += [f"middle half {scale.unit}", f"times {rows[0].candidate}", "95 %"]
    return layouts(title, columns, [_line(row, rows[0], scale) for row in rows])


def _line(row: Measurement, first: Measurement, scale: TimeScale) -> list[str]:
    faster = speed_up(first.times, row.times)
    return [
        row.candidate,
        scale.text(row.predicted_us),
        f"{row.error:+.1%}",
        scale.text(row.times.median_us),
        " - ".join(map(scale.text, row.times.quartiles_us)),
        f"{faster.times:.3f}",
        f"{faster.low:.3f} - {faster.high:.3f}",
    ]


def round_names(log: TuningLog) -> list[str]:
    """Return a name for each round of a log; search rounds are numbered from 0."""
    numbers = count()
    return ["final round" if each.is_final else f"round {next(numbers)}" for each in log.rounds]


def shares_text(shares: Mapping[str, float], seconds: float) -> str:
    """Return what the time was used for, in one line."""
    return f"{seconds:.0f} s: " + ", ".join(
        f"{phase} {share:.0%}" for phase, share in shares.items()
    )


def rounds_json(log: TuningLog) -> list[dict[str, Any]]:
    """Return all rounds as JSON values, with the time of every step."""
    return [
        {"is_final": each.is_final, "measured": list(map(_json, each.measured))}
        for each in log.rounds
    ]


def _json(row: Measurement) -> dict[str, Any]:
    return {
        "candidate": row.candidate,
        "predicted_us": row.predicted_us,
        "median_us": row.times.median_us,
        "quartiles_us": list(row.times.quartiles_us),
        "error": row.error,
        "steps_us": row.us.tolist(),
    }
