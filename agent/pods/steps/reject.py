"""Rejects a pod that was admitted before, because the node turned out not to have something for it."""

from __future__ import annotations

from agent.lifecycle import End
from agent.pods.context import PodContext
from kube.events import WARNING


def reject(ctx: PodContext, end: End) -> None:
    """Let a pod fail before it starts; its termination removes what was set up."""
    termination = ctx.state.termination
    termination.rejection = termination.cause = end
    ctx.reporter.event(WARNING, end.reason, end.event_message)
    ctx.wakeup.request_sync()
