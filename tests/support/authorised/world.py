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
from collections.abc import AsyncIterator
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
from control.storage import codec
from control.storage.store import KeyNotFound, RevisionConflict
from kube.json_object import Object
from tests.support.authorised.backends import dialled
from tests.support.authorised.objects import NAMESPACES, certificate_request, objects_of
from tests.support.authorised.recording import (
    Record,
    RecordingAdmission,
    RecordingAuthorizer,
    RecordingStore,
    writers_identified,
)
from tests.support.authorised.targets import BOATS, BY_NAME, CREW, TARGETS, Target, definition
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
    tokens: list[str] = field(default_factory=list)
    """Continue tokens of lists that somebody else began."""
    csr: str = ""
    users: dict[str, UserInfo] = field(default_factory=dict)
    """Users that send requests, by their tokens."""

    async def authenticate(self, credentials: Credentials) -> UserInfo | None:
        """Return the user of a request: an authenticator."""
        return self.users.get(credentials.token or "")

    def seeded(self, target: Target, namespace: str = "") -> list[str]:
        return [name for t, ns, name in self.seeds if t is target and ns == namespace]

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
        for _, namespace, name in [seed for seed in self.seeds if seed[0] is target and request.info.verb == "watch"]:
            assert target is not None
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
            await self.admin("POST", "/api/v1/namespaces", {"metadata": {"name": namespace, **self._canary(namespace)}})
            self.seeds[TARGETS["namespaces"], "", namespace] = f"zq-namespaces--{namespace}-"
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
        for name, target in sorted(TARGETS.items(), key=lambda item: item[0] != "serviceaccounts"):
            if name in ("namespaces", "events.events.k8s.io"):
                continue
            for namespace in NAMESPACES if target.namespaced else ("",):
                for obj in objects_of(target, namespace, self.csr):
                    await self._put(target, namespace, obj)
        await self._finish()
        for path in ("/api/v1/namespaces/right/secrets", "/api/v1/secrets", "/api/v1/namespaces/right/configmaps"):
            self.tokens.append((await self.admin("GET", path, query="limit=1"))["metadata"]["continue"])

    def _canary(self, name: str) -> Object:
        return {"annotations": {"text": f"zq-namespaces--{name}-"}}

    async def _served(self, name: str) -> None:
        async with asyncio.timeout(20):
            while (await self.send("GET", TARGETS[name].path("left"), "", [], b"", ADMIN)).status != 200:
                await asyncio.sleep(0.02)

    async def _put(self, target: Target, namespace: str, obj: Object) -> None:
        name = obj["metadata"]["name"]
        status = obj.pop("status", None)
        token = f"zq-{target.plural}.{target.group}-{namespace}-{name}-"
        obj["metadata"].setdefault("annotations", {})["text"] = token
        made = await self.admin("POST", target.path(namespace), obj)
        self.seeds[target, namespace, name] = token
        if status is not None:
            await self.admin("PUT", target.path(namespace, name, "status"), made | {"status": status})

    async def _finish(self) -> None:
        for namespace in NAMESPACES:
            path = TARGETS["poddisruptionbudgets.policy"].path(namespace, "a")
            budget = await self.admin("GET", path)
            allowed = {"disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2}
            budget["status"] = {"observedGeneration": budget["metadata"]["generation"], **allowed}
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
    check = availability.check

    async def available(*_: Any) -> Any:
        return True, "Passed", "all checks passed"

    availability.check = available
    try:
        with dialled(), writers_identified():
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
        availability.check = check
