"""Rate limit by source: a burst, then a rate, and no state for sources within their limit."""

from kube.rate import LONGEST, Rate


def test_a_burst_passes_and_what_is_beyond_it_waits_for_its_share_of_time() -> None:
    rate = Rate(100, 10)
    rate.charge("ann", 100, 0)
    assert rate.delay("ann", 0) == 0
    rate.charge("ann", 30, 0)
    assert rate.delay("ann", 0) == 3
    assert rate.delay("ann", 2) == 1
    assert rate.delay("ann", 4) == 0


def test_one_owner_does_not_pay_for_another() -> None:
    rate = Rate(100, 10)
    rate.charge("ann", 200, 0)
    assert rate.delay("bob", 0) == 0


def test_nobody_waits_longer_than_the_longest_time() -> None:
    rate = Rate(100, 10)
    rate.charge("ann", 1_000_000, 0)
    assert rate.delay("ann", 0) == LONGEST


def test_owners_with_nothing_to_pay_are_forgotten() -> None:
    rate = Rate(100, 10)
    for number in range(1000):
        rate.charge(f"user-{number}", 10, number)
    assert len(rate) <= 2
