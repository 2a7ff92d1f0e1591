"""`wherry snapshot` and `wherry store migrate` on real engines, in an installation whose daemons do not run."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner, Result

from control.storage.snapshot import REVISION_BUMP
from control.storage.sqlite import SqliteStore
from control.storage.store import Store
from tests.support.etcd import etcd, needs_etcd, open_etcd
from wherry import settings as saved
from wherry import storage
from wherry.control_settings import control_config
from wherry.errors import WherryError
from wherry.main import app
from wherry.settings import Settings

KEY = "/registry/configmaps/default/c"


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


async def put(store: Store, count: int) -> int:
    for index in range(count):
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
    refused = await wherry(installed, "snapshot", "restore", str(tmp_path / "none.db"), "--yes", code=1)
    assert "there is no snapshot" in str(refused.exception)


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
    assert "etcd: " in str(refused.exception)
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
