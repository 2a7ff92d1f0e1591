"""The audit log: a line of JSON (audit.k8s.io/v1 Event) for each stage of each request that the policy wants recorded.

An event is created with the request and completed on its way; each stage goes to the sinks: a file (audit_log.py), a webhook.
Every request pays for it, so that a user's part is encoded once and not with each of their requests.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Coroutine, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

import msgspec

from control.auth.audit_limits import LONGEST_MESSAGE, cut, shown_annotations, shown_details
from control.auth.audit_policy import Policy, Verdict
from control.auth.user import AuthzAttributes, UserInfo, user_info
from kube.bounded_cache import LONGEST_USER
from kube.clock import Clock, format_micro_time
from kube.counters import Counter
from kube.json_object import Object

EVENTS = Counter("apiserver_audit_event", "Audit events made.")
LEVELS = Counter("apiserver_audit_level", "Requests by the level at which they are recorded.", "level")
ERRORS = Counter("apiserver_audit_error", "Audit events that did not reach their sink.", "plugin")
REJECTED = Counter("apiserver_audit_requests_rejected", "Requests rejected because they could not be recorded.")
Stamp = datetime | str
MOST_USERS = 1024
LONGEST_AGENT = 1024
"""Characters of a User-Agent that an event shows."""
CLOSING = 5.0
"""Seconds that the last stages may take to be written when the server ends."""
log = logging.getLogger(__name__)
_encode, _encode_lines = msgspec.json.Encoder().encode, msgspec.json.Encoder().encode_lines


class Reference(msgspec.Struct, omit_defaults=True, rename="camel", gc=False):
    """The object of a request."""

    resource: str = ""
    namespace: str = ""
    name: str = ""
    api_group: str = ""
    api_version: str = ""
    subresource: str = ""


class Event(msgspec.Struct, omit_defaults=True, rename="camel"):
    """audit.k8s.io/v1 Event as one line of JSON has it."""

    kind: str
    api_version: str
    level: str
    audit_id: str = msgspec.field(name="auditID")
    stage: str
    request_uri: str = msgspec.field(name="requestURI")
    verb: str
    user: msgspec.Raw
    request_received_timestamp: Stamp
    stage_timestamp: Stamp = ""
    impersonated_user: Object | None = None
    authentication_metadata: Object | None = None
    source_ips: list[str] = msgspec.field(name="sourceIPs", default_factory=list)
    user_agent: str = ""
    object_ref: Reference | None = None
    response_status: Object | None = None
    request_object: Any = msgspec.UNSET
    response_object: Any = msgspec.UNSET
    annotations: dict[str, str] = {}


class Sink(Protocol):
    """Destination of events, each a line of JSON; what is returned must be waited for before the request continues.

    `user` is the request's user as JSON.
    """

    def write(self, line: bytes, user: bytes = b"") -> Awaitable[None] | None: ...


class AuditContext(msgspec.Struct):
    """Audit event of one request; the pipeline completes it."""

    auditor: Auditor
    verdict: Verdict
    event: Event
    request_object: Any = None
    """The value that was sent, for levels that show it."""
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    pending: list[Awaitable[None]] = msgspec.field(default_factory=list)
    """Writes of the sinks that the request waits for."""

    def later(self, writing: Coroutine[Any, Any, None]) -> None:
        """Have the request wait for what writes a stage of it, which ends also where the request is cancelled."""
        task = asyncio.create_task(writing, name="audit event")
        self.auditor.writing.add(task)
        task.add_done_callback(self.auditor.written)
        self.pending.append(asyncio.shield(task))

    async def settled(self) -> None:
        """Wait for the sinks that want it; raises StatusError if one of them does not let the request through."""
        while self.pending:
            await self.pending.pop()

    def impersonates(self, user: UserInfo, constraint: str = "") -> None:
        """Note whom the request acts as, and the constrained verb that allowed it, if one did."""
        self.event.impersonated_user = user_info(user)
        if constraint:
            self.event.authentication_metadata = {"impersonationConstraint": constraint}

    def decided(self, *, allowed: bool, reason: str) -> None:
        """Record the decision of the authorizers."""
        self.annotations["authorization.k8s.io/decision"] = "allow" if allowed else "forbid"
        self.annotations["authorization.k8s.io/reason"] = reason

    @property
    def shows_request(self) -> bool:
        return self.verdict.level in ("Request", "RequestResponse")

    def shows_response(self, code: int) -> bool:
        """Return whether a response's value is needed: it is logged, or it is a Status with an error."""
        return self.verdict.level == "RequestResponse" or code >= 400

    def stage(self, name: str, code: int = 0, answer: Any = None) -> None:
        """Write one stage; `code` and the value `answer` are the answer's, where there is one by now."""
        if self.wants(name):
            self.pending += self.write(self.line(name, code, answer))

    def wants(self, stage: str) -> bool:
        return stage not in self.verdict.omit_stages

    def line(self, name: str, code: int, answer: Any) -> bytes:
        """Return one stage's line; nothing else of this process is changed."""
        event = self.event
        event.stage, event.stage_timestamp = name, _stamp(self.auditor.clock.now())
        if code:
            event.response_status = _status(code, answer)
        bare = self.verdict.omit_managed_fields
        if name != "RequestReceived" and self.shows_request and self.request_object is not None:
            event.request_object = _object(self.request_object, bare=bare)
        if name == "ResponseComplete" and self.verdict.level == "RequestResponse" and answer is not None:
            event.response_object = _object(answer, bare=bare)
        event.annotations = shown_annotations(self.annotations)
        # Of anything but a list msgspec 0.22 makes an iterator that it never frees.
        return _encode_lines([event])

    def write(self, line: bytes) -> list[Awaitable[None]]:
        """Give a line to the sinks and return what they want waited for."""
        EVENTS.add()
        user = self.event.user
        return [wait for sink in self.auditor.sinks if (wait := sink.write(line, user)) is not None]


