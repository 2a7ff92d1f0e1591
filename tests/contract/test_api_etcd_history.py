"""Linearizability of two API servers on an etcd of three: clients' observations as one history while members are killed.

Writers count, watchers and readers go from server to server all the time. Afterwards the watch is the history: each event once,
in order; every acknowledged write is in it at the revision that was acknowledged; every list, also one whose pages came from
different servers, is the state at its revision; and none is older than what was acknowledged before it was asked for.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.contract.test_api_etcd import CONFIG_MAPS, on
from tests.support.control import ADMIN, ApiUnderTest, api_server
from tests.support.etcd import Etcd, etcd, needs_etcd

pytestmark = needs_etcd
SELECTOR = "labelSelector=counted%3Dyes"
State = dict[str, str]


@dataclass
class Seen:
    """Observations of the clients. Revisions are numbers here; a state maps names to counts."""

    acknowledged: list[tuple[int, str, str | None]] = field(default_factory=list)
    events: list[tuple[int, str, str | None]] = field(default_factory=list)
    lists: list[tuple[int, int, State]] = field(default_factory=list)
    """Each with the highest revision that had been acknowledged when it was asked for."""
    refused: int = 0

    @property
    def newest(self) -> int:
        return max((revision for revision, _, _ in self.acknowledged), default=0)


def body(name: str, count: str, version: str = "") -> dict[str, Any]:
    metadata = {"name": name, "labels": {"counted": "yes"}} | ({"resourceVersion": version} if version else {})
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"n": count}}


def revision_of(obj: dict[str, Any]) -> int:
    return int(obj["metadata"]["resourceVersion"])


class Clients:
    def __init__(self, servers: list[ApiUnderTest], seed: int) -> None:
        self.servers, self.seen = servers, Seen()
        self.chance = random.Random(seed)
        self.stop = asyncio.Event()
        self.last = sys.maxsize
        """The revision that ends the watch."""

    async def write(self, number: int) -> None:
        """Create, count up by compare-and-swap and delete, each time at whichever server."""
        name, version, count = f"c{number}", "", 0
        while not self.stop.is_set():
            api = self.chance.choice(self.servers)
            count += 1
            if not version:
                answer = await api.request("POST", CONFIG_MAPS, body(name, str(count)))
            elif self.chance.random() < 0.15:
                answer = await api.request("DELETE", f"{CONFIG_MAPS}/{name}")
                if answer.status == 200:
                    # Only watchers get a deletion's own revision.
                    version = ""
                    continue
            else:
                answer = await api.request("PUT", f"{CONFIG_MAPS}/{name}", body(name, str(count), version))
            if answer.status in (200, 201):
                version = str(revision_of(answer.json))
                self.seen.acknowledged.append((int(version), name, str(count)))
                continue
            # What became of it is unknown: look, as a client would.
            assert answer.json["kind"] == "Status", answer.body
            self.seen.refused += 1
            while True:
                found = await api.request("GET", f"{CONFIG_MAPS}/{name}")
                if found.status in (200, 404):
                    version = str(revision_of(found.json)) if found.status == 200 else ""
                    count = max(count, int(found.json["data"]["n"])) if version else count
                    break
                await asyncio.sleep(0.05)

    async def follow(self, version: str) -> None:
        """Watch at one server after the other, each time from the last revision that the one before told."""
        at = 0
        while True:
            at += 1
            api = self.servers[at % len(self.servers)]
            path = f"{CONFIG_MAPS}?watch=true&{SELECTOR}&resourceVersion={version}&allowWatchBookmarks=true"
            ends = asyncio.get_running_loop().time() + self.chance.uniform(0.05, 0.6)
            async with api.session(*ADMIN).get(path) as answer:
                assert answer.status == 200, await answer.text()
                try:
                    async with asyncio.timeout_at(ends):
                        while line := await answer.content.readline():
                            event = json.loads(line)
                            version = event["object"]["metadata"]["resourceVersion"]
                            if event["type"] == "BOOKMARK":
                                continue
                            name = event["object"]["metadata"]["name"]
                            count = event["object"]["data"]["n"] if event["type"] != "DELETED" else None
                            self.seen.events.append((int(version), name, count))
                except TimeoutError:
                    pass
            if int(version) >= self.last:
                return

    async def read(self) -> None:
        """List whole or in pages, every page at another server."""
        while not self.stop.is_set():
            newest, version, state, token = self.seen.newest, 0, {}, ""
            while True:
                page = f"{CONFIG_MAPS}?{SELECTOR}&limit={self.chance.choice((0, 3))}&continue={token}"
                answer = await self.chance.choice(self.servers).request("GET", page)
                if answer.status != 200:
                    break
                metadata = answer.json["metadata"]
                assert version in (0, int(metadata["resourceVersion"])), "all pages are of one revision"
                version = int(metadata["resourceVersion"])
                state |= {i["metadata"]["name"]: i["data"]["n"] for i in answer.json["items"]}
                token = metadata.get("continue", "")
                if not token:
                    self.seen.lists.append((newest, version, state))
                    break
            await asyncio.sleep(0.01)


def check(seen: Seen, last: State) -> None:
    revisions = [revision for revision, _, _ in seen.events]
    assert revisions == sorted(set(revisions)), "each event once and in order"
    history = {revision: (name, count) for revision, name, count in seen.events}
    for revision, name, count in seen.acknowledged:
        assert history.get(revision) == (name, count), f"{name}={count} was acknowledged at {revision}"
    states: dict[int, State] = {0: {}}
    state: State = {}
    for revision, name, count in seen.events:
        state = {**state, name: count} if count is not None else {k: v for k, v in state.items() if k != name}
        states[revision] = state
    assert state == last
    for newest, version, listed in seen.lists:
        assert version >= newest, f"the list at {version} is older than what was acknowledged at {newest}"
        assert listed == states[max(r for r in states if r <= version)], f"the list at {version}"


async def kill_each(cluster: Etcd, seen: Seen) -> None:
    async def progress() -> None:
        before = len(seen.acknowledged), len(seen.lists), len(seen.events)
        async with asyncio.timeout(60):
            while (
                min(len(seen.acknowledged) - before[0], len(seen.lists) - before[1], len(seen.events) - before[2]) < 25
            ):
                await asyncio.sleep(0.02)

    for member in cluster.members:
        await progress()
        member.kill()
        await progress()
        member.start()
        await cluster.wait_healthy(member)
    await progress()


async def test_the_history_holds_while_members_are_killed_and_clients_change_servers(tmp_path: Path) -> None:
    async with etcd(tmp_path / "etcd", members=3) as cluster:
        async with api_server(tmp_path / "a", **on(cluster)) as a, api_server(tmp_path / "b", **on(cluster)) as b:
            clients = Clients([a, b], seed=4)
            begin = (await a.request("GET", f"{CONFIG_MAPS}?{SELECTOR}")).json["metadata"]["resourceVersion"]
            async with asyncio.TaskGroup() as group:
                workers = [group.create_task(clients.write(number)) for number in range(6)]
                workers += [group.create_task(clients.read()) for _ in range(2)]
                watching = group.create_task(clients.follow(begin))
                await kill_each(cluster, clients.seen)
                clients.stop.set()
                await asyncio.gather(*workers)
                # A last write ends the watch: everything before it has been observed then.
                made = await a.request("POST", CONFIG_MAPS, body("last", "0"))
                clients.last = revision_of(made.json)
                clients.seen.acknowledged.append((clients.last, "last", "0"))
                await watching
            listed = (await b.request("GET", f"{CONFIG_MAPS}?{SELECTOR}")).json["items"]
            check(clients.seen, {item["metadata"]["name"]: item["data"]["n"] for item in listed})
