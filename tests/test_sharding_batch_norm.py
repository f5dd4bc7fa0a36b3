"""Split batch normalisation does not depend on what a kernel stores for its gradient."""

from collections.abc import Sequence

import numpy as np
import pytest
import sharding_cases.batch_norm
import sharding_programs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sharding_cases import CASES
from sharding_ops import Array, Case, Input, case, computed
from sharding_tensors import part_sizes

from pesto_cli.data.specs import OpSpec
from pesto_cli.sharding.rules import WITH_SCRATCH, alternatives

VECTOR = np.ones(3, "float32")


def computed_as_on_a_gpu(spec: OpSpec, inputs: Sequence[Input]) -> list[Array]:
    """Return the outputs of an op whose kernel stores 1 / sqrt(variance + ε), not the variance."""
    if spec.type not in WITH_SCRATCH or not spec.attribute["is_training"]:
        return computed(spec, inputs)
    epsilon = np.float32(spec.attribute["epsilon"])
    if "Grad" not in spec.type:
        outputs = computed(spec, inputs)
        return [*outputs[:4], (outputs[4] + epsilon) ** -0.5, *outputs[5:]]
    stored = inputs[4]
    assert isinstance(stored, np.ndarray)
    return computed(spec, [*inputs[:4], stored**-2 - epsilon, *inputs[5:]])


@pytest.mark.parametrize("op_type", sorted(WITH_SCRATCH))
def test_parts_compute_the_same_if_kernels_store_inverse_deviations(
    op_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (sharding_programs, sharding_cases.batch_norm):
        monkeypatch.setattr(module, "computed", computed_as_on_a_gpu)

    @settings(
        max_examples=25, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(CASES[op_type], st.data())
    def proved(case: Case, data: st.DataObject) -> None:
        for alternative in alternatives(case.spec):
            sizes = data.draw(part_sizes(alternative.size), alternative.name)
            sharding_programs.prove(case, alternative, sizes)

    proved()


def test_kernels_that_store_something_else_are_told_apart() -> None:
    images = np.random.default_rng(0).normal(size=(4, 2, 2, 3)).astype("float32")
    whole = case("FusedBatchNormV3", images, *(VECTOR,) * 4)
    stored = [run(whole.spec, whole.inputs)[4] for run in (computed, computed_as_on_a_gpu)]
    assert not np.allclose(*stored)


@pytest.mark.parametrize(
    ("shape", "data_format", "expected"),
    [
        ((4, 2, 2, 3), "NHWC", {"batch", "channels", "replicated"}),
        ((4, 3, 2, 2), "NCHW", {"batch", "channels", "replicated"}),
        ((4, 1, 1, 3), "NHWC", {"channels", "replicated"}),
    ],
)
def test_batches_of_single_pixels_stay_whole(
    shape: tuple[int, ...], data_format: str, expected: set[str]
) -> None:
    images = np.zeros(shape, "float32")
    spec = case("FusedBatchNormV3", images, *(VECTOR,) * 4, data_format=data_format).spec
    assert {alternative.name for alternative in alternatives(spec)} == expected
