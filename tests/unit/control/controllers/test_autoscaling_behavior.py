"""Limits on scaling: windows, policies, bounds."""

from __future__ import annotations

import pytest

from control.controllers.autoscaling.behavior import History, limited, stabilized
from kube.api.autoscaling_v2 import HorizontalPodAutoscalerBehavior, HPAScalingPolicy, HPAScalingRules


def rules(*policies: tuple[str, int, int], window: int | None = None, select: str = "Max") -> HPAScalingRules:
    made = [HPAScalingPolicy(type=kind, value=value, period_seconds=period) for kind, value, period in policies]
    return HPAScalingRules(policies=made, select_policy=select, stabilization_window_seconds=window)


def both(up: HPAScalingRules | None = None, down: HPAScalingRules | None = None) -> HorizontalPodAutoscalerBehavior:
    return HorizontalPodAutoscalerBehavior(scale_up=up, scale_down=down)


def test_without_behavior_the_highest_wish_of_five_minutes_is_kept() -> None:
    history = History()
    assert stabilized(history, None, 5, 5, 0.0).reason == "ReadyForNewScale"
    held = stabilized(history, None, 5, 2, 200.0)
    assert (held.replicas, held.reason) == (5, "ScaleDownStabilized")
    assert stabilized(history, None, 5, 2, 301.0).replicas == 2
    assert stabilized(history, None, 2, 9, 302.0).replicas == 9


def test_a_window_upwards_takes_the_lowest_wish() -> None:
    history, rules_ = History(), both(rules(window=60), rules(window=0))
    assert stabilized(history, rules_, 2, 3, 0.0).replicas == 3
    held = stabilized(history, rules_, 2, 8, 30.0)
    assert (held.replicas, held.reason) == (3, "ScaleUpStabilized")
    assert stabilized(history, rules_, 2, 8, 61.0).replicas == 8


def test_a_window_downwards_without_a_length_is_five_minutes() -> None:
    history, rules_ = History(recommendations=[(0.0, 9)]), both(rules(window=0), rules())
    assert stabilized(history, rules_, 9, 1, 299.0).replicas == 9
    assert stabilized(history, rules_, 9, 1, 301.0).replicas == 1


@pytest.mark.parametrize(
    ("current", "desired", "least", "most", "allowed", "reason"),
    [
        (3, 5, 1, 10, 5, "DesiredWithinRange"),
        (3, 20, 1, 10, 6, "ScaleUpLimit"),
        (1, 20, 1, 10, 4, "ScaleUpLimit"),
        (8, 20, 1, 10, 10, "TooManyReplicas"),
        (3, 0, 2, 10, 2, "TooFewReplicas"),
    ],
)
def test_without_behavior_replicas_double_at_most(
    current: int, desired: int, least: int, most: int, allowed: int, reason: str
) -> None:
    verdict = limited(History(), None, current, desired, least, most, 0.0)
    assert (verdict.replicas, verdict.reason) == (allowed, reason)


UP = (("Pods", 4, 60), ("Percent", 100, 60))
DOWN = (("Pods", 2, 60), ("Percent", 50, 60))


@pytest.mark.parametrize(
    ("behavior", "current", "desired", "allowed", "reason"),
    [
        (both(rules(*UP)), 2, 50, 6, "ScaleUpLimit"),
        (both(rules(*UP)), 10, 50, 20, "ScaleUpLimit"),
        (both(rules(*UP, select="Min")), 10, 50, 14, "ScaleUpLimit"),
        (both(rules(*UP, select="Disabled")), 10, 50, 10, "ScaleUpLimit"),
        (both(rules(("Percent", 15, 60))), 10, 50, 12, "ScaleUpLimit"),
        (both(rules(("Percent", 1000, 60))), 10, 150, 100, "TooManyReplicas"),
        (both(down=rules(*DOWN)), 20, 1, 10, "ScaleDownLimit"),
        (both(down=rules(*DOWN, select="Min")), 20, 1, 18, "ScaleDownLimit"),
        (both(down=rules(*DOWN, select="Disabled")), 20, 1, 20, "ScaleDownLimit"),
        (both(down=rules(("Percent", 100, 15))), 20, 0, 1, "TooFewReplicas"),
        (both(down=rules(("Percent", 100, 15))), 20, 7, 7, "DesiredWithinRange"),
    ],
)
def test_policies_limit_the_rate(
    behavior: HorizontalPodAutoscalerBehavior, current: int, desired: int, allowed: int, reason: str
) -> None:
    verdict = limited(History(), behavior, current, desired, 1, 100, 0.0)
    assert (verdict.replicas, verdict.reason) == (allowed, reason)


def test_what_changed_within_a_period_counts_against_its_policy() -> None:
    behavior, history = both(rules(("Pods", 4, 60)), rules(("Pods", 1, 60))), History()
    history.changed(behavior, 2, 5, 0.0)
    assert limited(history, behavior, 5, 50, 1, 100, 30.0).replicas == 6
    assert limited(history, behavior, 5, 50, 1, 100, 61.0).replicas == 9
    history.changed(behavior, 5, 4, 61.0)
    assert limited(history, behavior, 4, 1, 1, 100, 90.0).replicas == 4
    assert limited(history, behavior, 4, 1, 1, 100, 122.0).replicas == 3
    assert history.ups == []
