"""Rates, medians and ratios, on a clock that the test turns."""

import pytest

from keyspan.bench.growth import exponent
from keyspan.bench.timing import Repeats, Step, calls_in, rate, rounds, seconds_of, timed_both


class Clock:
    """Time that passes only when a step is taken. Work is queued and done at `sync`, as on a GPU, if it is lazy."""

    def __init__(self, seconds: float, lazy: bool = False) -> None:
        self.now, self.seconds, self.lazy, self.queued, self.calls = 100.0, seconds, lazy, 0, 0

    def __call__(self) -> float:
        return self.now

    def call(self) -> None:
        self.calls += 1
        if self.lazy:
            self.queued += 1
        else:
            self.now += self.seconds

    def sync(self) -> None:
        self.now += self.queued * self.seconds
        self.queued = 0

    @property
    def step(self) -> Step:
        return Step(self.call, self.sync)


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("seconds", [1e-4, 0.03, 2.0])
def test_a_rate_is_calls_by_time(seconds: float, lazy: bool) -> None:
    clock = Clock(seconds, lazy)
    count = calls_in(clock.step, 1.0, clock)
    assert count == pytest.approx(max(1.0, 1.0 / seconds), rel=0.05)
    assert rate(clock.step, count, clock) == pytest.approx(1 / seconds)
    assert seconds_of(clock.step, 1.0, clock) == pytest.approx(seconds)


def test_what_was_queued_before_is_not_counted() -> None:
    clock = Clock(0.5, lazy=True)
    clock.queued = 7
    assert rate(clock.step, 2, clock) == pytest.approx(2.0)


def test_computing_time_knows_nothing_of_waiting() -> None:
    clock = Clock(0.5)
    by_wall, by_cpu = timed_both(clock.step, 4, wall=clock, cpu=lambda: clock.calls * 0.1)  # waited for 0.4 of each 0.5
    assert by_wall == pytest.approx(2.0) and by_cpu == pytest.approx(10.0)


def test_median_and_spread() -> None:
    seen = Repeats((1.0, 4.0, 2.0))
    assert seen.median == 2.0 and seen.spread == 1.5
    assert Repeats((3.0,)).spread == 0.0 == Repeats((0.0, 0.0)).spread


def test_ratios_are_taken_round_by_round() -> None:
    ours, theirs = Repeats((10.0, 5.0, 20.0)), Repeats((1.0, 0.5, 2.0))  # a busy second round, for both
    assert ours.over(theirs).values == (10.0, 10.0, 10.0)


def test_sides_are_measured_in_turns() -> None:
    order: list[str] = []

    def side(name: str) -> float:
        order.append(name)
        return float(len(order))

    one, two = rounds([lambda: side("a"), lambda: side("b")], 3)
    assert "".join(order) == "ababab"
    assert one.values == (1.0, 3.0, 5.0) and two.values == (2.0, 4.0, 6.0)


def test_exponents() -> None:
    values = [1.0, 2.0, 4.0, 8.0]
    assert exponent(values, [3 * v**2 for v in values]) == pytest.approx(2.0)
    assert exponent(values, [0.1] * 4) == pytest.approx(0.0)
    assert exponent(values, [1 + v for v in values]) == pytest.approx(0.72, abs=0.05)
