"""Thresholds of eviction: the sizes that meet one, the duration of a condition, the fields of a configuration."""

from __future__ import annotations

from typing import Any

import pytest

from agent.eviction.signals import Reading
from agent.eviction.thresholds import ThresholdTracker, thresholds


def signal(name: str, available: int, capacity: int = 100) -> dict[str, Reading]:
    return {name: Reading(available, capacity)}


def test_a_hard_threshold_acts_at_once_and_a_soft_one_after_its_grace() -> None:
    watch = ThresholdTracker(
        thresholds({"nodefs.available": "10%"}, {"nodefs.available": "20%"}, {"nodefs.available": 90.0}, {}), 300.0
    )
    assert watch.update(signal("nodefs.available", 20), 0.0) == []
    assert watch.update(signal("nodefs.available", 19), 10.0) == []
    assert watch.conditions(10.0) == {"DiskPressure": True}
    assert watch.update(signal("nodefs.available", 19), 99.0) == []
    assert [one.hard for one in watch.update(signal("nodefs.available", 19), 100.0)] == [False]
    assert [one.hard for one in watch.update(signal("nodefs.available", 9), 101.0)] == [True, False]


def test_a_soft_threshold_that_recovers_starts_its_grace_anew() -> None:
    watch = ThresholdTracker(thresholds({}, {"memory.available": "20%"}, {"memory.available": 30.0}, {}), 0.0)
    watch.update(signal("memory.available", 10), 0.0)
    watch.update(signal("memory.available", 30), 20.0)
    assert watch.update(signal("memory.available", 10), 31.0) == []
    assert len(watch.update(signal("memory.available", 10), 61.0)) == 1


def test_a_threshold_stays_met_until_the_minimum_reclaim_is_free_too() -> None:
    watch = ThresholdTracker(thresholds({"imagefs.available": "10%"}, {}, {}, {"imagefs.available": "5%"}), 0.0)
    assert watch.update(signal("imagefs.available", 12), 0.0) == []
    assert watch.update(signal("imagefs.available", 9), 1.0)
    assert watch.update(signal("imagefs.available", 14), 2.0)
    assert watch.update(signal("imagefs.available", 15), 3.0) == []
    assert watch.update(signal("imagefs.available", 12), 4.0) == []


def test_a_condition_lasts_for_the_transition_period_and_memory_comes_first() -> None:
    configured = thresholds({"nodefs.inodesFree": "5%", "memory.available": "100"}, {}, {}, {})
    watch = ThresholdTracker(configured, 300.0)
    both = signal("nodefs.inodesFree", 1) | signal("memory.available", 50)
    assert [one.signal for one in watch.update(both, 0.0)] == ["memory.available", "nodefs.inodesFree"]
    watch.update(signal("memory.available", 5000, 10000), 10.0)
    assert watch.conditions(299.0) == {"MemoryPressure": True, "DiskPressure": True}
    assert watch.conditions(301.0) == {"MemoryPressure": False, "DiskPressure": False}


@pytest.mark.parametrize(
    ("maps", "message"),
    [
        (({"memory.free": "1Gi"}, {}, {}, {}), "evictionHard: memory.free is not a signal"),
        (
            ({}, {"pid.available": "5%"}, {}, {}),
            "evictionSoftGracePeriod: missing for the soft threshold of pid.available",
        ),
        (({}, {}, {"pid.available": 5.0}, {}), "evictionSoftGracePeriod: pid.available has no soft threshold"),
        (({}, {}, {}, {"disk": "1Gi"}), "evictionMinimumReclaim: disk is not a signal"),
        (({"memory.available": "some"}, {}, {}, {}), r"evictionHard\[memory.available\]: 'some' is neither a quantity"),
        (({"nodefs.available": "x%"}, {}, {}, {}), "'x%' is neither a quantity nor a percentage"),
        (({"nodefs.available": "101%"}, {}, {}, {}), "101% is not between 0% and 100%"),
        (({}, {}, {}, {"nodefs.available": "-1"}), "-1 is negative"),
    ],
)
def test_maps_that_do_not_fit_are_refused(maps: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        thresholds(*maps)


def test_zero_switches_a_threshold_off() -> None:
    assert thresholds({"memory.available": "0%", "nodefs.available": "0"}, {}, {}, {}) == ()
