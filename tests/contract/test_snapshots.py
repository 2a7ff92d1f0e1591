"""`wherry snapshot` and `wherry store migrate` on real engines, in an installation whose daemons do not run."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import re
import shutil
import sqlite3
import struct
import sys
from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner, Result

from control.storage.snapshot import REVISION_BUMP
from control.storage.sqlite import SqliteStore
from control.storage.store import Store
from tests.support.etcd import etcd, needs_etcd, open_etcd
from wherry import settings as saved
from wherry import snapshot, snapshot_files, storage
from wherry.control_settings import control_config
from wherry.errors import WherryError
from wherry.main import app
from wherry.settings import Settings

KEY = "/registry/configmaps/default/c"
ROOT = str(Path(__file__).resolve().parents[2])


@pytest.fixture
def installed(tmp_path: Path) -> Settings:
    """An installation as `wherry up` leaves it, without anything running."""
    settings = Settings(
        prefix=str(tmp_path / "machine"), node_name="n", node_ip="192.0.2.1", runtime_endpoint="unix:///x"
    )
    settings.save()
    control_config(settings).data_dir.mkdir(parents=True)
    return settings


async def wherry(settings: Settings, *arguments: str, code: int = 0) -> Result:
    argv = [*arguments, "--prefix", settings.prefix]
    done = await asyncio.to_thread(CliRunner().invoke, app, argv)
    assert done.exit_code == code, (done.output, done.exception)
    return done


async def put(store: Store, number: int) -> int:
    for index in range(number):
        await store.create(f"{KEY}{index}", str(index).encode())
    return await store.current_revision()


async def content(store: Store) -> dict[str, bytes]:
    return {item.key: item.value for item in (await store.list("/registry/")).items}


async def test_a_snapshot_is_saved_while_the_server_writes_and_restored_when_it_does_not(installed: Settings) -> None:
    database = control_config(installed).database
    store = await SqliteStore.open(database)
    seen = await put(store, 10)
    made = (await wherry(installed, "snapshot", "save")).stdout
    assert re.search(rf"\.db: 10 keys at revision {seen},", made)
    await store.create(KEY, b"later")
    path = made.split(":")[0]
    refused = await wherry(installed, "snapshot", "restore", path, "--yes", code=1)
    assert "in use by another process" in str(refused.exception)
    await store.close()
    await wherry(installed, "snapshot", "restore", path, "--yes")
    store = await SqliteStore.open(database)
    assert len(await content(store)) == 10
    assert await store.current_revision() > seen + REVISION_BUMP
    await store.close()
    assert path in (await wherry(installed, "snapshot", "list")).stdout


async def test_a_file_that_is_no_snapshot_is_named_as_such(installed: Settings, tmp_path: Path) -> None:
    (tmp_path / "x.db").write_bytes(b"not a database at all, " * 100)
    refused = await wherry(installed, "snapshot", "restore", str(tmp_path / "x.db"), "--yes", code=1)
    assert "is no snapshot" in str(refused.exception)
    for missing in (str(tmp_path / "none.db"), "none.db"):
        refused = await wherry(installed, "snapshot", "restore", missing, code=1)  # without confirmation
        assert f"there is no snapshot {missing}" in str(refused.exception) and "Replace all" not in refused.output


def hot_journal(database: Path) -> bytes:
    """Return a rollback journal that makes any database of SQLite's the given one, when it is opened next to it."""
    content = database.read_bytes()
    size = struct.unpack(">H", content[16:18])[0]
    pages = [content[at : at + size] for at in range(0, len(content), size)]
    head = bytes.fromhex("d9d505f920a163d7") + struct.pack(">IIIII", len(pages), 0, len(pages), 512, size)
    checksums = [sum(page[at] for at in range(size - 200, 0, -200)) for page in pages]
    found = zip(count(1), pages, checksums, strict=False)
    return head.ljust(512, b"\0") + b"".join(struct.pack(">I", n) + page + struct.pack(">I", c) for n, page, c in found)


