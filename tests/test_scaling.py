"""The table of `benchmarks.scaling`."""

import json
from pathlib import Path

import pytest

from benchmarks import scaling
from benchmarks.scaling import BOUND, COLUMNS, MEAN, SINGLE, Row, gaps, main, markdown, speed_ups
from pesto_cli import api

# A profile with prices of 2 and 4 parts.
MODEL = "dense"
PROFILE = Path(__file__).parents[1] / "examples" / f"{MODEL}.profile.json.gz"
ROWS = [
    *(Row("A", 1, SINGLE, "single", 8.0), Row("B", 1, SINGLE, "single", 9.0)),
    *(
        Row("A", 2, "data-parallel", "ev-ar", 4.0),
        Row("B", 2, "data-parallel", left_out="ev-ar: -"),
    ),
    *(Row("A", 2, "pesto", "pesto", 4.0), Row("B", 2, "pesto", "pesto", 1.125)),
]


def test_speed_ups_are_over_one_gpu_and_means_over_the_models_with_a_result() -> None:
    times = speed_ups(ROWS)
    assert times["A", 2, "data-parallel"] == times[MEAN, 2, "data-parallel"] == 2
    assert ("B", 2, "data-parallel") not in times
    assert times[MEAN, 2, "pesto"] == pytest.approx(4)
    assert "| A | 2 | - | 4.0 (2.00x, ev-ar) | 4.0 (2.00x) |" in markdown(ROWS)


def test_gaps_are_shares_of_the_step_time() -> None:
    bounds = (Row("A", 2, BOUND, step_ms=3.0), Row("B", 2, BOUND, step_ms=1.125))
    assert gaps([*ROWS, *bounds]).splitlines()[2:] == [
        "| A | 8.0 | 4.0 (25.0%) |",
        "| B | 9.0 | 1.1 (0.0%) |",
        "| mean gap |  | 12.5% |",
    ]


def test_every_model_and_machine_has_a_row_and_is_run_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scaling, "profile_of", lambda *_, parts: api.read_profile(PROFILE))
    output, plot = tmp_path / "scaling.json", tmp_path / "scaling.svg"
    options = ["--time-limit", "0.2", "--output", str(output)]
    main([MODEL, *options, "--devices", "1"])
    first = json.loads(output.read_text())["rows"]
    main([MODEL, *options, "--devices", "2,8", "--plot", str(plot)])
    rows = [Row(**row) for row in json.loads(output.read_text())["rows"]]
    assert [*map(vars, rows[: len(first)])] == first
    by_key = {(row.num_gpus, row.column): row for row in rows}
    columns = {column for count, column in by_key if count == 2}
    assert {*COLUMNS, BOUND} - {"os-dpos"} <= columns
    assert len(by_key) == len(rows) == 2 + 2 * len(columns)
    for count in (2, 8):
        bound = by_key[count, BOUND].step_ms
        found = [by_key[count, column] for column in columns - {BOUND}]
        assert all(row.step_ms >= bound if row.step_ms else row.left_out for row in found)
    # The profile prices at most four parts, so four of the eight GPUs share the batch.
    assert by_key[8, "data-parallel"].strategy
    table = capsys.readouterr().out.split("\n\n")[-2].splitlines()[-8:]
    begins = [line.split(" | ")[:2] for line in table[2:]]
    assert begins == [[f"| {name}", count] for name in (MODEL, MEAN) for count in "128"]
    assert plot.read_text().startswith("<svg")
    with pytest.raises(SystemExit, match="give another --output"):
        main([MODEL, *options, "--seed", "1"])
