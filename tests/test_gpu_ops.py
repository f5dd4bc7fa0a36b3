"""The H100's efficiencies fit the op times that were measured (`benchmarks.gpu_ops`)."""

import json
from pathlib import Path

import pytest

from benchmarks.gpu_ops import table
from pesto_cli.data.efficiencies import H100_EFFICIENCY, H100_FAMILIES

H100, PARTS, H200 = (
    json.loads((table.FOLDER / f"{name}.json").read_text())
    for name in ("H100", "H100.parts", "H200")
)


@pytest.mark.parametrize("name", H100_FAMILIES)
def test_the_efficiencies_are_those_that_fit_the_measured_times(name: str) -> None:
    family = H100_FAMILIES[name]
    found = table.times(H100, family).joined(table.times(PARTS, family))
    fit = table.fitted(found, family)
    assert found.error(family.efficiency) <= found.error(fit) + 0.03
    assert family.efficiency.memory == pytest.approx(fit.memory, abs=0.01)
    assert family.efficiency.arithmetic == pytest.approx(fit.arithmetic, rel=0.2)
    assert family.efficiency.start_us == pytest.approx(fit.start_us, abs=0.1)
    assert found.error(family.efficiency) < found.error(table.PEAK)


def test_the_documentation_has_the_tables() -> None:
    page = (Path(__file__).parents[1] / "docs" / "profiling.md").read_text()
    assert table.families(H100, PARTS, H200) in page
    assert table.models(H100) in page
    assert table.split_models() in page


def test_no_op_type_is_in_two_families() -> None:
    types = [each for family in H100_FAMILIES.values() for each in family.op_types]
    assert len(types) == len({*types})
    assert {*types} < {*H100_EFFICIENCY}


def test_the_efficiencies_are_better_than_peak_rates_on_another_gpu() -> None:
    for family in H100_FAMILIES.values():
        found = table.times(H200, family)
        if len(found.us):
            assert found.error(family.efficiency) < found.error(table.PEAK)


@pytest.mark.parametrize(("model", "step_ms"), table.steps_ms().items())
def test_sums_of_estimates_are_near_the_step_of_the_whole_model(model: str, step_ms: float) -> None:
    found = table.sums(H100, model)
    assert found.kernels == pytest.approx(step_ms, rel=0.25)
    assert found.efficient == pytest.approx(step_ms, rel=0.25)
    assert found.peak > 1.5 * step_ms
