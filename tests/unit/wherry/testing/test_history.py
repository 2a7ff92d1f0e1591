"""Histories of tests: the changes of a store with their authors, limited, and the objects at each revision."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import cast

import pytest

from control.auth.user import UserInfo
from control.http.exchange import Answer, Request, Response
from control.storage.memory import MemoryStore
from control.storage.store import KeyNotFound
from tests.support.clock import FakeClock
from wherry.testing.errors import ClusterError
from wherry.testing.history import recorder
from wherry.testing.history.commands import Commands
from wherry.testing.history.history import Change, History
from wherry.testing.history.recorder import Recorder
from wherry.testing.history.replay import Replay
from wherry.testing.history.replay_store import ReplayStore
from wherry.testing.history.requests import with_authors
from wherry.testing.saving import file_format

A, B = "/registry/pods/default/a", "/registry/pods/default/b"


def value(phase: str) -> bytes:
    return (
        b'{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"","name":"x"},"phase":"%b"}' % phase.encode()
    )


class Site:
    """A store with a record, and requests that write to it."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.store = MemoryStore(self.clock)
        self.recorder = Recorder(self.store, self.clock)

    async def write(self, user: str, method: str, key: str, data: bytes = b"", ttl: int = 0) -> None:
        """Write in a request of a user."""

        async def handle(request: Request) -> Answer:
            item = await self.store.get(key)
            if method == "DELETE":
                await self.store.delete(key)
            elif item is None:
                await self.store.create(key, data, ttl)
            else:
                await self.store.update(key, data, item.revision, ttl)
            return Response(200, b"")

        async def read(limit: int) -> bytes:
            return b""

        request = Request(method, "/api/v1/namespaces/default/pods/a", b"", {b"user-agent": b"curl/8"}, read)
        request.user = UserInfo(user)
        await with_authors(handle)(request)


async def recorded() -> tuple[Site, History]:
    site = Site()
    await site.write("eve", "POST", A, value("before"))
    site.recorder.begin()
    await site.write("eve", "PUT", A, value("one"))
    await site.clock.advance(60)
    await site.write("system:node:n", "PATCH", B, value("two"), ttl=10)
    await site.write("eve", "DELETE", A)
    await site.clock.advance(20)
    return site, site.recorder.history("test_it")


async def test_each_change_has_its_author_verb_object_and_time() -> None:
    site, history = await recorded()
    assert [(c.user, c.verb, c.agent, c.type, c.object) for c in history.changes] == [
        ("eve", "update", "curl/8", "MODIFIED", "pods/default/a"),
        ("system:node:n", "patch", "curl/8", "ADDED", "pods/default/b"),
        ("eve", "delete", "curl/8", "DELETED", "pods/default/a"),
        ("", "", "", "DELETED", "pods/default/b"),
    ]
    assert (history.changes[1].time - history.changes[0].time).total_seconds() == 60
    assert str(history.changes[3]).endswith("DELETED pods/default/b (expire by the API server)")
    await site.store.close()


async def test_objects_of_each_revision_are_those_of_its_time(tmp_path: Path) -> None:
    site, history = await recorded()
    history.save(tmp_path / "file")
    history = History.load(tmp_path / "file")
    phases = [
        {name: obj["phase"] for name, obj in history.objects_at(revision).items()}
        for revision in range(history.revision, history.last + 1)
    ]
    a, b = "pods/default/a", "pods/default/b"
    assert phases == [{a: "before"}, {a: "one"}, {a: "one", b: "two"}, {b: "two"}, {}]
    assert history.objects_at(2)[a]["metadata"]["resourceVersion"] == "2"
    with pytest.raises(ClusterError, match="no revision 9: the history has 1 to 5"):
        history.objects_at(9)
    del history.changes[1]
    history.save(tmp_path / "file")
    with pytest.raises(ClusterError, match="is damaged: its revisions have gaps"):
        History.load(tmp_path / "file")
    await site.store.close()


@pytest.mark.parametrize("revision", [10**7, -(10**7)])
async def test_a_history_that_is_read_takes_memory_by_its_size_and_not_by_its_numbers(
    tmp_path: Path, revision: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_format, "MOST_BYTES", 1 << 20)  # which is allocated, but not touched
    site, history = await recorded()
    history.changes[-1].revision = revision
    history.save(tmp_path / "file")
    tracemalloc.start()
    with pytest.raises(ClusterError, match="is damaged: its revisions have gaps"):
        History.load(tmp_path / "file")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 4 << 20
    await site.store.close()


async def test_the_oldest_changes_become_the_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "MOST_CHANGES", 2)
    site, history = await recorded()
    assert (history.dropped, history.revision, len(history.changes)) == (2, 3, 2)
    assert sorted(history.objects_at(3)) == ["pods/default/a", "pods/default/b"]
    assert history.objects_at(5) == {}
    await site.store.close()


async def test_writes_to_the_store_of_a_replay_have_no_effect_and_steps_have_their_revisions() -> None:
    site, history = await recorded()
    store = ReplayStore()
    store.show(history, 2)
    item = await store.get(A)
    assert item is not None and item.revision == 2
    assert (await store.create("/registry/leases/x", b"")).revision == 2
    assert (await store.update(A, b"", 2)).revision == 2
    await store.delete(A)
    with pytest.raises(KeyNotFound):
        await store.delete(B)
    assert (await store.list("/")).items == [item]
    for change in history.upto(5)[1:]:
        await store.step(change)
        assert await store.current_revision() == change.revision
    assert not (await store.list("/")).items
    for each in (store, site.store):
        await each.close()


class FakeReplay:
    """Only the position."""

    def __init__(self, history: History) -> None:
        self.history, self.revision = history, history.last

    async def go(self, revision: int) -> None:
        self.history.upto(revision)
        self.revision = revision


async def test_commands_step_through_a_history() -> None:
    site, history = await recorded()
    shown: list[str] = []
    commands = Commands(cast(Replay, FakeReplay(history)), shown.append)

    async def execute(line: str) -> list[str]:
        shown.clear()
        assert await commands.execute(line)
        return [each.split(" ", 1)[0] if each[0].isdigit() else each for each in shown]

    assert await execute("p") == ["4"]
    assert await execute("n") == ["5"]
    assert await execute("n") == ["no revision 6: the history has 1 to 5"]
    assert await execute("1") == ["1:"]
    assert await execute("2") == ["2"]
    listed = await execute("l")
    assert [line[:3] for line in listed] == ["> 2", "  3", "  4", "  5"]
    assert len(await execute("l system:node:n")) == 1
    assert (await execute("?"))[0].startswith("n: next change")
    assert not await commands.execute("q")
    await site.store.close()


async def test_a_long_list_of_changes_is_cut() -> None:
    begin = FakeClock().now()
    history = History("t", 0, begin, [], [Change(n, "ADDED", f"/registry/pods/{n}", begin) for n in range(1, 300)])
    shown: list[str] = []
    await Commands(cast(Replay, FakeReplay(history)), shown.append).execute("l pods")
    assert len(shown) == 201 and shown[-1] == "... and 99 more changes"
