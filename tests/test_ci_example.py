"""Run the step of the workflow in examples/ci unchanged, before and after a model changes."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from warm_python import warm_commands

EXAMPLES = Path(__file__).parent.parent / "examples"
WORKFLOW = yaml.safe_load((EXAMPLES / "ci" / "placements.yml").read_text())
JOB = WORKFLOW["jobs"]["placement"]
(NAMED,) = JOB["strategy"]["matrix"]["include"]
MODEL, PLACEMENT = Path(NAMED["source"].partition(":")[0]), Path(NAMED["placement"])
COMMENT = "comment.md"


@dataclass(frozen=True)
class Checkout:
    """A repository with the workflow's files."""

    folder: Path
    commands: Path

    @property
    def placement(self) -> bytes:
        return (self.folder / PLACEMENT).read_bytes()

    @property
    def comment(self) -> str:
        return (self.folder / COMMENT).read_text()

    def change(self, before: str, after: str) -> None:
        path = self.folder / MODEL
        text = path.read_text()
        assert text.count(before) == 1
        path.write_text(text.replace(before, after))

    def job(self, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run the workflow's step as GitHub does."""
        (step,) = (step for step in JOB["steps"] if step.get("name") == "Regenerate")
        return subprocess.run(
            ["bash", "-e", "-c", step["run"]],
            cwd=self.folder,
            env={
                **os.environ,
                "SOURCE": NAMED["source"],
                "PLACEMENT": NAMED["placement"],
                "ACCEPT_BY": JOB["env"]["ACCEPT_BY"],
                "PATH": f"{self.commands}:{os.environ['PATH']}",
                "COMMENT": COMMENT,
                "TIME_LIMIT": "0.5",
                "GITHUB_STEP_SUMMARY": "summary.md",
                **environment,
            },
            capture_output=True,
            text=True,
        )


@pytest.fixture(scope="module")
def commands() -> Iterator[Path]:
    with warm_commands() as folder:
        yield folder


@pytest.fixture(scope="module")
def main_branch(tmp_path_factory: pytest.TempPathFactory, commands: Path) -> Checkout:
    """A repository with the placement that the job computes if there is none."""
    folder = tmp_path_factory.mktemp("main branch")
    for path, source in (
        (MODEL, EXAMPLES / "two_towers.py"),
        (Path(".github/regenerate.sh"), EXAMPLES / "ci" / "regenerate.sh"),
    ):
        (folder / path).parent.mkdir(parents=True)
        shutil.copy(source, folder / path)
    checkout = Checkout(folder, commands)
    done = checkout.job()
    assert done.returncode == 0, done.stderr
    assert checkout.comment.startswith(f"### {PLACEMENT}: new\n")
    (folder / COMMENT).unlink()
    return checkout


@pytest.fixture
def branch(main_branch: Checkout, tmp_path: Path) -> Checkout:
    shutil.copytree(main_branch.folder, tmp_path / "a branch")
    return Checkout(tmp_path / "a branch", main_branch.commands)


def test_an_unchanged_model_is_fresh_and_nothing_is_solved_or_written(branch: Checkout) -> None:
    before = branch.placement
    done = branch.job()
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0] == f"{PLACEMENT.name}: fresh"
    assert branch.placement == before
    assert not (branch.folder / COMMENT).exists()


def test_a_regression_fails_until_it_is_accepted(branch: Checkout) -> None:
    branch.change("LAYERS = 64, 8, 10_000, 512, 4", "LAYERS = 64, 8, 10_000, 512, 6")
    before = branch.placement
    refused = branch.job()
    assert refused.returncode == 1
    assert "2.0% was accepted" in refused.stderr
    assert branch.placement == before
    assert "only in after" in branch.comment
    assert branch.comment.splitlines()[0] == (
        f'### {PLACEMENT}: kept, as the new step is more than 2% slower (the label "slower step '
        'accepted" accepts it)'
    )
    branch.change("LAYERS = 64, 8,", "LAYERS = 48, 8,")
    accepted = branch.job(MAX_REGRESSION="50%")
    assert accepted.returncode == 0, accepted.stderr
    assert "left/layer_5/MatMul" in json.loads(branch.placement)["ops"]["name"]
    assert branch.comment.startswith(f"### {PLACEMENT}: replaced\n")
    assert branch.comment in (branch.folder / "summary.md").read_text()


def test_ops_that_cost_more_are_a_regression_too(branch: Checkout) -> None:
    branch.change("LAYERS = 64, 8, 10_000, 512, 4", "LAYERS = 64, 8, 10_000, 1024, 4")
    before = branch.placement
    refused = branch.job()
    assert refused.returncode == 1, refused.stderr
    assert "compared with the prediction stored in the first one" in branch.comment
    assert branch.placement == before


def test_a_failed_command_is_reported(branch: Checkout) -> None:
    before = branch.placement
    branch.change("LAYERS = 64,", "LAYERS = 64 +,")
    failed = branch.job()
    assert failed.returncode == 2
    assert branch.comment.startswith(f"### {PLACEMENT}: pesto export failed\n")
    assert "SyntaxError" in branch.comment
    assert branch.placement == before
    branch.change("LAYERS = 64 +,", "LAYERS = 64,")
    (branch.folder / PLACEMENT).write_bytes(b"<<<<<<< HEAD\n" + before)
    damaged = branch.job()
    assert damaged.returncode == 2
    assert branch.comment.startswith(f"### {PLACEMENT}: pesto check failed\n")
    assert "has the conflict markers of a merge" in branch.comment
    assert branch.comment in (branch.folder / "summary.md").read_text()


def test_a_model_with_all_names_changed_is_solved_without_warm_start(branch: Checkout) -> None:
    before = set(json.loads(branch.placement)["ops"]["name"])
    branch.change("def build() ", "def towers() ")
    path = branch.folder / MODEL
    path.write_text(
        f"{path.read_text()}\n\ndef build():\n"
        '    with tf.name_scope("net"), tf1.variable_scope("net"):\n        return towers()\n'
    )
    done = branch.job(MAX_REGRESSION="50%")
    assert done.returncode == 0, done.stderr
    assert "the placements are of two models" in branch.comment
    assert before.isdisjoint(json.loads(branch.placement)["ops"]["name"])