class Auditor:
    """Decides by the policy what is recorded, and where to."""

    def __init__(self, policy: Policy, sinks: Sequence[Sink], clock: Clock) -> None:
        self.policy, self.sinks, self.clock = policy, tuple(sinks), clock
        self.writing: set[asyncio.Task[None]] = set()
        """Tasks that write the stages made outside the event loop."""
        self._users: dict[tuple[Any, ...], msgspec.Raw] = {}
        """Cache of encoded users, by all fields that are encoded."""

    def written(self, task: asyncio.Task[None]) -> None:
        """Handle the end of a stage's write: log a failure, which its request also raises if it still waits."""
        self.writing.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("an audit event is lost: %s", task.exception())

    async def close(self) -> None:
        """Wait until all stages are written, at most CLOSING seconds."""
        if self.writing:
            await asyncio.wait(self.writing, timeout=CLOSING)

    def begin(
        self, attributes: AuthzAttributes, audit_id: str, uri: str, sources: list[str], user_agent: str
    ) -> AuditContext | None:
        """Return the note of a request whose user is known, its first stage written; None if none is wanted."""
        verdict = self.policy.verdict(attributes)
        LEVELS.add("None" if verdict is None else verdict.level)
        if verdict is None:
            return None
        a = attributes
        event = Event(
            "Event",
            "audit.k8s.io/v1",
            verdict.level,
            audit_id,
            "",
            uri,
            a.verb,
            self._user(a.user),
            _stamp(self.clock.now()),
            source_ips=sources,
            user_agent=shown_agent(user_agent),
        )
        if a.is_resource:
            event.object_ref = Reference(a.resource, a.namespace, a.name, a.group, a.version, a.subresource)
        note = AuditContext(self, verdict, event)
        note.stage("RequestReceived")
        return note

    def _user(self, user: UserInfo) -> msgspec.Raw:
        key = (user.name, user.uid, user.groups, tuple(user.extra.items()))
        found = self._users.get(key)
        if found is None:
            text = _encode(user_info(user) if user.name else {})
            found = msgspec.Raw(text)
            if len(text) <= LONGEST_USER:
                if len(self._users) >= MOST_USERS:
                    self._users.clear()
                self._users[key] = found
        return found


def shown_agent(text: str) -> str:
    """Return a User-Agent as events show it, of bounded length as upstream's (apiserver/pkg/audit/request.go)."""
    return cut(text, LONGEST_AGENT)


def _stamp(moment: datetime) -> Stamp:
    """Return a metav1.MicroTime. The encoder writes moments faster, but leaves out a fraction of nought."""
    return moment if moment.microsecond and moment.tzinfo is UTC else format_micro_time(moment)


def _status(code: int, answer: Any) -> Object:
    status: Object = {"metadata": {}, "code": code}
    if code >= 400 and isinstance(answer, dict) and answer.get("kind") == "Status":
        status |= {key: answer[key] for key in ("status", "message", "reason", "details") if answer.get(key)}
        if isinstance(message := status.get("message"), str):
            status["message"] = cut(message, LONGEST_MESSAGE)
        if isinstance(details := status.get("details"), dict):
            status["details"] = shown_details(details)
    return status


def _object(found: Any, *, bare: bool) -> Any:
    """Return a value as it is recorded: without managedFields if the policy omits them, and a list's items encoded.

    Each item is encoded and freed on its own: the interpreter is held for as long as one of these takes.
    """
    if not isinstance(found, dict):
        return found
    if bare:
        _bare(found)
    items = found.get("items")
    if isinstance(items, list):
        for number, item in enumerate(items):
            if bare:
                _bare(item)
            items[number] = msgspec.Raw(_encode(item))
    return found


def _bare(obj: Any) -> None:
    if isinstance(obj, dict) and isinstance(obj.get("metadata"), dict):
        obj["metadata"].pop("managedFields", None)
