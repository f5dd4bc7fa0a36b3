"""The prices of parts: interpolation between priced shares, and prices by bytes."""

from dataclasses import replace

import numpy as np
import pytest

from pesto_cli.data.parts import BytePrice, Parts, PartTimes
from pesto_cli.data.specs import Operand, OpSpec
from pesto_cli.errors import BadInputError

NEG = OpSpec("Neg", (), (Operand((16,), "float32"),), (Operand((16,), "float32"),))
NAN = float("nan")


def price(
    us: float, us_per_byte: float, min_us: float = 0.0, *, on_host: bool = False
) -> BytePrice:
    """Return a price on two kinds, of which the second cannot run the op."""
    columns = (np.array([value, NAN]) for value in (min_us, us, us_per_byte))
    return BytePrice(*columns, on_host=on_host)


PARTS = Parts(
    names=("neg", "loop"),
    specs=(NEG,),
    spec_of=np.array([0, -1]),
    numbers=(2, 4, 8),
    times={
        (0, "axis 0"): PartTimes(16, np.array([[0.6, 0.4, 0.3], [NAN, NAN, NAN]])),
        (0, "short"): PartTimes(3, np.array([[0.5, 0.5, 0.5], [NAN, NAN, NAN]])),
    },
    added={
        ("ConcatV2", "float32"): price(2, 0.5, 10),
        ("Split", "int32"): price(1, 0, on_host=True),
    },
    fallback=price(1, 1),
)


@pytest.mark.parametrize(
    ("share", "ratio"),
    [(1 / 8, 0.3), (1 / 4, 0.4), (1 / 2, 0.6), (3 / 8, 0.5), (3 / 4, 0.8), (1.0, 1.0)],
)
def test_ratios_are_interpolated_between_priced_shares(share: float, ratio: float) -> None:
    for _ in range(2):  # The second time, it is remembered.
        assert PARTS.part_ratio(0, "axis 0", share)[0] == pytest.approx(ratio)


@pytest.mark.parametrize("share", [1 / 3, 0.3, 3 / 16, 0.13])
def test_the_kink_at_the_time_of_a_launch_is_kept(share: float) -> None:
    def ratio(of: float) -> float:
        return max(0.3, of)  # The launch takes 0.3 of the whole op.

    priced = np.array([[ratio(1 / n) for n in PARTS.numbers], [NAN] * 3])
    parts = replace(PARTS, times={(0, "axis 0"): PartTimes(16, priced)})
    assert parts.part_ratio(0, "axis 0", share)[0] == pytest.approx(ratio(share))


def test_numbers_that_give_equal_parts_count_once() -> None:
    times = {(0, "axis 0"): PartTimes(3, np.array([[0.5, 0.5], [NAN, NAN]]))}
    parts = replace(PARTS, numbers=(2, 3), times=times)
    assert parts.part_ratio(0, "axis 0", 1 / 3)[0] == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("size", "numbers", "priced"),
    [
        (16, (2, 4), (0.45, 0.3)),  # half of an op takes less than half of its time
        (16, (2, 4, 8), (0.6, 0.4, 0.3)),
        (16, (2, 4, 8), (0.5, 0.3, 0.3)),
        (16, (2, 4, 8), (0.4, 0.5, 0.2)),  # measured times vary
        (3, (4, 8), (0.4, 0.4)),  # more parts than units
    ],
)
def test_the_points_of_a_curve_have_the_least_time_for_each_unit(
    size: int, numbers: tuple[int, ...], priced: tuple[float, ...]
) -> None:
    times = PartTimes(size, np.array([[*priced], [NAN] * len(priced)]))
    parts = replace(PARTS, numbers=numbers, times={(0, "axis 0"): times})
    shares, ratios = map(np.array, times.curve(numbers, 0))
    for share in np.linspace(shares[0], 1, 500):
        ratio = parts.part_ratio(0, "axis 0", share)[0]
        assert ratio / share >= (ratios / shares).min() - 1e-12
        assert ratio >= ratios.min()


def test_a_kind_that_cannot_run_the_op_has_no_ratio() -> None:
    assert np.isnan(PARTS.part_ratio(0, "axis 0", 0.5)[1])


def test_the_smaller_part_of_an_odd_size_is_priced() -> None:
    assert PARTS.part_ratio(0, "short", 1 / 3)[0] == pytest.approx(0.5)
    assert PARTS.part_ratio(0, "short", 2 / 3)[0] == pytest.approx(0.75)


def test_a_share_of_one_needs_no_price() -> None:
    assert PARTS.part_ratio(0, "replicated", 1.0).tolist() == [1, 1]
    assert PARTS.part_ratio(1, "sum", 1.0).tolist() == [1, 1]


def test_a_share_below_the_smallest_priced_one_takes_as_long() -> None:
    """Parts of 30 samples have 7 and 8 of them."""
    assert (PARTS.part_ratio(0, "axis 0", 1 / 15) == PARTS.part_ratio(0, "axis 0", 1 / 8))[0]


def test_half_of_the_smallest_priced_one_is_refused() -> None:
    with pytest.raises(
        BadInputError, match=r"op 'neg' \(Neg\).* share of 0.0625 by 'axis 0'; .*half of 0.125"
    ):
        PARTS.part_ratio(0, "axis 0", 1 / 16)


def test_an_alternative_that_is_not_priced_is_refused() -> None:
    with pytest.raises(BadInputError, match=r"op 'loop' \(no spec\).*'axis 0'"):
        PARTS.part_ratio(1, "axis 0", 0.5)
    with pytest.raises(BadInputError, match=r"op 'neg' \(Neg\).*'axis 7'.*--parts 2,4,8"):
        PARTS.part_ratio(0, "axis 7", 0.5)


def test_added_ops_are_priced_by_their_bytes() -> None:
    concat = replace(NEG, type="ConcatV2")
    assert PARTS.added_us(concat)[0] == 2 + 0.5 * 128
    tiny = replace(concat, inputs=(), outputs=(Operand((), "float32"),))
    assert PARTS.added_us(tiny)[0] == 10
    assert PARTS.added_us(NEG)[0] == 1 + 128
    assert np.isnan(PARTS.added_us(NEG)[1])


def test_added_ops_on_shapes_are_in_host_memory() -> None:
    assert PARTS.added_on_host("Split", "int32")
    assert not PARTS.added_on_host("ConcatV2", "float32")
    assert not PARTS.added_on_host("Nonesuch", "float32")


def test_specs_of_ops() -> None:
    assert PARTS.spec(0) is NEG
    assert PARTS.spec(1) is None
