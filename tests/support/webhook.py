"""A webhook for tests: a real HTTPS server on loopback that answers as the test says, and records its requests."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from aiohttp import web

from kube.json_object import Object
from tests.support import https

Answer = Callable[[Object], Object]
"""From a review's request to its response, without the uid."""


class Webhook:
    """A running server. `answers` maps a path to what is answered there; `asked` are (path, request) in order."""

    def __init__(self, authority: bytes) -> None:
        self.bundle = base64.b64encode(authority).decode()
        self.answers: dict[str, Answer | bytes] = {}
        self.received: list[tuple[str, Object]] = []
        self.versions: set[str] = set()
        """The apiVersions of the reviews that came."""
        self.headers: list[dict[str, str]] = []
        """Headers of the requests, by lower-case names."""
        self.sleep = 0.0
        self.port = 0

    def client(self, path: str) -> Object:
        """Return a clientConfig for a path."""
        return {"url": f"https://127.0.0.1:{self.port}{path}", "caBundle": self.bundle}

    def paths(self) -> list[str]:
        return [path for path, _ in self.received]

    async def serve(self, request: web.Request) -> web.Response:
        review = await request.json()
        self.received.append((request.path, review["request"]))
        self.versions.add(review["apiVersion"])
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        if self.sleep:
            await asyncio.sleep(self.sleep)
        answer = self.answers[request.path]
        if isinstance(answer, bytes):
            return web.Response(body=answer, content_type="application/json")
        response = {"uid": review["request"]["uid"], **answer(review["request"])}
        return web.json_response({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response})


def patching(*operations: Object) -> Answer:
    """Answer with a JSON patch."""
    patch = base64.b64encode(json.dumps(operations).encode()).decode()
    return lambda request: {"allowed": True, "patchType": "JSONPatch", "patch": patch}


@contextlib.asynccontextmanager
async def webhook(directory: Path) -> AsyncIterator[Webhook]:
    """Run a webhook with a certificate of an authority of its own."""
    hook = Webhook(https.authority(directory, "hook"))
    application = web.Application()
    application.router.add_post("/{path:.*}", hook.serve)
    async with https.served(application, directory, "hook") as hook.port:
        yield hook
