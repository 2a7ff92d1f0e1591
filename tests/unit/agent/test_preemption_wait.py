"""Time that a critical pod waits for a pod that is preempted for it."""

from __future__ import annotations

import pytest

from agent.pods.preemption import wait_seconds
from kube.api import core_v1


@pytest.mark.parametrize(
    ("grace", "seconds"),
    [(None, 10), (0, 10), (6, 10), (7, 10.5), (30, 45), (3600, 5400), ((1 << 63) - 1, 10)],
)
def test_a_critical_pod_waits_one_and_a_half_grace_periods_and_at_least_ten_seconds(
    grace: int | None, seconds: float
) -> None:
    """A period that is longer than Go's durations overflows upstream, and is no reason to wait for ever."""
    victim = core_v1.Pod(spec=core_v1.PodSpec(termination_grace_period_seconds=grace))
    assert wait_seconds(victim) == seconds
