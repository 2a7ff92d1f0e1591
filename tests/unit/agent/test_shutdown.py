"""Order and grace periods of pods at the node's shutdown."""

from __future__ import annotations

import pytest

from agent import configure
from agent.config import ShutdownPeriod
from agent.flags import Flags
from agent.kubelet_configuration import ConfigError, parse
from agent.shutdown.periods import grace, grouped, periods
from tests.unit.agent.pods import pod

HEAD = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
CRITICAL = 2_000_000_000


def test_two_settings_are_two_periods() -> None:
    assert periods(30, 10) == (ShutdownPeriod(0, 20), ShutdownPeriod(CRITICAL, 10))
    assert periods(0, 0) == ()


@pytest.mark.parametrize(
    ("priority", "group"),
    [(-5, 0), (0, 0), (9, 0), (10, 10), (99, 10), (100, 100), (CRITICAL, 100)],
)
def test_a_pod_belongs_to_the_highest_period_that_its_priority_reaches(priority: int, group: int) -> None:
    configured = [ShutdownPeriod(100, 1), ShutdownPeriod(0, 3), ShutdownPeriod(10, 2)]
    found = [period.priority for period, pods in grouped(configured, [pod(priority=priority)]) if pods]
    assert found == [group]


def test_groups_go_from_low_to_high() -> None:
    assert [period.priority for period, _ in grouped([ShutdownPeriod(5, 1), ShutdownPeriod(0, 1)], [])] == [0, 5]


def test_a_pod_has_its_own_grace_but_no_more_than_the_period() -> None:
    assert grace(pod(terminationGracePeriodSeconds=5), ShutdownPeriod(0, 20)) == 5
    assert grace(pod(terminationGracePeriodSeconds=60), ShutdownPeriod(0, 20)) == 20
    assert grace(pod(terminationGracePeriodSeconds=None), ShutdownPeriod(0, 20)) == 20


def built(text: str) -> tuple[ShutdownPeriod, ...]:
    file, idle = parse(HEAD + text)
    assert idle == []
    return configure.build(file, Flags()).shutdown_periods


def test_the_file_names_periods_in_one_of_two_ways() -> None:
    assert built("shutdownGracePeriod: 1m\nshutdownGracePeriodCriticalPods: 20s\n") == periods(60, 20)
    listed = "shutdownGracePeriodByPodPriority: [{priority: 7, shutdownGracePeriodSeconds: 9}]\n"
    assert built(listed) == (ShutdownPeriod(7, 9),)
    for bad in (
        listed + "shutdownGracePeriod: 1m\n",
        "shutdownGracePeriod: 5s\nshutdownGracePeriodCriticalPods: 6s\n",
        "shutdownGracePeriod: 100ms\n",
    ):
        with pytest.raises(ConfigError):
            built(bad)
