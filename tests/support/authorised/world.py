"""A server whose every object has a text of its own, so that an answer shows whose bytes are in it.

Two namespaces have the same objects under the same names, and one more of each kind under a name that is nowhere else. The
authorizer, the store, admission and the backends are recorded.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import json
import re
import time
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from control.aggregation import availability
from control.assembly.api_server import ApiServer
from control.auth.authorizers import Link
from control.auth.user import Credentials, UserInfo
from control.http.exchange import Request, Response, Stream, Upgrade
from control.http.pieces import whole
from control.resource_metrics.scraper import Scraper
from control.resource_metrics.usage import NodeUsage, Usage
from control.server import componentstatus
from control.storage import codec
from control.storage.store import KeyNotFound, RevisionConflict
from kube.journal import DENIED, denied_name, kind_key, resource_key
from kube.json_object import Object
from tests.support.authorised import canaries
from tests.support.authorised.backends import dialled
from tests.support.authorised.objects import COMPONENTS as COMPONENT_NAMES
from tests.support.authorised.objects import NAMESPACES, NODES, certificate_request, objects_of
from tests.support.authorised.recording import (
    Record,
    RecordingAdmission,
    RecordingAuthorizer,
    RecordingStore,
    note_read,
    writers_identified,
)
from tests.support.authorised.reads import reads_recorded
from tests.support.authorised.targets import BOATS, BY_NAME, COMPONENTS, CREW, STORED, TARGETS, Target, definition
from tests.support.control import ApiUnderTest, api_server

ADMIN = UserInfo("admin", groups=("system:masters", "system:authenticated"))
EXTENSION = "elsewhere.example"
WATCH_SECONDS = 0.01
TURNS = 20
"""Iterations of the event loop until the authorizers have processed a change."""
FRESH_SECONDS = 0.05
"""Time that a request waits for a revision that is not there."""
HEADERS = {
    "requestheader_username_headers": ("X-Remote-User", "X-Boat-User"),
    "requestheader_uid_headers": ("X-Remote-Uid", "X-Boat-Uid"),
    "requestheader_group_headers": ("X-Remote-Group", "X-Boat-Group"),
    "requestheader_extra_headers_prefix": ("X-Remote-Extra-", "X-Boat-Extra-"),
}


@dataclass(frozen=True)
class Sent:
    """An answer as a client gets it; a watch's is what came until it ended."""

    status: int
    body: bytes
    headers: bytes

    @property
    def everything(self) -> bytes:
        return self.headers + b"\n" + self.body


