"""`pesto rounds` shows what a tuning log says, and runs nothing."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import Pesto
from test_tuning import Simulated, WithoutEnd, differing, measured_profile, towers

from pesto_cli.data.limits import Limits
from pesto_cli.files import TuningLog, read_tuning_log, write_tuning_log
from pesto_cli.tuning.tuned import tuned


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log of a whole tuning, on a simulated machine."""
    path = tmp_path_factory.mktemp("log") / "towers.tuning.json"
    profile = measured_profile(towers())
    steps = Simulated(differing(profile.problem))
    found = tuned(TuningLog(profile), steps, WithoutEnd(8.0), Limits(workers=1))
    write_tuning_log(path, found.log)
    return path


def test_the_rounds_the_factors_and_the_decision_of_a_log_are_shown(
    pesto: Pesto, log: Path
) -> None:
    known = read_tuning_log(log)
    shown = pesto("rounds", log)
    assert shown.code == 0
    titles = [f"round {number}: " for number in range(len(known.search_rounds))]
    for title in (*titles, "final round: "):
        assert shown.out.count(title) == 1
    assert "Fitted to the measured steps: op times x " in shown.out
    assert " ± " in shown.out
    assert "\nAnswer: " in shown.out
    ran = {row.candidate for each in known.rounds for row in each.measured}
    others = [each.name for each in known.candidates if each.name not in ran]
    assert (f"Not run: {'; '.join(others)}." in shown.out) == bool(others)


def test_a_log_is_shown_as_json_and_plotted(pesto: Pesto, log: Path, tmp_path: Path) -> None:
    plot = tmp_path / "steps.svg"
    record = json.loads(pesto("rounds", log, "--json", "--plot", plot).out)
    known = read_tuning_log(log)
    assert record["is_final"]
    assert record["choice"]["answer"] in known.candidate_of
    assert [each["is_final"] for each in record["rounds"]] == [
        each.is_final for each in known.rounds
    ]
    assert record["deviations"].keys() <= record["factors"].keys()
    assert plot.read_text().startswith("<svg")


def test_a_log_without_a_final_round_has_the_best_so_far(
    pesto: Pesto, log: Path, tmp_path: Path
) -> None:
    path, known = tmp_path / "early.tuning.json", read_tuning_log(log)
    write_tuning_log(path, replace(known, rounds=known.rounds[:1]))
    assert "\nBest so far: " in pesto("rounds", path).out


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"format": "pesto-profile", "version": 1}', "tuning log"),
        ("{", "is truncated or damaged"),
        ("", "is not JSON"),
    ],
)
def test_a_damaged_or_foreign_file_is_refused(
    pesto: Pesto, tmp_path: Path, content: str, words: str
) -> None:
    path = tmp_path / "other.json"
    path.write_text(content)
    refused = pesto("rounds", path)
    assert refused.code == 2
    assert words in refused.err
    assert str(path) in refused.err
    assert not refused.out


def test_a_log_without_a_round_is_refused(pesto: Pesto, log: Path, tmp_path: Path) -> None:
    path = tmp_path / "early.tuning.json"
    write_tuning_log(path, replace(read_tuning_log(log), rounds=()))
    refused = pesto("rounds", path)
    assert refused.code == 2
    assert "has no round" in refused.err
