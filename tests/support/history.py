"""Clients of several API servers beside a test: they write, read and watch all the time, and record the responses.

They run in a thread in the network namespace of the test's switch (netns.py), each with another preferred server, and go on to
another one as agents do. `check` then holds the whole against what a store must do.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any

from kube import kubeconfig
from kube.api import core_v1, meta_v1
from kube.client import Client
from kube.errors import StatusError
from kube.informer import Change, Informer
from kube.kubeconfig import Access
from kube.servers import Servers
from kube.transport import HttpsTransport
from tests.support.cluster import Cluster
from tests.support.netns import Namespace

NAMESPACE = "default"
LAST_WRITE_SECONDS = 120.0
"""Time for the last write of each writer, when the faults are over."""


class History:
    """Acknowledged and observed changes of a run."""

    def __init__(
        self,
        machines: Iterable[Cluster],
        pods: str,
        namespace: str = NAMESPACE,
        seconds: float = 280,
        compacted: bool = False,
    ) -> None:
        """`pods`: the selector of the pods to follow. `seconds`: how long it may run.

        `compacted`: history is compacted up to the newest revision meanwhile, so that a watch that was cut may go on with
        a list: it then reports the last change of an object only.
        """
        clusters = list(machines)
        self._place, self._selector = clusters[0].host.switch.name, pods
        self._namespace, self._seconds, self._compacted = namespace, seconds, compacted
        self._access = kubeconfig.load(clusters[0].kubeconfig)
        urls = [f"https://{cluster.host.address}:6443" for cluster in clusters]
        self._urls = urls if len(urls) > 1 else urls * 2
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self.acknowledged: list[tuple[str, int]] = []
        """Object and revision, of one writer after the other's."""
        self._last: dict[str, int] = {}
        """Highest acknowledged revision of each object."""
        self.watched: dict[str, list[int]] = {}
        self.pods: set[str] = set()
        """The uids of all pods that ever were."""
        self.phases: dict[str, list[str]] = {}
        """The phases that each pod was seen in, by its name and uid, in order and each once."""
        self.present: set[str] = set()
        """The pods that there are now, by their name and uid."""
        self.stored: dict[str, int] = {}

    # -- running ----------------------------------------------------------------------------------------------------
    @contextlib.contextmanager
    def running(self) -> Iterator[History]:
        """Write and watch until the block ends, then check."""
        thread = threading.Thread(target=self._run, name="history")
        thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            thread.join()
        if self._failure is not None:
            raise self._failure
        self._check()

    def _run(self) -> None:
        try:
            Namespace(self._place).inside(self._main, timeout=self._seconds)
        except BaseException as error:
            self._failure = error

    async def _main(self) -> None:
        async with contextlib.AsyncExitStack() as stack:
            clients = [self._client(number) for number in range(len(self._urls))]
            for client in clients:
                stack.push_async_callback(client.close)
            maps = Informer(clients[0], core_v1.ConfigMap, self._namespace, label_selector="counted=yes")
            maps.subscribe(self._seen)
            pods = Informer(clients[1], core_v1.Pod, self._namespace, label_selector=self._selector)
            pods.subscribe(self._pod_seen)
            async with asyncio.TaskGroup() as group:
                following = [group.create_task(each.run()) for each in (maps, pods)]
                writers = [group.create_task(self._count(n, client)) for n, client in enumerate(clients)]
                await asyncio.gather(*writers)
                for name, revision in [
                    (f"counted-{n}", self._last.get(f"counted-{n}", 0)) for n in range(len(clients))
                ]:
                    async with asyncio.timeout(30):
                        while revision not in self.watched.get(name, ()):
                            await asyncio.sleep(0.05)
                for task in following:
                    task.cancel()
            for item in (await clients[0].list(core_v1.ConfigMap, self._namespace, label_selector="counted=yes")).items:
                self.stored[item.metadata.name or ""] = int(item.metadata.resource_version or 0)

    def _client(self, number: int) -> Client:
        servers = Servers(self._urls[number])
        servers.learn(self._urls)
        access = Access(self._urls[number], self._access.ca, self._access.certificate, self._access.key)
        return Client(HttpsTransport(access, servers=servers))

    async def _count(self, number: int, client: Client) -> None:
        """Count up in an object by compare-and-swap."""
        name = f"counted-{number}"
        held: core_v1.ConfigMap | None = None
        end = math.inf
        while True:
            try:
                if held is None:
                    held = await self._read_map(client, name)
                held.data = {"n": str(int(held.data["n"]) + 1)}
                held = await client.update(held)
            except StatusError as error:
                held = None
                if self._stop.is_set():
                    end = min(end, time.monotonic() + LAST_WRITE_SECONDS)
                assert time.monotonic() < end, f"no write in the last {LAST_WRITE_SECONDS:.0f} s: {error}"
                await asyncio.sleep(0.1)
                continue
            revision = int(held.metadata.resource_version or 0)
            self.acknowledged.append((name, revision))
            self._last[name] = max(revision, self._last.get(name, 0))
            if self._stop.is_set():
                return
            await asyncio.sleep(0.02)

    async def _read_map(self, client: Client, name: str) -> core_v1.ConfigMap:
        try:
            found = await client.get(core_v1.ConfigMap, name, self._namespace)
        except StatusError as error:
            if not error.not_found:
                raise
            meta = meta_v1.ObjectMeta(name=name, namespace=self._namespace, labels={"counted": "yes"})
            return await client.create(core_v1.ConfigMap(metadata=meta, data={"n": "0"}))
        last = self._last.get(name, 0)
        assert int(found.metadata.resource_version or 0) >= last, f"read {found.metadata.resource_version} after {last}"
        return found

    def _seen(self, change: Change[Any]) -> None:
        metadata = change.new.metadata
        self.watched.setdefault(metadata.name, []).append(int(metadata.resource_version))

    def _pod_seen(self, change: Change[core_v1.Pod]) -> None:
        metadata, phase = change.new.metadata, change.new.status.phase or "Pending"
        self.pods.add(metadata.uid or "")
        key = f"{metadata.name} {metadata.uid}"
        if change.type == "DELETED":
            self.present.discard(key)
        else:
            self.present.add(key)
        seen = self.phases.setdefault(key, [])
        if seen[-1:] != [phase]:
            seen.append(phase)

    # -- what it must be ----------------------------------------------------------------------------------------------
    def _check(self) -> None:
        for name, revisions in self.watched.items():
            assert revisions == sorted(set(revisions)), f"{name}: each change once and in order"
        first = {name: revisions[0] for name, revisions in self.watched.items()}
        watched = {name: set(revisions) for name, revisions in self.watched.items()}
        missing = [
            (name, revision)
            for name, revision in self.acknowledged
            if revision > first[name] and revision not in watched[name]
        ]
        assert self._compacted or missing == [], "each acknowledged write is reported by a watch"
        for name, revision in self.stored.items():
            last = self._last.get(name, 0)
            assert revision >= last, f"{name}: {last} was acknowledged, {revision} is stored"

    def progress(self) -> int:
        """Return the number of writes that every writer has done at least."""
        counts = [len([1 for name, _ in self.acknowledged if name == f"counted-{n}"]) for n in range(len(self._urls))]
        return min(counts)
