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
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from control.assembly.api_server import ApiServer
from control.auth.user import Credentials, UserInfo
from control.http.exchange import Request, Response, Stream, Upgrade
from control.http.pieces import whole
from control.storage import codec
from control.storage.store import KeyNotFound, RevisionConflict
from kube.json_object import Object
from tests.support.authorised.recording import (
    Record,
    RecordingAuthorizer,
)
from tests.support.authorised.targets import BY_NAME, Target
from tests.support.control import ApiUnderTest

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

    def add_seed(self, target: Target, namespace: str, name: str, own: str) -> None:
        """Add an object to those that there are, with the text of its own."""
        self.seeds[target, namespace, name] = own
        self._seeded.setdefault((target.prefix, namespace), []).append(name)
