"""Serves the objects of a history with an API server, at any of its revisions: to kubectl it is the cluster as it was.

There are no controllers and no nodes, requests that would change something are refused, and time stands at that of the
revision. A step forward is a change that watches see. A step back starts the server anew, since revisions only grow, and ends
watches.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from control.assembly.api_server import ApiServer
from control.dialing.node_dialer import Endpoint, unreachable
from control.http.exchange import Answer, Handler, Request
from kube import errors, pki_layout
from wherry.testing.engine import config_of, opened
from wherry.testing.history.history import History
from wherry.testing.history.replay_store import ReplayStore
from wherry.testing.kubeconfig import kubeconfig_text
from wherry.testing.timing.virtual import REACTION_SECONDS, VirtualTime

READS = ("get", "list", "watch")
REVIEWS = ("authentication.k8s.io", "authorization.k8s.io")
REFUSED = "this is the history of a test: it cannot be changed"


class NoNodes:
    """Dials nothing: the nodes of a history do not run."""

    async def dial(self, endpoint: Endpoint) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Raise StatusError."""
        raise unreachable(endpoint, "the nodes of a history do not run")


class Replay:
    """A server of one history while the block runs, at first at its last revision. port 0: a free one."""

    def __init__(self, history: History, *, port: int = 0) -> None:
        self.history, self._port = history, port
        self.revision = history.last
        self._stack, self._server = contextlib.AsyncExitStack(), contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        self.folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="wherry-replay-")))
        try:
            now = min(datetime.now(UTC), self.history.begin)
            self._keys = pki_layout.ensure(self.folder / "pki", now=datetime.now(UTC), hosts=("127.0.0.1",))
            await self._start()
            self.kubeconfig_text = kubeconfig_text(self.url, self._keys, now)
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await self._server.aclose()
        finally:
            await self._stack.aclose()

    @property
    def url(self) -> str:
        """The server's address."""
        return f"https://127.0.0.1:{self._port}"

    async def go(self, revision: int) -> None:
        """Show the objects of a revision. Raise ClusterError if the history does not have it."""
        changes = self.history.upto(revision)
        if revision < self.revision:
            await self._server.aclose()
            self.revision = revision
            await self._start()
            return
        for change in changes[self.revision - self.history.revision :]:
            await self._time.advance(max(0.0, (change.time - self._time.clock.now()).total_seconds()))
            await self._store.step(change)
            self.revision = change.revision

    async def _start(self) -> None:
        async with contextlib.AsyncExitStack() as stack:
            self._time = VirtualTime(self.history.time(self.revision), REACTION_SECONDS)
            stack.enter_context(self._time.installed())
            async with self._time.flowing():
                api = await stack.enter_async_context(self._serving())
                self._time.observe(api)
            self._port = api.listener.port
            self._server = stack.pop_all()

    @contextlib.asynccontextmanager
    async def _serving(self) -> AsyncIterator[ApiServer]:
        clock = self._time.clock
        self._store = store = ReplayStore(clock)
        store.show(self.history, self.revision)
        config = config_of(self.folder, self._port)
        async with ApiServer.open(config, clock, opened(store, clock), dialer=NoNodes()) as api:
            api.pipeline.add_middleware(_reading)
            yield api


def _reading(handler: Handler) -> Handler:
    """Return a handler that refuses changes."""

    async def handle(request: Request) -> Answer:
        info = request.info
        if info.verb not in READS and info.group not in REVIEWS:
            raise errors.forbidden(info.group, info.resource, info.name, REFUSED)
        return await handler(request)

    return handle
