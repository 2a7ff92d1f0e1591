"""Events about addons, on the parents of their ApplySets, and log lines."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from control.controllers.addons.application import Outcome
from control.controllers.addons.applyset import APPLIED, Parent
from kube.events import NORMAL, WARNING, EventRecorder

log = logging.getLogger(__name__)

LONGEST_TEXT = 1000
"""Characters of an event's message: the API accepts 1024."""
SHOWN_OBJECTS = 5


class Reports:
    """Emits an event and a line for what changed."""

    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder

    def attempted(self, outcome: Outcome, before: Parent | None) -> None:
        """Report the result of an attempt; `before` is the parent as it was stored."""
        parent = outcome.parent
        if outcome.pruned:
            self._inform(parent, "AddonPruned", "deleted " + _listed(outcome.pruned))
        if outcome.reverted:
            self._inform(parent, "AddonReverted", "applied again after a change: " + _listed(outcome.reverted))
        if before is not None and all(
            getattr(before, name) == getattr(parent, name) for name in ("state", "message", "content")
        ):
            return
        if outcome.problems:
            self.warn(parent, "AddonFailed", parent.message)
        elif parent.state == APPLIED:
            self._inform(parent, "AddonApplied", f"applied {parent.objects} objects of {parent.file}")

    def warn(self, parent: Parent, reason: str, text: str) -> None:
        """Report a problem."""
        log.warning("addon %s: %s", parent.addon, text)
        self._recorder.event(parent.reference(), WARNING, reason, text[:LONGEST_TEXT])

    def _inform(self, parent: Parent, reason: str, text: str) -> None:
        log.info("addon %s: %s", parent.addon, text)
        self._recorder.event(parent.reference(), NORMAL, reason, text[:LONGEST_TEXT])


def _listed(keys: Sequence[object]) -> str:
    shown = ", ".join(map(str, keys[:SHOWN_OBJECTS]))
    return f"{shown} and {len(keys) - SHOWN_OBJECTS} more" if len(keys) > SHOWN_OBJECTS else shown
