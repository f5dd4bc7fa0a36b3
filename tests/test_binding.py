"""Colocation groups that bind much of a step are reported; normal graphs give no report."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Pesto
from training_graphs import exported

from pesto_cli import api
from pesto_cli.data.binding import binding_note, bindings
from pesto_cli.data.graph import OpGraph, Tensor
from pesto_cli.data.presets import PRESETS
from pesto_cli.data.problem import Problem
from pesto_cli.files import Profile, write_profile
from pesto_cli.files.tensorflow_names import labelled

MACHINE = PRESETS["v100x2-nvlink"]


def problem(types: list[str], us: list[float], **columns: Any) -> Problem:
    """Return a problem of ops that are named by type and number."""
    names = [f"{kind}_{number}" for number, kind in enumerate(types)]
    graph = labelled(OpGraph.build(names, types=types, **columns))
    return Problem.build(graph, {"GPU": us, "CPU": [np.nan] * len(us)}, MACHINE)


def update_of(num_variables: int, op_type: str) -> Problem:
    """Return a problem of variables that one op updates, and a product of each."""
    variables = range(num_variables)
    update = 2 * num_variables
    return problem(
        [*["VarHandleOp"] * num_variables, *["MatMul"] * num_variables, op_type],
        [1.0] * num_variables + [100.0] * num_variables + [50.0],
        tensors=[Tensor(variable, 8, [num_variables + variable, update]) for variable in variables],
        resident_bytes=[1000] * num_variables + [0] * (num_variables + 1),
        colocation_group=[*["tied"] * num_variables, *[None] * num_variables, "tied"],
    )


def test_a_conditional_that_binds_variables_is_named_with_its_shares() -> None:
    (found,) = bindings(update_of(8, "If"))
    assert (found.name, found.op_type, found.num_ops) == ("If_16", "If", 9)
    assert found.variables == pytest.approx(7 / 8)
    assert found.work == pytest.approx(57 / 858)  # All but the longest elementary op.
    note = binding_note(update_of(8, "If"))
    assert note is not None
    assert "'If_16' (If) binds 9 ops to one device" in note
    assert "88% of the variables' bytes" in note
    assert note.endswith("pesto export splits conditionals of this form.")


def test_a_resource_with_many_readers_is_named() -> None:
    many = 30
    reads = problem(
        ["VarHandleOp", *["ReadVariableOp"] * many, "MatMul"],
        [1.0, *[10.0] * many, 300.0],
        tensors=[Tensor(0, 8, range(1, many + 1))],
        resident_bytes=[4, *[0] * (many + 1)],
        colocation_group=["tied"] * (many + 1) + [None],
    )
    (found,) = bindings(reads)
    assert (found.name, found.num_ops) == ("VarHandleOp_0", many + 1)
    assert found.variables == 0  # One variable cannot be spread.


def test_the_longer_of_two_loops_that_share_state_is_named() -> None:
    loops = problem(
        ["While", "StatelessWhile", "MatMul"],
        [100.0, 200.0, 100.0],
        tensors=[Tensor(0, 8, [1])],
        colocation_group=["tied", "tied", None],
    )
    (found,) = bindings(loops)
    assert (found.name, found.work) == ("StatelessWhile_1", 0.75)
    assert "unroll" in found.text


def test_a_conditional_on_one_variable_has_no_remedy_to_export_again() -> None:
    (found,) = bindings(update_of(1, "If"))
    assert found.text.endswith("with 33% of the work: these ops cannot be spread over devices")


@pytest.mark.parametrize(
    "found",
    [
        update_of(3, "ResourceApplyAdam"),
        problem(["MatMul", "MatMul"], [1000.0, 1.0]),
        problem(["VarHandleOp", "VarHandleOp"], [0.0, 0.0], resident_bytes=[10**9, 1]),
        problem(["NoOp"], [0.0]),
    ],
    ids=["an optimiser's slots", "a long op", "a large variable", "nothing"],
)
def test_normal_graphs_have_no_binding_note(found: Problem) -> None:
    assert bindings(found) == []
    assert binding_note(found) is None


def test_a_coarse_problem_has_no_binding_note() -> None:
    fine = Profile(update_of(8, "If"), {})
    assert bindings(api.coarsen(fine, 5).problem) == []


def test_profile_prints_the_binding_note(caplog: pytest.LogCaptureFixture) -> None:
    def tied(tf: Any) -> list[Any]:
        """Build two variables that one op updates, and products of them."""
        fed = tf.compat.v1.placeholder(tf.float32, [8, 8], name="fed")
        one, other = (
            tf.compat.v1.get_variable(name, [8, 8], use_resource=True) for name in ("one", "other")
        )

        def updated() -> Any:
            return one.assign_add(fed) @ other.assign_add(fed)

        return [tf.compat.v1.cond(tf.reduce_sum(fed) > 0, updated, lambda: one + other)]

    api.profile(exported(tied, functional_control_flow=True), MACHINE)
    said = [record.message for record in caplog.records if "variables' bytes" in record.message]
    assert len(said) == 1
    assert said[0].startswith("'cond' (If) binds 3 ops to one device")


def test_solve_prints_the_binding_note_once_unless_quiet(pesto: Pesto, tmp_path: Path) -> None:
    profile = tmp_path / "tied.profile.json"
    write_profile(profile, Profile(update_of(8, "If"), {}))
    command = ("solve", profile, "-o", tmp_path / "placed.json", "--strategy", "single")
    said = pesto(*command)
    assert said.code == 0
    assert said.err.count("binds 9 ops") == 1
    assert "binds" not in pesto(*command, "--quiet").err
