"""What of a link is timed follows from its time limit."""

from typing import Any

import pytest

from pesto_cli.data.machine import CommModel, Device, Link, Machine
from pesto_cli.profile.comm import transfers
from pesto_cli.profile.comm.chains import MIN_TURNS, NUM_WARM_UP, Effort
from pesto_cli.profile.comm.overhead import COUNTS, affordable_counts
from pesto_cli.profile.comm.scope import (
    FEWEST_TURNS,
    LEAST_BYTES,
    MAX_HOPS,
    MIN_HOPS,
    Scope,
    Speed,
    affordable,
)
from pesto_cli.profile.comm.transfers import SIZES, LinkTimes, timed_transfers
from pesto_cli.runtime.repetitions import repetitions

# Loopback; cards of 800 Mbit/s; the same with a host that is stopped half of the time.
LOOPBACK, CARD, SLOW = Speed(250.0, 3e-4), Speed(500.0, 0.0105), Speed(15_000.0, 0.0105)


def least_s(scope: Scope, speed: Speed) -> float:
    return (NUM_WARM_UP + MIN_TURNS) * scope.turn_us(speed) / 1e6


def test_all_sizes_are_timed_if_the_limit_is_long_enough() -> None:
    for speed in (LOOPBACK, CARD):
        assert affordable(SIZES, speed, 100.0) == Scope(SIZES, MAX_HOPS)
    assert affordable(SIZES, LOOPBACK, 40.0) == Scope(SIZES, MAX_HOPS)


@pytest.mark.parametrize("speed", [LOOPBACK, CARD, SLOW])
@pytest.mark.parametrize("limit_s", [40.0, 20.0, 10.0, 5.0])
def test_the_fewest_turns_fit_into_the_limit(speed: Speed, limit_s: float) -> None:
    scope = affordable(SIZES, speed, limit_s)
    assert least_s(scope, speed) <= FEWEST_TURNS * limit_s
    assert len(scope.sizes) >= 3
    assert list(scope.sizes) == sorted(scope.sizes)


def test_a_slower_link_or_a_shorter_limit_leaves_out_large_tensors() -> None:
    largest = [max(affordable(SIZES, CARD, limit_s).sizes) for limit_s in (100.0, 10.0, 2.0, 0.5)]
    assert largest == sorted(largest, reverse=True)
    assert largest[0] > largest[-1] >= LEAST_BYTES
    assert max(affordable(SIZES, SLOW, 10.0).sizes) <= max(affordable(SIZES, CARD, 10.0).sizes)


def test_a_limit_that_is_too_short_for_anything_gives_the_least_scope() -> None:
    scope = affordable(SIZES, SLOW, 0.01)
    assert (max(scope.sizes), scope.most_hops) == (LEAST_BYTES, MIN_HOPS)
    assert affordable((4, 1000), SLOW, 0.01).sizes[-1] == 1000


def test_computing_endpoints_take_fewer_tensors_on_a_slower_link() -> None:
    usual = {1: 150.0, 2**22: 1400.0}
    slow = {1: 500.0, 2**22: 44_000.0}
    assert affordable_counts(usual, 700.0, False, 10.0) == COUNTS
    for limit_s in (10.0, 2.0, 1.0):
        counts = affordable_counts(slow, 700.0, True, limit_s)
        assert sum(counts.values()) < sum(COUNTS.values())
        assert min(counts) == min(COUNTS)


def test_times_that_fall_with_the_size_are_noise() -> None:
    noisy = {4: 340.0, 256: 31.0, 2**14: 31.0, 2**20: 10_590.0}
    assert transfers._without_noise(noisy, 10.0) == pytest.approx(
        {4: 134.0, 256: 134.0, 2**14: 134.0, 2**20: 10_590.0}
    )
    assert transfers._without_noise({1: -5.0, 4: 20.0}, 50.0) == {1: 50.0, 4: 50.0}


class Counted:
    """A cluster of three hosts that records with which effort each link is measured."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.shares: dict[str, list[float]] = {}

    def call(self, function: Any, link: Link, given: Any, *more: Any) -> Any:
        self.shares.setdefault(function.__name__, []).append(more[-1].share)
        if function.__name__ == "_time_link":
            return LinkTimes({1: 100.0, 2**20: 1000.0}, 100.0, 2.0, 1.0)
        return transfers.TransferOverheads({4: 7.0}, {4: 8.0}), 9.0


@pytest.mark.parametrize(("share", "num_computing", "of_each"), [(1.0, 6, 1.0), (0.05, 1, 0.3)])
def test_if_time_is_short_endpoints_compute_for_one_link_of_those_that_are_alike(
    share: float, num_computing: int, of_each: float
) -> None:
    cluster: Any = Counted(three_hosts())
    timed = timed_transfers(cluster, effort=Effort(3, share))
    assert cluster.shares["_time_link"] == 6 * [share]
    assert cluster.shares["_time_computing"] == pytest.approx(num_computing * [of_each])
    assert len(timed.fits()) == 6
    assert {fit.comm.wait_us for fit in timed.fits()} == {9.0}


def three_hosts() -> Machine:
    """Return a machine of three hosts with one device each."""
    devices = tuple(Device(f"{name}/CPU:0", "CPU", 2**40, host=name) for name in "abc")
    links = tuple(
        Link(src.name, dst.name, CommModel(100.0, 1e-3), f"out of {src.host}")
        for src in devices
        for dst in devices
        if src is not dst
    )
    return Machine(devices, links)


def test_repetitions_end_with_the_time_except_for_the_fewest() -> None:
    assert list(repetitions(5, 2, float("inf"))) == [0, 1, 2, 3, 4]
    assert list(repetitions(5, 2, 0.0)) == [0, 1]
    assert list(repetitions(1, 2, 0.0)) == [0]
