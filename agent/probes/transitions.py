"""Text for the journal about a probe result that changed the state of a container."""

from __future__ import annotations

from agent.interfaces import ProbeOutcome
from agent.probes.state import Kind


def transition(name: str, kind: Kind, before: ProbeOutcome, after: ProbeOutcome, message: str) -> str:
    """Return what became of a container by a probe's result, with the result's message."""
    if after.failed != before.failed:
        grace = f" with a grace period of {after.grace} s" if after.grace is not None else ""
        became = f"is to be restarted{grace}"
    elif after.ready != before.ready:
        became = "became Ready" if after.ready else "is not Ready any longer"
    else:
        became = "has started"
    how = "failed" if after.failed != before.failed or after.ready < before.ready else "succeeded"
    text = f"container {name} {became}: {kind.value.lower()} probe {how}"
    return f"{text}: {message}" if message and how == "failed" else text
