"""Plans that do not fit: one message that names op, way, found and expected; no new files."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Pesto
from split_model import BATCH, Files, written

from pesto_cli import api
from pesto_cli.data.constraints import Constraints
from pesto_cli.errors import BadInputError
from pesto_cli.runtime.feeds import batches

Edit = Callable[[dict[str, Any]], Any]
SUM = "gradients/logits_grad/tuple/control_dependency_1"
UPDATE = "train/update_first/ResourceApplyMomentum"
PRODUCT = "gradients/logits_grad/MatMul_1"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return written(tmp_path_factory.mktemp("split"))


def edited(files: Files, folder: Path, edit: Edit) -> Path:
    value = json.loads(files.placement.read_text())
    edit(value)
    path = folder / "edited.placement.json"
    path.write_text(json.dumps(value))
    return path


def chosen(op: str = "product", **values: Any) -> Edit:
    """Split one op in another way."""

    def edit(value: dict[str, Any]) -> None:
        plan = value["plan"]
        choice = plan["choices"][plan["ops"].get(op, 0)]
        plan["ops"][op] = len(plan["choices"])
        plan["choices"].append(choice | values)

    return edit


def pieces_of_other_sizes(value: dict[str, Any]) -> None:
    """Cut a variable in another way than its update and its slot."""
    for op, sizes in [("first", [2, 4]), ("product/ReadVariableOp", [2, 4]), (UPDATE, [3, 3])]:
        chosen(op, alternative="variable 0", sizes=sizes)(value)
    chosen("first/Momentum", alternative="variable 0", sizes=[3, 3])(value)


def copies_of_other_number(value: dict[str, Any]) -> None:
    """Mirror a variable with fewer copies than its update and its slot."""
    for op in ("first", "product/ReadVariableOp"):
        chosen(op, alternative="mirrored", sizes=[1, 1])(value)
    for op in (UPDATE, "first/Momentum"):
        chosen(op, alternative="mirrored", sizes=[1, 1, 1])(value)


WRONG_PLANS: list[tuple[Edit, list[str]]] = [
    (lambda value: value["plan"]["ops"].update(nowhere=0), ["'nowhere'", "parts.ops"]),
    (
        lambda value: value["plan"]["ops"].update(first=0),
        ["splits op 'first' (VarHandleOp) by 'rows'", "one of 'variable 0', 'variable 1'"],
    ),
    (
        chosen("first", alternative="variable 0", sizes=[3, 3]),
        ["variable 'first'", "not all ops that take it", "leave the variable whole"],
    ),
    (
        chosen("first", alternative="mirrored", sizes=[1, 1]),
        ["mirrors variable 'first'", "'train/update_first/ResourceApplyMomentum'", "is whole"],
    ),
    (
        chosen("train/update_first/ResourceApplyMomentum", alternative="variable 0", sizes=[3, 3]),
        ["'train/update_first/ResourceApplyMomentum' by 'variable 0'", "not variable 'first'"],
    ),
    (copies_of_other_number, [f"{UPDATE!r} by 'mirrored'", "'first'", "the same sizes"]),
    (pieces_of_other_sizes, [f"{UPDATE!r} by 'variable 0'", "'first'", "the same sizes"]),
    (
        chosen(alternative="diagonal"),
        ["splits op 'product' (MatMul) by 'diagonal'", "one of 'rows', 'columns', 'contracted'"],
    ),
    (chosen(sizes=[4, 5]), ["'product' by 'rows'", "4, 5", "add up to 9", "add up to 8"]),
    (chosen(sizes=[4]), ["'product' into 1 parts; 2 to 16"]),
    (chosen(sizes=[]), ["'product' into 0 parts; 2 to 16"]),
    (chosen(sizes=[0, 8]), ["'product' by 'rows'", "0, 8", "at least 1"]),
    (chosen(sizes=[1] * 9), ["'product' by 'rows'", "add up to 9", "add up to 8"]),
    (chosen(sizes=[1] * 17), ["'product' into 17 parts; 2 to 16"]),
    (chosen(SUM, sizes=[1, 2]), [f"{SUM!r} parts of sizes 1, 2 by 'sum'", "1 for each part"]),
    (chosen(SUM, sizes=[1, 1, 1]), [f"{SUM!r} take open sums in slot 0", f"{PRODUCT!r}", "3"]),
    (
        lambda value: value["plan"]["ops"].pop(PRODUCT),
        [f"{SUM!r} take open sums in slot 0", f"{PRODUCT!r} does not compute 2 of them"],
    ),
]


@pytest.mark.parametrize(
    ("edit", "words"), WRONG_PLANS, ids=[str(row[1][0]) for row in WRONG_PLANS]
)
@pytest.mark.parametrize("command", ["simulate", "apply"])
def test_a_plan_that_does_not_fit_the_graph(
    pesto: Pesto, files: Files, tmp_path: Path, edit: Edit, words: list[str], command: str
) -> None:
    path = edited(files, tmp_path, edit)
    refused = (
        pesto("apply", files.graph, path, "-o", tmp_path / "out.meta")
        if command == "apply"
        else pesto("simulate", files.profile, "--placement", path, "--trace", tmp_path / "t.json")
    )
    assert refused.code == 2
    assert refused.err.count("\n") == 1
    assert all(word in refused.err for word in words), refused.err
    assert [*tmp_path.iterdir()] == [path]


def rows_of(column: str, change: Callable[[list[Any]], Any]) -> Edit:
    section, name = column.split(".")
    return lambda value: change(value[section][name])


def renamed(column: str, old: str, new: str) -> Edit:
    return rows_of(column, lambda rows: rows.__setitem__(rows.index(old), new))


DAMAGED: list[tuple[Edit, str]] = [
    (rows_of("parts.origin", lambda rows: rows.pop()), "parts.origin and part have 50 and 51"),
    (rows_of("parts.origin", lambda rows: rows.__setitem__(0, 999)), "parts.origin names op 999"),
    (rows_of("parts.origin", lambda rows: rows.__setitem__(0, -2)), "greater than or equal to -1"),
    (rows_of("parts.part", lambda rows: rows.__setitem__(0, "a")), "a whole number was expected"),
    (rows_of("parts.part", lambda rows: rows.__setitem__(0, 7)), "the placement says that "),
    (rows_of("parts.ops", lambda rows: rows.__setitem__(0, rows[1])), "names an op twice"),
    (rows_of("parts.ops", lambda rows: rows.append("new")), "one for each of the 34 ops"),
    (renamed("parts.ops", "first", "new"), "1 other ops such as 'new'"),
    (rows_of("plan.choices", lambda rows: rows.clear()), "an index into the 0 entries"),
    (
        rows_of("plan.choices", lambda rows: rows[0].pop("sizes")),
        "choices.0 (entry 1) has no sizes; a list",
    ),
    (rows_of("plan.hosts", lambda rows: rows.append(-1)), "plan.hosts"),
    (rows_of("plan.hosts", lambda rows: rows.append(0)), "one for each of 2 parts"),
    (rows_of("plan.hosts", lambda rows: rows.extend([0, 2])), "names host 2; numbers from 0 to 1"),
    (rows_of("ops.name", lambda rows: rows.__setitem__(0, "x.part_0")), "'x.part_0'"),
    (lambda value: value.pop("plan"), "parts without a plan"),
    (lambda value: value.pop("parts"), "which is not in parts.ops"),
]


@pytest.mark.parametrize(("edit", "words"), DAMAGED, ids=[words for _, words in DAMAGED])
def test_a_damaged_section_is_refused(
    pesto: Pesto, files: Files, tmp_path: Path, edit: Edit, words: str
) -> None:
    path = edited(files, tmp_path, edit)
    refused = pesto("simulate", files.profile, "--placement", path)
    assert refused.code == 2
    assert words in refused.err, refused.err


def test_parts_that_the_profile_does_not_price(pesto: Pesto, files: Files, tmp_path: Path) -> None:
    path = edited(files, tmp_path, chosen(sizes=[1, 7]))
    refused = pesto("simulate", files.profile, "--placement", path)
    assert refused.code == 2
    for word in ("op 'product' (MatMul)", "a share of 0.125 by 'rows'", "0.25", "--parts 2,4"):
        assert word in refused.err


def test_ops_that_must_stay_whole_are_named(files: Files) -> None:
    profile, placed = api.load(files.profile), api.load(files.placement)
    kept = api.constrain(profile, Constraints(whole=["product"]))
    with pytest.raises(BadInputError, match=r"'product' \(MatMul\) by 'rows'; .* not static, or"):
        api.simulate(kept, placed)


def test_a_batch_of_another_size_is_refused(files: Files, tmp_path: Path) -> None:
    feeds = tmp_path / "feeds.npz"
    rows, labels = np.ones((BATCH // 2, 6), np.float32), np.zeros(BATCH // 2, np.int32)
    np.savez(feeds, rows=rows, labels=labels)
    split = api.apply(api.load(files.graph), api.load(files.placement))
    with pytest.raises(BadInputError, match=r"'rows' is float32 of shape \[4,6\]; .*\[8,6\] was"):
        next(batches(split, str(feeds)))


def test_the_placement_of_several_that_is_damaged_is_named(
    pesto: Pesto, files: Files, tmp_path: Path
) -> None:
    path = edited(files, tmp_path, chosen(alternative="diagonal"))
    diffed = pesto("diff", files.placement, path, "--profile", files.profile)
    assert diffed.err.startswith("Error: the second placement: the plan splits op 'product'")
    shown = pesto("report", files.profile, files.placement, path, "-o", tmp_path / "page.html")
    assert shown.err.startswith("Error: placement 'edited': the plan splits op 'product'")
    assert {diffed.code, shown.code} == {2}