async def test_a_journal_beside_a_snapshot_is_not_part_of_it(
    installed: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another account may write the folder of a snapshot that it cannot read."""
    database, folder = control_config(installed).database, tmp_path / "shared"
    folder.mkdir(mode=0o777)
    store = await SqliteStore.open(database)
    await put(store, 3)
    before = await content(store)
    await wherry(installed, "snapshot", "save", str(folder / "monday.db"))
    await store.delete(f"{KEY}1")
    await store.close()
    other = await SqliteStore.open(tmp_path / "other.db")
    await other.create("/registry/clusterrolebindings/evil", b"evil")
    await other.snapshot(tmp_path / "evil.db")
    await other.close()
    journal = hot_journal(tmp_path / "evil.db")
    shutil.copy(folder / "monday.db", tmp_path / "victim.db")
    (tmp_path / "victim.db-journal").write_bytes(journal)
    with contextlib.closing(sqlite3.connect(tmp_path / "victim.db")) as connection:
        assert connection.execute("SELECT key FROM history").fetchall() == [("/registry/clusterrolebindings/evil",)]

    @contextlib.asynccontextmanager
    async def stopped(settings: Settings) -> AsyncIterator[None]:
        (folder / "monday.db-journal").write_bytes(journal)
        yield

    monkeypatch.setattr(snapshot, "stopped", stopped)
    await wherry(installed, "snapshot", "restore", str(folder / "monday.db"), "--yes")
    store = await SqliteStore.open(database)
    assert await content(store) == before
    await store.close()


OPENED: list[str] = []


def note_databases(event: str, arguments: tuple[object, ...]) -> None:
    if event == "sqlite3.connect":
        OPENED.append(str(arguments[0]))


sys.addaudithook(note_databases)


@needs_etcd
@pytest.mark.parametrize("engine", ["sqlite", "etcd"])
async def test_databases_are_opened_in_folders_of_the_cluster_alone(
    engine: str, installed: Settings, tmp_path: Path
) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    (folder / "a.db.partial-wal").write_bytes(b"")
    async with contextlib.AsyncExitStack() as stack:
        if engine == "etcd":
            cluster = await stack.enter_async_context(etcd(tmp_path / "etcd"))
            installed = msgspec.structs.replace(installed, store="etcd", etcd_servers=cluster.servers[0])
            installed.save()
            store: Store = await open_etcd(cluster)
        else:
            store = await SqliteStore.open(control_config(installed).database)
        await put(store, 3)
        OPENED.clear()
        await wherry(installed, "snapshot", "save", str(folder / "a.db"))
        await store.close()
        assert sorted(path.name for path in folder.iterdir()) == ["a.db", "a.db.partial-wal"]
        assert (folder / "a.db").stat().st_mode & 0o777 == 0o600
        assert not (folder / "a.db.partial-wal").read_bytes()
        await wherry(installed, "snapshot", "restore", str(folder / "a.db"), "--yes")
    paths = {path.removeprefix("file:") for path in OPENED} - {":memory:"}
    assert paths and all(path.startswith(installed.prefix) for path in paths)
    assert list((Path(installed.prefix) / "var/lib/wherry").glob(".snapshot-*")) == []


async def test_a_snapshot_is_saved_on_another_filesystem_and_never_over_a_file(
    installed: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    await (await SqliteStore.open(control_config(installed).database)).close()

    def no_link(*arguments: object, **options: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", no_link)
    await wherry(installed, "snapshot", "save", str(tmp_path / "a.db"))
    assert (tmp_path / "a.db").stat().st_mode & 0o777 == 0o600 and not (tmp_path / "a.db.partial").exists()
    refused = await wherry(installed, "snapshot", "save", str(tmp_path / "a.db"), code=1)
    assert "a.db exists" in str(refused.exception)
    (tmp_path / "b.db").symlink_to(tmp_path / "elsewhere")
    refused = await wherry(installed, "snapshot", "save", str(tmp_path / "b.db"), code=1)
    assert "b.db exists" in str(refused.exception)
    (tmp_path / "c.db.partial").symlink_to(tmp_path / "elsewhere")
    refused = await wherry(installed, "snapshot", "save", str(tmp_path / "c.db"), code=1)
    assert "c.db.partial exists: remove it" in str(refused.exception)
    refused = await wherry(installed, "snapshot", "save", str(tmp_path / "none" / "d.db"), code=1)
    assert "d.db cannot be written: there is no folder" in str(refused.exception)
    assert not (tmp_path / "elsewhere").exists() and not (tmp_path / "c.db").exists()


async def test_a_snapshot_that_is_killed_leaves_no_half_file_and_its_working_folder_is_removed(
    installed: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await SqliteStore.open(control_config(installed).database)
    for index in range(40):
        await store.create(f"{KEY}{index}", os.urandom(1 << 20))
    await store.close()
    state, folder = installed.layout.state, installed.snapshot_options.folder
    argv = [sys.executable, "-P", "-m", "wherry.scheduled_snapshot", installed.prefix]
    environment = {**os.environ, "PYTHONPATH": ROOT}
    process = await asyncio.create_subprocess_exec(*argv, env=environment, stdout=asyncio.subprocess.DEVNULL)
    async with asyncio.timeout(60):
        while not list(state.glob(".snapshot-*/*.partial")) and process.returncode is None:
            await asyncio.sleep(0.001)
    process.kill()
    await process.wait()
    assert [path.name for path in folder.iterdir()] == [] and list(state.glob(".snapshot-*"))
    await wherry(installed, "snapshot", "save")
    assert list(state.glob(".snapshot-*"))  # it is too young to be one that nobody uses
    monkeypatch.setattr(snapshot_files, "UNLOCKED_SECONDS", -1.0)
    await wherry(installed, "snapshot", "save", "--name", "other")
    assert not list(state.glob(".snapshot-*")) and len(list(folder.iterdir())) == 2


async def test_a_damaged_file_is_shown_and_hides_no_other(installed: Settings) -> None:
    store = await SqliteStore.open(control_config(installed).database)
    await put(store, 2)
    await store.close()
    await wherry(installed, "snapshot", "save", "--name", "good")
    (installed.snapshot_options.folder / "bad.db").write_bytes(b"not a database at all, " * 100)
    shown = (await wherry(installed, "snapshot", "list", "-o", "wide")).stdout
    assert re.search(r"^bad\.db +\S+ +damaged +- .*is no snapshot, or a damaged one", shown, re.M)
    assert re.search(r"^good-\S+\.db +\S+ +2 +2 ", shown, re.M)
    refused = await wherry(installed, "snapshot", "restore", "none.db", "--yes", code=1)
    assert "there is no snapshot none.db in " in str(refused.exception)
    for wrong in ("../x.db", ".hidden.db", "x"):
        refused = await wherry(installed, "snapshot", "delete", wrong, code=1)
        assert "is no name of a snapshot" in str(refused.exception)
    assert "deleted /" in (await wherry(installed, "snapshot", "delete", "bad.db")).stdout


@needs_etcd
async def test_one_command_moves_the_cluster_from_sqlite_to_etcd(installed: Settings, tmp_path: Path) -> None:
    store = await SqliteStore.open(control_config(installed).database)
    seen = await put(store, 25)
    before = await content(store)
    await store.close()
    async with etcd(tmp_path / "etcd", tls=True) as cluster:
        tls = ["--etcd-cafile", str(cluster.ca_file), "--etcd-certfile", str(cluster.cert_file)]
        argv = ["store", "migrate", "--etcd-servers", ",".join(cluster.servers), *tls]
        refused = await wherry(installed, *argv, code=1)
        assert "--etcd-certfile and --etcd-keyfile go together" in str(refused.exception)
        argv += ["--etcd-keyfile", str(cluster.key_file)]
        assert "moved 25 keys" in (await wherry(installed, *argv)).stdout
        now = saved.load(installed.prefix)
        assert now is not None and now.store == "etcd"
        assert control_config(now).etcd_servers == tuple(cluster.servers)
        assert not control_config(now).database.exists()
        moved = await open_etcd(cluster)
        assert await content(moved) == before
        assert await moved.current_revision() > seen + REVISION_BUMP
        refused = await wherry(installed, *argv, code=1)
        assert "not stored in SQLite" in str(refused.exception)
        # From here on snapshots are etcd's.
        path = (await wherry(installed, "snapshot", "save")).stdout.split(":")[0]
        await moved.delete(f"{KEY}3")
        await wherry(installed, "snapshot", "restore", path, "--yes")
        assert await content(moved) == before
        await moved.close()


async def test_an_unreachable_etcd_is_reported_before_anything_is_started(installed: Settings) -> None:
    wanted = msgspec.structs.replace(installed, store="etcd", etcd_servers="http://127.0.0.1:9")
    with pytest.raises(WherryError, match=r"etcd: .*127\.0\.0\.1:9"):
        await storage.reach(wanted)
    await (await SqliteStore.open(control_config(installed).database)).close()
    refused = await wherry(installed, "store", "migrate", "--etcd-servers", "http://127.0.0.1:9", code=1)
    problem = "etcd: 127.0.0.1:9: connection refused: check that etcd runs, and --etcd-servers http://127.0.0.1:9"
    assert str(refused.exception) == problem
    assert saved.load(installed.prefix) == installed


@needs_etcd
async def test_an_etcd_that_holds_a_cluster_is_not_moved_into(installed: Settings, tmp_path: Path) -> None:
    database = control_config(installed).database
    store = await SqliteStore.open(database)
    await put(store, 2)
    await store.close()
    async with etcd(tmp_path / "etcd") as cluster:
        other = await open_etcd(cluster)
        await other.create(KEY, b"another cluster's")
        refused = await wherry(installed, "store", "migrate", "--etcd-servers", cluster.servers[0], code=1)
        assert "already holds 1 keys" in str(refused.exception)
        assert len(await content(other)) == 1
        await other.close()
    assert saved.load(installed.prefix) == installed and database.exists()
