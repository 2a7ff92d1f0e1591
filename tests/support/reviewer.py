"""Programs that a server asks about tokens and access, for tests: a real HTTPS server, and the kubeconfigs that lead to it."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web

from kube.json_object import Object
from tests.support import https


class Reviewer:
    """A running server. `answers` maps a path to what becomes a review's status; `asked` are (path, body) in order."""

    def __init__(self, directory: Path, authority: bytes) -> None:
        self.directory, self._authority = directory, base64.b64encode(authority).decode()
        self.answers: dict[str, Callable[[Object], Object]] = {}
        self.received: list[tuple[str, Object]] = []
        self.headers: list[Any] = []
        self.failures: list[int] = []
        """Status codes to be answered first, in order."""
        self.held = asyncio.Event()
        """Cleared: answers wait."""
        self.held.set()
        self.port = 0

    def at(self, path: str) -> list[Object]:
        """Return what was asked at a path."""
        return [body for where, body in self.received if where == path]

    def kubeconfig(self, path: str, token: str = "t0ken") -> Path:
        """Write a kubeconfig for a path of this server, and return where it is."""
        cluster = {"server": f"https://127.0.0.1:{self.port}{path}", "certificate-authority-data": self._authority}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "hook", "cluster": cluster}],
            "users": [{"name": "server", "user": {"token": token}}],
            "contexts": [{"name": "hook", "context": {"cluster": "hook", "user": "server"}}],
            "current-context": "hook",
        }
        file = self.directory / f"{path.strip('/').replace('/', '-')}.kubeconfig"
        file.write_text(yaml.safe_dump(document))
        return file

    async def serve(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.received.append((request.path, body))
        self.headers.append(request.headers)
        await self.held.wait()
        if self.failures:
            return web.Response(status=self.failures.pop(0), text="not now")
        answer = self.answers.get(request.path)
        return web.json_response({**body, "status": answer(body.get("spec") or {})} if answer else {})


@contextlib.asynccontextmanager
async def reviewer(directory: Path) -> AsyncIterator[Reviewer]:
    """Run one with a certificate of an authority of its own."""
    made = Reviewer(directory, https.authority(directory, "reviewer"))
    application = web.Application(client_max_size=64 * 1024 * 1024)
    application.router.add_post("/{path:.*}", made.serve)
    async with https.served(application, directory, "reviewer") as made.port:
        yield made
