"""The condition DisruptionTarget with the reason why a pod is terminated; pod failure policies of Jobs read it (KEP-3329)."""

from __future__ import annotations

from typing import Any

TYPE = "DisruptionTarget"


def condition(reason: str, message: str, since: str, generation: int | None) -> dict[str, Any]:
    """Return the condition of a pod of a generation, true since a time (RFC 3339)."""
    found: dict[str, Any] = {
        "type": TYPE,
        "status": "True",
        "reason": reason,
        "message": message,
        "lastTransitionTime": since,
    }
    return found | {"observedGeneration": generation} if generation else found
