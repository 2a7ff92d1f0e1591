"""The audit log: a line of JSON (audit.k8s.io/v1 Event) for each stage of each request that the policy wants noted.

Lines are made on the event loop and written by one thread, so that a slow disk slows down the log and not the API; past
`QUEUE` unwritten lines new ones are dropped and counted. The file is rotated by size; old ones go by number and age, as
with upstream's --audit-log-maxsize, -maxbackup and -maxage.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import msgspec

from control.auth.audit_policy import Policy, Verdict
from control.auth.user import AuthzAttributes, UserInfo, user_info
from kube.clock import Clock, format_micro_time
from kube.counters import Counter

log = logging.getLogger(__name__)
QUEUE = 10_000
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
        line = msgspec.json.encode({k: v for k, v in event.items() if v is not None}) + b"\n"
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
            "sourceIPs": sources or None,
            "userAgent": user_agent or None,
            "objectRef": _reference(attributes),
            "requestReceivedTimestamp": format_micro_time(self.clock.now()),
        }
        note = Note(self, verdict, event)
        note.stage("RequestReceived")
        return note


def _reference(a: AuthzAttributes) -> Object | None:
    if not a.resource:
        return None
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


class LogFile:
    """A file of lines with rotation, written by a thread of its own. Sizes are bytes, ages seconds, 0 is no limit."""

    def __init__(self, path: Path, max_bytes: int = 100 * 1024 * 1024, backups: int = 10, max_age: int = 0) -> None:
        self._path, self._max_bytes, self._backups, self._max_age = path, max_bytes, backups, max_age
        self._lines: queue.Queue[bytes | None] = queue.Queue(QUEUE)
        self.dropped = 0
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = _open(path)
        self._size = path.stat().st_size
        self._thread = threading.Thread(target=self._work, name="audit-log", daemon=True)
        self._thread.start()

    def write(self, line: bytes) -> None:
        """Queue a line; drop it where the disk is too far behind."""
        try:
            self._lines.put_nowait(line)
        except queue.Full:
            self.dropped += 1
            ERRORS.add("log")

    def close(self) -> None:
        """Write what is queued and close the file. Blocks."""
        self._lines.put(None)
        self._thread.join()
        self._file.close()

    def _work(self) -> None:
        while (line := self._lines.get()) is not None:
            try:
                if self._size and self._size + len(line) > self._max_bytes > 0:
                    self._rotate()
                self._file.write(line)
                self._size += len(line)
                if self._lines.empty():
                    self._file.flush()
            except OSError:
                self.dropped += 1
                ERRORS.add("log")
                log.exception("cannot write the audit log %s", self._path)
                time.sleep(0.1)

    def _rotate(self) -> None:
        self._file.close()
        stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%S.%f")
        self._path.rename(self._path.with_name(f"{self._path.stem}-{stamp}{self._path.suffix}"))
        self._file, self._size = _open(self._path), 0
        old = sorted(self._path.parent.glob(f"{self._path.stem}-*{self._path.suffix}"), reverse=True)
        limit = time.time() - self._max_age if self._max_age else 0
        for number, path in enumerate(old):
            if (self._backups and number >= self._backups) or path.stat().st_mtime < limit:
                path.unlink(missing_ok=True)


def _open(path: Path) -> Any:
    """Open for appending, readable by nobody else: the log holds what people sent."""
    return open(path, "ab", opener=lambda name, flags: os.open(name, flags, 0o600))
