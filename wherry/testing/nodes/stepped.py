"""Result of one step of a simulated pod."""

from __future__ import annotations

import msgspec

from kube.api import core_v1


class Happened(msgspec.Struct, frozen=True):
    """An event of the pod to record."""

    type: str
    reason: str
    message: str
    container: str = ""


class Stepped(msgspec.Struct, frozen=True):
    """Result of a step: the status, whether the pod is to be deleted in the API, and when the next step is due."""

    status: core_v1.PodStatus
    delete: bool
    wake_at: float | None
    events: tuple[Happened, ...]
