"""The pod state machine: `plan` maps a Situation to a Plan."""

from agent.lifecycle.actions import End, Kill, Kind, Plan, Resize, Situation, Start, rejection
from agent.lifecycle.decisions import plan
from agent.lifecycle.hashing import container_hash
from agent.lifecycle.rules import (
    find_container,
    grace_of,
    initialized,
    is_sidecar,
    may_restart_all,
    policy_of,
    removal_order,
    restarts,
    restarts_after,
    restarts_all,
    termination_waves,
)

__all__ = [
    "End",
    "Kill",
    "Kind",
    "Plan",
    "Resize",
    "Situation",
    "Start",
    "container_hash",
    "find_container",
    "grace_of",
    "initialized",
    "is_sidecar",
    "may_restart_all",
    "plan",
    "policy_of",
    "rejection",
    "removal_order",
    "restarts",
    "restarts_after",
    "restarts_all",
    "termination_waves",
]
