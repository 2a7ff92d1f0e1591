"""Computes the status of an autoscaler: replica counts, metrics, conditions.

A condition keeps the time of its last transition while its status stays, and conditions that a turn does not speak of
stay as they were.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from kube.api import autoscaling_v2
from kube.clock import format_time

Condition = Literal["AbleToScale", "ScalingActive", "ScalingLimited"]


class Outlook:
    """The status in the making; begins as what is stored."""

    def __init__(self, autoscaler: autoscaling_v2.HorizontalPodAutoscaler, now: datetime) -> None:
        old = autoscaler.status
        self._now = format_time(now)
        self._conditions = {condition.type: condition for condition in old.conditions}
        self.current = old.current_replicas
        self.desired = old.desired_replicas
        self.scaled = old.last_scale_time
        self.metrics = list(old.current_metrics)

    def set(self, type: Condition, *, value: bool, reason: str, message: str) -> None:
        """Say how things stand in one respect."""
        state, old = "True" if value else "False", self._conditions.get(type)
        since = old.last_transition_time if old is not None and old.status == state else self._now
        self._conditions[type] = autoscaling_v2.HorizontalPodAutoscalerCondition(
            type=type, status=state, reason=reason, message=message, last_transition_time=since
        )

    def status(self) -> autoscaling_v2.HorizontalPodAutoscalerStatus:
        """Return the status to be stored."""
        return autoscaling_v2.HorizontalPodAutoscalerStatus(
            current_replicas=self.current,
            desired_replicas=self.desired,
            last_scale_time=self.scaled,
            current_metrics=self.metrics,
            conditions=list(self._conditions.values()),
        )