@dataclass
class World:
    api: ApiServer
    under_test: ApiUnderTest
    authorizer: RecordingAuthorizer
    seeds: dict[tuple[Target, str, str], str] = field(default_factory=dict)
    """The text of each object's own, by target, namespace and name."""
    owners: dict[str, tuple[Target, str, str]] = field(default_factory=dict)
    """Target, namespace and name of the object that a text is of."""
    _seeded: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    tokens: list[str] = field(default_factory=list)
    """Continue tokens of lists that somebody else began."""
    csr: str = ""
    users: dict[str, UserInfo] = field(default_factory=dict)
    """Users that send requests, by their tokens."""

    @functools.cached_property
    def named(self) -> dict[bytes, list[tuple[Target, str, str]]]:
        """The objects whose names are nowhere else, by name."""
        found: dict[bytes, list[tuple[Target, str, str]]] = {}
        for seed in self.seeds:
            if seed[2].startswith("zq"):
                found.setdefault(seed[2].encode(), []).append(seed)
        return found

    @functools.cached_property
    def names(self) -> re.Pattern[bytes]:
        """Pattern of the names that are nowhere else."""
        tails = sorted((re.escape(name[2:]) for name in self.named), key=len, reverse=True)
        return re.compile(b"zq(?:" + b"|".join(tails) + b")")

    async def authenticate(self, credentials: Credentials) -> UserInfo | None:
        """Return the user of a request: an authenticator."""
        return self.users.get(credentials.token or "")

    def seeded(self, target: Target, namespace: str = "") -> list[str]:
        return self._seeded.get((target.prefix, namespace), [])

    def object(self, target: Target, namespace: str, name: str) -> Object | None:
        """Return an object as it is stored now."""
        cached = self.api.registry.cached_at(target.prefix)
        entry = cached.get(target.key(namespace, name)) if cached is not None else None
        return None if entry is None else dict(json.loads(entry.data))

    async def send(
        self, method: str, path: str, query: str, headers: list[tuple[bytes, bytes]], body: bytes, user: UserInfo
    ) -> Sent:
        """Send a request as a user, whom a token stands for, past the edge, which decodes the path."""

        async def read(limit: int) -> bytes:
            return body

        request = Request(method, unquote(path), query.encode("latin-1"), dict(headers), read)
        request.extensions["headers"] = headers
        self.users[user.name] = user
        answer = await self.api.pipeline.answer(request, Credentials(token=user.name, headers=headers))
        if isinstance(answer, Upgrade):
            answer = await answer.splice(None) or Response(101)
        if isinstance(answer, Stream):
            touching = asyncio.create_task(self._touch(request), context=contextvars.Context())
            chunks = b"".join([chunk async for chunk in answer.chunks])
            await touching
            answer = Response(answer.status, chunks, answer.content_type, answer.headers)
        shown = b"\n".join(name + b": " + value for name, value in answer.headers)
        return Sent(answer.status, whole(answer.body), shown)

    async def _touch(self, request: Request) -> None:
        """Write all objects of the kind that a request watches once more, as they are, for the watch to show or not."""
        target = BY_NAME.get((request.info.group, request.info.resource))
        if target is None or request.info.verb != "watch":
            return
        for namespace, name in [seed[1:] for seed in self.seeds if seed[0].prefix == target.prefix]:
            now = await self.api.store.get(target.key(namespace, name))
            if now is not None:
                with contextlib.suppress(RevisionConflict, KeyNotFound):
                    await self.api.store.update(now.key, now.value, now.revision)

    async def admin(self, method: str, path: str, body: Object | None = None, query: str = "") -> Any:
        headers = [(b"content-type", b"application/json"), (b"user-agent", b"admin")]
        sent = await self.send(method, path, query, headers, json.dumps(body).encode() if body else b"", ADMIN)
        assert sent.status < 300, f"{method} {path}: {sent.status} {sent.body!r}"
        return json.loads(sent.body)

    async def undo(self, record: Record) -> None:
        """Revert what was written while a request was recorded."""
        revision = 0
        for key in dict.fromkeys(write.key for write in record.writes):
            first = next(write.old for write in record.writes if write.key == key)
            for _ in range(5):
                with contextlib.suppress(RevisionConflict, KeyNotFound):  # what runs beside the server writes too
                    revision = max(revision, await self._put_back(key, first))
                    break
        if revision:
            await self.api.cache.wait_fresh(revision, timeout=3)
            for _ in range(TURNS):
                await asyncio.sleep(0)

    async def _put_back(self, key: str, before: Object | None) -> int:
        store, now = self.api.store, await self.api.store.get(key)
        if before is not None and now is not None:
            return (await store.update(key, codec.encode(before), now.revision)).revision
        if before is not None:
            return (await store.create(key, codec.encode(before))).revision
        return (await store.delete(key, now.revision)).revision if now is not None else 0

    # -- what there is --------------------------------------------------------------------------------------------
    async def seed(self) -> None:
        for namespace in NAMESPACES:
            await self._put(TARGETS["namespaces"], "", {"metadata": {"name": namespace}})
        for made in (
            definition(
                "boats",
                "Boat",
                BOATS,
                {"status": {}, "scale": {"specReplicasPath": ".spec.crew", "statusReplicasPath": ".status.crew"}},
            ),
            definition("events", "Event", CREW, {}),
        ):
            await self.admin("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", made)
        await self._served(f"boats.{BOATS}")
        await self._served(f"events.{CREW}")
        self.csr = certificate_request()
        for target in sorted(STORED, key=lambda target: target.plural != "serviceaccounts"):
            if target.plural == "namespaces":
                continue
            for namespace in NAMESPACES if target.namespaced else ("",):
                for obj in objects_of(target, namespace, self.csr):
                    await self._put(target, namespace, obj)
        await self._finish()
        for path in ("/api/v1/namespaces/right/secrets", "/api/v1/secrets", "/api/v1/namespaces/right/configmaps"):
            self.tokens.append((await self.admin("GET", path, query="limit=1"))["metadata"]["continue"])

    async def _served(self, name: str) -> None:
        async with asyncio.timeout(20):
            while (await self.send("GET", TARGETS[name].path("left"), "", [], b"", ADMIN)).status != 200:
                await asyncio.sleep(0.02)

    async def _put(self, target: Target, namespace: str, obj: Object) -> None:
        name = obj["metadata"]["name"]
        own = canaries.text(len(self.seeds))
        status = canaries.status(target, own) | (obj.pop("status", None) or {})
        made = await self.admin("POST", target.path(namespace), canaries.marked(target, obj, own))
        self._seed(target, namespace, name, own)
        self.owners[own] = self.owners[canaries.label(own)] = (target, namespace, name)
        self._journal(target, made, own)
        if status:
            await self.admin(
                "PUT", target.path(namespace, name, "status"), made | {"status": made.get("status", {}) | status}
            )

    def _seed(self, target: Target, namespace: str, name: str, own: str) -> None:
        self.seeds[target, namespace, name] = own
        self._seeded.setdefault((target.prefix, namespace), []).append(name)

    def _journal(self, target: Target, made: Object, own: str) -> None:
        """Record a decision about an object, and a denied request for it, with the object's text."""
        journal, meta = self.api.journal, made["metadata"]
        assert journal is not None
        namespace, name = meta.get("namespace", ""), meta["name"]
        journal.record(kind_key(target.group, target.kind), namespace, name, "test", own, uid=meta["uid"])
        journal.record(resource_key(target.group, target.plural), DENIED, denied_name(namespace, name), "test", own)

    async def _finish(self) -> None:
        for name in COMPONENT_NAMES:
            self._seed(COMPONENTS, "", name, "")
        for namespace in NAMESPACES:
            path = TARGETS["poddisruptionbudgets.policy"].path(namespace, "a")
            budget = await self.admin("GET", path)
            allowed = {"disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2}
            budget["status"] |= {"observedGeneration": budget["metadata"]["generation"], **allowed}
            await self.admin("PUT", path + "/status", budget)
        service = {"namespace": "right", "name": "a", "port": 80}
        spec = {"group": EXTENSION, "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 10}
        name = {"name": f"v1.{EXTENSION}"}
        body = {"metadata": name, "spec": {**spec, "service": service, "insecureSkipTLSVerify": True}}
        await self.admin("POST", "/apis/apiregistration.k8s.io/v1/apiservices", body)
        async with asyncio.timeout(20):
            while not any(r.available for r in self.api.aggregator.extensions.remotes.values()):
                await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def world(directory: Path) -> AsyncIterator[World]:
    """Start a server, put its objects into it and record from then on."""
    kept = availability.check, componentstatus.PARTS, Scraper.usage

    async def available(*_: Any) -> Any:
        return True, "Passed", "all checks passed"

    async def usage(scraper: Scraper, nodes: Iterable[str]) -> dict[str, NodeUsage]:
        used = Usage(time.time(), 10.0, 0.1, 1e6)
        containers = {(namespace, "a", "c"): used for namespace in NAMESPACES}
        return {node: NodeUsage(used, containers) for node in nodes if node in NODES}

    availability.check, componentstatus.PARTS = available, COMPONENT_NAMES
    Scraper.usage = usage  # type: ignore[method-assign]
    try:
        with dialled(), writers_identified(), reads_recorded(note_read):
            plugins = ("OwnerReferencesPermissionEnforcement",)
            async with api_server(directory, enabled_admission=plugins, **HEADERS) as under_test:
                api, authorizer = under_test.api, RecordingAuthorizer()
                made = World(api, under_test, authorizer)
                api.auth.authenticator.replace([made])
                api.auth.authorizer.replace([Link("", "", authorizer)])
                api.watches.min_timeout = WATCH_SECONDS
                api.cache.wait_fresh = functools.partial(api.cache.wait_fresh, timeout=FRESH_SECONDS)  # type: ignore[method-assign]
                api.registry.store = RecordingStore(api.store)  # type: ignore[assignment]
                api.registry.admission = RecordingAdmission(api.registry.admission)
                await made.seed()
                yield made
    finally:
        availability.check, componentstatus.PARTS, Scraper.usage = kept  # type: ignore[method-assign]
