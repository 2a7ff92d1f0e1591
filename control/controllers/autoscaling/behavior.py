"""Limits a recommended number of replicas: stabilization windows, scaling policies, minimum and maximum.

An autoscaler without `behavior` may double (or reach four) immediately, and scales down to the highest recommendation of the
last five minutes; one with it follows its policies. Recommendations and changes are recorded here, in memory, as upstream does.
Upstream: pkg/controller/podautoscaler/horizontal.go.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from control.controllers.autoscaling.settings import DOWN_WINDOW
from kube.api import autoscaling_v2

Rules = autoscaling_v2.HPAScalingRules
Behavior = autoscaling_v2.HorizontalPodAutoscalerBehavior


@dataclass(frozen=True, slots=True)
class Verdict:
    """The number of replicas, with the reason and message of the condition."""

    replicas: int
    reason: str
    message: str


@dataclass(slots=True)
class History:
    """Recommendations (time, replicas) and changes (time, number) of one autoscaler. Times are monotonic seconds."""

    recommendations: list[tuple[float, int]] = field(default_factory=list)
    ups: list[tuple[float, int]] = field(default_factory=list)
    downs: list[tuple[float, int]] = field(default_factory=list)

    def changed(self, behavior: Behavior | None, before: int, after: int, now: float) -> None:
        """Note a change for the rate policies, and forget those that no policy looks at any more."""
        if behavior is None:
            return
        up, down = behavior.scale_up or Rules(), behavior.scale_down or Rules()
        self.ups = [event for event in self.ups if event[0] > now - _longest(up)]
        self.downs = [event for event in self.downs if event[0] > now - _longest(down)]
        if after > before:
            self.ups.append((now, after - before))
        elif after < before:
            self.downs.append((now, before - after))


def stabilized(
    history: History,
    behavior: Behavior | None,
    current: int,
    recommendation: int,
    now: float,
    window: float = DOWN_WINDOW,
) -> Verdict:
    """Stabilize a recommendation by those of the windows, and record it; ReadyForNewScale means that it is unchanged."""
    if behavior is None:
        up_window, down_window = 0.0, window
        highest = max([recommendation, *(r for t, r in history.recommendations if t >= now - window)])
        result = Verdict(
            highest,
            "ScaleDownStabilized",
            "recent recommendations were higher than current one, applying the highest recent recommendation",
        )
    else:
        up_window = float((behavior.scale_up or Rules()).stabilization_window_seconds or 0)
        given = (behavior.scale_down or Rules()).stabilization_window_seconds
        down_window = window if given is None else float(given)
        lowest = min([recommendation, *(r for t, r in history.recommendations if t > now - up_window)])
        highest = max([recommendation, *(r for t, r in history.recommendations if t > now - down_window)])
        replicas = min(max(current, lowest), highest)
        if recommendation >= current:
            result = Verdict(
                replicas,
                "ScaleUpStabilized",
                "recent recommendations were lower than current one, applying the lowest recent recommendation",
            )
        else:
            result = Verdict(
                replicas,
                "ScaleDownStabilized",
                "recent recommendations were higher than current one, applying the highest recent recommendation",
            )
    oldest = now - max(up_window, down_window)
    history.recommendations = [(t, r) for t, r in history.recommendations if t >= oldest]
    history.recommendations.append((now, recommendation))
    if result.replicas == recommendation:
        return Verdict(recommendation, "ReadyForNewScale", "recommended size matches current size")
    return result


_WITHIN = ("DesiredWithinRange", "the desired count is within the acceptable range")
_TOO_FEW = ("TooFewReplicas", "the desired replica count is less than the minimum replica count")
_TOO_MANY = ("TooManyReplicas", "the desired replica count is more than the maximum replica count")
_UP_LIMIT = ("ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate")
_DOWN_LIMIT = ("ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate")


def limited(
    history: History, behavior: Behavior | None, current: int, recommendation: int, least: int, most: int, now: float
) -> Verdict:
    """Limit a recommendation to minimum, maximum and the rate at which replicas may change."""
    if behavior is None:
        limit = max(2 * current, 4)
        if recommendation < least:
            return Verdict(least, *_TOO_FEW)
        if recommendation > min(most, limit):
            return Verdict(min(most, limit), *(_UP_LIMIT if most > limit else _TOO_MANY))
        return Verdict(recommendation, *_WITHIN)
    if recommendation > current:
        limit = max(current, _up_limit(behavior.scale_up or Rules(), history, current, now))
        if recommendation > min(most, limit):
            return Verdict(min(most, limit), *(_UP_LIMIT if most > limit else _TOO_MANY))
    elif recommendation < current:
        limit = min(current, _down_limit(behavior.scale_down or Rules(), history, current, now))
        if recommendation < max(least, limit):
            return Verdict(max(least, limit), *(_DOWN_LIMIT if least < limit else _TOO_FEW))
    return Verdict(recommendation, *_WITHIN)


def _up_limit(rules: Rules, history: History, current: int, now: float) -> int:
    if rules.select_policy == "Disabled":
        return current
    choose: Callable[[list[int]], int] = min if rules.select_policy == "Min" else max
    proposed = []
    for policy in rules.policies:
        start = current - _since(history.ups, policy, now) + _since(history.downs, policy, now)
        if policy.type == "Pods":
            proposed.append(start + policy.value)
        else:
            proposed.append(math.ceil(start * (100 + policy.value) / 100))
    return choose(proposed) if proposed else current


def _down_limit(rules: Rules, history: History, current: int, now: float) -> int:
    if rules.select_policy == "Disabled":
        return current
    # The smallest change leaves the most replicas.
    choose: Callable[[list[int]], int] = max if rules.select_policy == "Min" else min
    proposed = []
    for policy in rules.policies:
        start = current + _since(history.downs, policy, now) - _since(history.ups, policy, now)
        if policy.type == "Pods":
            proposed.append(start - policy.value)
        else:
            proposed.append(start * (100 - policy.value) // 100)
    return choose(proposed) if proposed else current


def _since(events: list[tuple[float, int]], policy: autoscaling_v2.HPAScalingPolicy, now: float) -> int:
    return sum(count for time, count in events if time > now - policy.period_seconds)


def _longest(rules: Rules) -> float:
    return float(max((policy.period_seconds for policy in rules.policies), default=0))
