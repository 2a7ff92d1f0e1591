"""The audit log: a line of JSON (audit.k8s.io/v1 Event) for each stage of each request that the policy wants noted.

A note is begun with the request and filled in on its way; each stage goes to the sinks: a file (audit_log.py), a webhook.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from control.auth.audit_policy import Policy, Verdict
from control.auth.user import AuthzAttributes, UserInfo, user_info
from kube.clock import Clock, format_micro_time
from kube.counters import Counter

EVENTS = Counter("apiserver_audit_event", "Audit events made.")
LEVELS = Counter("apiserver_audit_level", "Requests by how fully they are noted.", "level")
ERRORS = Counter("apiserver_audit_error", "Audit events that did not reach their sink.", "plugin")
REJECTED = Counter("apiserver_audit_requests_rejected", "Requests refused because they could not be noted.")
Object = dict[str, Any]


class Sink(Protocol):
    """Where events go, each a line of JSON; what is returned must be waited for before the request goes on."""

    def write(self, line: bytes) -> Awaitable[None] | None: ...


@dataclass(slots=True)
class Note:
    """What is written of one request; the pipeline fills in what it learns on the way."""

    auditor: Auditor
    verdict: Verdict
    event: Object
    request_body: bytes = b""
    annotations: dict[str, str] = field(default_factory=dict)
    pending: list[Awaitable[None]] = field(default_factory=list)
    """What the sinks want waited for."""

    async def settled(self) -> None:
        """Wait for the sinks that want it; raises StatusError where one of them does not let the request through."""
        while self.pending:
            await self.pending.pop()

    def impersonates(self, user: UserInfo, constraint: str = "") -> None:
        """Note whom the request acts as, and the constrained verb that allowed it, if one did."""
        self.event["impersonatedUser"] = user_info(user)
        if constraint:
            self.event["authenticationMetadata"] = {"impersonationConstraint": constraint}

    def decided(self, allowed: bool, reason: str) -> None:
        """Note what the authorizers said."""
        self.annotations["authorization.k8s.io/decision"] = "allow" if allowed else "forbid"
        self.annotations["authorization.k8s.io/reason"] = reason

    def stage(self, name: str, code: int = 0, body: bytes = b"") -> None:
        """Write one stage; `code` and `body` are the answer's, where there is one by now."""
        if name in self.verdict.omit_stages:
            return
        event = self.event | {"stage": name, "stageTimestamp": format_micro_time(self.auditor.clock.now())}
        if code:
            event["responseStatus"] = _status(code, body)
        level = self.verdict.level
        if name != "RequestReceived" and level in ("Request", "RequestResponse") and self.request_body:
            event["requestObject"] = _object(self.request_body, self.verdict.omit_managed_fields)
        if name == "ResponseComplete" and level == "RequestResponse" and body:
            event["responseObject"] = _object(body, self.verdict.omit_managed_fields)
        if self.annotations:
            event["annotations"] = self.annotations
        EVENTS.add()
        line = msgspec.json.encode(event) + b"\n"
        for sink in self.auditor.sinks:
            wait = sink.write(line)
            if wait is not None:
                self.pending.append(wait)


class Auditor:
    """Decides by the policy what is noted, and where to."""

    def __init__(self, policy: Policy, sinks: Sequence[Sink], clock: Clock) -> None:
        self.policy, self.sinks, self.clock = policy, tuple(sinks), clock

    def begin(
        self, attributes: AuthzAttributes, audit_id: str, uri: str, sources: list[str], user_agent: str
    ) -> Note | None:
        """Return the note of a request whose user is known, its first stage written; None where none is wanted."""
        verdict = self.policy.verdict(attributes)
        LEVELS.add("None" if verdict is None else verdict.level)
        if verdict is None:
            return None
        event: Object = {
            "kind": "Event",
            "apiVersion": "audit.k8s.io/v1",
            "level": verdict.level,
            "auditID": audit_id,
            "stage": "",
            "requestURI": uri,
            "verb": attributes.verb,
            "user": user_info(attributes.user) if attributes.user.name else {},
            "requestReceivedTimestamp": format_micro_time(self.clock.now()),
        }
        if sources:
            event["sourceIPs"] = sources
        if user_agent:
            event["userAgent"] = user_agent
        if attributes.resource:
            event["objectRef"] = _reference(attributes)
        note = Note(self, verdict, event)
        note.stage("RequestReceived")
        return note


def _reference(a: AuthzAttributes) -> Object:
    found = {
        "resource": a.resource,
        "namespace": a.namespace,
        "name": a.name,
        "apiGroup": a.group,
        "apiVersion": a.version,
        "subresource": a.subresource,
    }
    return {key: value for key, value in found.items() if value}


def _status(code: int, body: bytes) -> Object:
    status: Object = {"metadata": {}, "code": code}
    if code >= 400:
        found = _object(body, False)
        if isinstance(found, dict) and found.get("kind") == "Status":
            status |= {key: found[key] for key in ("status", "message", "reason", "details") if found.get(key)}
    return status


def _object(body: bytes, bare: bool) -> Any:
    """Read a body that is JSON; what is not (YAML, logs, protobuf) is left out."""
    try:
        found = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return None
    if bare and isinstance(found, dict):
        for obj in (found, *(found.get("items") or ())):
            if isinstance(obj, dict) and isinstance(obj.get("metadata"), dict):
                obj["metadata"].pop("managedFields", None)
    return found
