"""Snapshots in S3: saved, listed, restored, deleted and pruned by the commands, over HTTPS with checked signatures."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from aiohttp import web

from control.storage.sqlite import SqliteStore
from kube import process
from tests.contract.test_snapshots import content, put, wherry
from tests.support import s3
from tests.support.s3 import REGION, Bucket, s3_service
from wherry import s3 as client
from wherry import s3_requests, scheduled_snapshot, snapshot_schedule
from wherry.control_settings import control_config
from wherry.errors import WherryError
from wherry.s3 import S3
from wherry.settings import Settings
from wherry.snapshot_files import publish


@pytest.fixture
async def bucket(tmp_path: Path) -> AsyncIterator[Bucket]:
    async with s3_service(tmp_path) as made:
        yield made


@pytest.fixture
async def settings(bucket: Bucket, tmp_path: Path) -> Settings:
    """An installation whose snapshots are copied to the bucket, with a database of three keys."""
    found = Settings(
        prefix=str(tmp_path / "machine"),
        node_name="n1",
        node_ip="192.0.2.1",
        runtime_endpoint="unix:///x",
        snapshot_retention=2,
        snapshot_s3_bucket="backups",
        snapshot_s3_endpoint=f"https://127.0.0.1:{bucket.port}",
        snapshot_s3_region=REGION,
        snapshot_s3_folder="a cluster/(1)".replace(" ", "-"),
        snapshot_s3_credentials=str(tmp_path / "credentials"),
        snapshot_s3_ca=str(tmp_path / "s3-ca.crt"),
        snapshot_s3_timeout=20,
    )
    found.save()
    database = control_config(found).database
    database.parent.mkdir(parents=True)
    store = await SqliteStore.open(database)
    await put(store, 3)
    await store.close()
    return found


def read(path: str) -> bytes:
    return Path(path).read_bytes()


def remove(path: str) -> None:
    Path(path).unlink()


def mode(path: str) -> int:
    return Path(path).stat().st_mode & 0o777


async def test_a_snapshot_is_copied_listed_restored_from_the_bucket_and_deleted(
    settings: Settings, bucket: Bucket
) -> None:
    made = await wherry(settings, "snapshot", "save", "--name", "before-upgrade")
    path = Path(made.stdout.split(":")[0])
    url = f"s3://backups/a-cluster/(1)/{path.name}"
    assert f"copied to {url}" in made.stdout and path.name.startswith("before-upgrade-")
    ((key, (body, metadata)),) = bucket.objects.items()
    assert key == f"a-cluster/(1)/{path.name}" and body == read(str(path))
    assert metadata["x-amz-meta-keys"] == "3"
    rows = json.loads((await wherry(settings, "snapshot", "list", "-o", "json")).stdout)
    assert [(row["path"], row["keys"], row["size"]) for row in rows] == [(str(path), 3, len(body)), (url, 3, len(body))]
    assert rows[0]["revision"] == rows[1]["revision"] and rows[0]["taken"] == rows[1]["taken"]
    store = await SqliteStore.open(control_config(settings).database)
    before = await content(store)
    remove(str(path))
    for what in (path.name, url):
        await store.create("/registry/configmaps/default/later", b"x")
        await store.close()
        assert "restored" in (await wherry(settings, "snapshot", "restore", what, "--yes")).stdout
        store = await SqliteStore.open(control_config(settings).database)
        assert await content(store) == before
    await store.close()
    missing = await wherry(settings, "snapshot", "restore", "none.db", "--yes", code=1)
    assert "there is no snapshot none.db" in str(missing.exception)
    refused = await wherry(settings, "snapshot", "delete", path.name, "none.db", code=1)
    assert "there is no snapshot none.db" in str(refused.exception) and bucket.objects
    assert f"deleted {url}" in (await wherry(settings, "snapshot", "delete", path.name)).stdout
    assert not bucket.objects


async def test_retention_keeps_the_newest_of_this_machine_and_all_of_others(settings: Settings, bucket: Bucket) -> None:
    folder = settings.snapshot_options.folder
    folder.mkdir(parents=True)
    old = [f"scheduled-n1-2026010{day}-000000.db" for day in range(1, 5)]
    others = ["scheduled-n2-20260101-000000.db", "scheduled-n1-mine.db", "mine.db", "scheduled-n1-x-20260101-000000.db"]
    half = folder / f"{old[0]}.partial"
    half.write_bytes(b"x")
    os.utime(half, (0, 0))
    for name in (*old, *others):
        (folder / name).write_bytes(b"x")
        bucket.objects[f"{settings.snapshot_options.prefix}{name}"] = (b"x", {})
    bucket.objects["elsewhere/scheduled-n1-20260101-000000.db"] = (b"x", {})
    taken = await scheduled_snapshot.take(settings)
    assert not taken.problem and taken.url.endswith(Path(taken.path).name) and taken.keys == 3
    kept = {*others, old[-1], Path(taken.path).name}
    assert {path.name for path in folder.iterdir()} == kept
    assert {key.removeprefix(settings.snapshot_options.prefix) for key in bucket.objects} == kept | {
        "elsewhere/scheduled-n1-20260101-000000.db"
    }
    assert len(taken.deleted) == 6
    assert (await wherry(settings, "snapshot", "prune", "--keep", "0")).stdout.count("deleted") == 4
    assert {path.name for path in folder.iterdir()} == {*others}


async def test_a_bucket_that_fails_loses_no_snapshot_and_no_older_copy(
    settings: Settings, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_requests, "FIRST_PAUSE", 0.0)
    bucket.failures = [503, 503]
    assert "copied to" in (await wherry(settings, "snapshot", "save", "--name", "a")).stdout  # the third attempt
    bucket.failures = [503] * 3
    failed = await wherry(settings, "snapshot", "save", "--name", "b", code=1)
    assert "the snapshot is complete, and was not copied to S3: PUT https://127.0.0.1:" in str(failed.exception)
    assert "503 InternalError: refused: InternalError" in str(failed.exception)
    assert len(list(settings.snapshot_options.folder.glob("b-*.db"))) == 1
    bucket.objects[f"{settings.snapshot_options.prefix}scheduled-n1-20260101-000000.db"] = (b"x", {})
    bucket.failures = [503] * 3
    taken = await scheduled_snapshot.take(msgspec.structs.replace(settings, snapshot_retention=1))
    assert taken.path and not taken.url and "503" in taken.problem
    assert len(bucket.objects) == 2


async def test_a_bucket_that_fails_costs_no_older_snapshot(settings: Settings, bucket: Bucket) -> None:
    settings = msgspec.structs.replace(settings, snapshot_s3_timeout=5)
    folder = settings.snapshot_options.folder
    folder.mkdir(parents=True)
    old = "scheduled-n1-20260101-000000.db"
    (folder / old).write_bytes(b"x")
    bucket.failures = [403]
    taken = await scheduled_snapshot.take(settings)
    assert "403" in taken.problem
    names = {old, Path(taken.path).name}
    for _ in range(3):
        bucket.failures = [403]
        again = await scheduled_snapshot.take(settings, taken.path)
        assert "403" in again.problem and again.path == taken.path
        assert {path.name for path in folder.iterdir()} == names
    again = await scheduled_snapshot.take(settings, taken.path)
    assert not again.problem and again.url and again.keys == 3 and {path.name for path in folder.iterdir()} == names
    remove(taken.path)
    assert (await scheduled_snapshot.take(settings, taken.path)).path  # another one, for this one is gone


async def test_the_private_file_is_copied_whatever_has_its_name_in_the_folder(
    settings: Settings, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The account of the control plane owns the folder, and root copies."""
    (tmp_path / "other").write_bytes(b"a file that root alone may read")

    def replaced(file: Path, path: Path) -> None:
        publish(file, path)
        path.unlink()
        path.symlink_to(tmp_path / "other")

    monkeypatch.setattr("wherry.snapshot.publish", replaced)
    await wherry(settings, "snapshot", "save", "--name", "a")
    ((body, _),) = bucket.objects.values()
    assert body.startswith(b"SQLite format 3")
    (name,) = (path.name for path in settings.snapshot_options.folder.iterdir())
    shown = (await wherry(settings, "snapshot", "list", "-o", "wide")).stdout
    assert "it is not a regular file" in shown
    failed = await wherry(settings, "snapshot", "restore", name, "--yes", code=1)
    assert "is no snapshot: it is a link" in str(failed.exception)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<a>" * 20_000 + "</a>" * 20_000, "418 I'm a Teapot"),
        (f"<Error><Code>Full</Code><Message>{'m' * 3000}</Message></Error>", f"418 Full: {'m' * 494}"),
        (f"<Error><Code>Full</Code><Message>{'m' * 100_000}</Message></Error>", "418 I'm a Teapot"),
    ],
)
async def test_large_errors_of_a_service_are_cut(
    settings: Settings, bucket: Bucket, monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    monkeypatch.setattr(s3, "_error", lambda status, code: web.Response(status=status, text=text))
    bucket.failures = [418]
    taken = await scheduled_snapshot.take(settings)
    assert taken.path and taken.problem.endswith(message)


async def test_a_folder_of_more_objects_than_are_listed_is_reported(
    settings: Settings, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "MOST_OBJECTS", 5)
    for number in range(6):
        bucket.objects[f"{settings.snapshot_options.prefix}{number}.db"] = (b"x", {})
    failed = await wherry(settings, "snapshot", "list", code=1)
    assert "has more than 5 objects: use a folder that contains only snapshots" in str(failed.exception)


async def test_metadata_of_others_do_not_hide_snapshots(settings: Settings, bucket: Bucket) -> None:
    for number, taken in enumerate(("9" * 15, "1" * 400, "1" * 5000, "-1", "")):
        bucket.objects[f"{settings.snapshot_options.prefix}{number}.db"] = (b"x", {"x-amz-meta-taken": taken})
    rows = json.loads((await wherry(settings, "snapshot", "list", "-o", "json")).stdout)
    assert [row["taken"] for row in rows] == ["2026-01-02T03:04:05Z"] * 5


async def test_a_netrc_and_a_proxy_are_not_mixed_with_signed_requests(
    settings: Settings, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "netrc").write_text("default login a password b\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    assert (await wherry(settings, "snapshot", "list")).stdout.startswith("NAME")
    monkeypatch.setattr(s3_requests, "FIRST_PAUSE", 0.0)
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    failed = await wherry(settings, "snapshot", "list", code=1)
    assert "127.0.0.1:9" in str(failed.exception)


async def test_the_scheduled_process_has_limited_memory_and_ends_before_the_daemons(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It inherits the score of the control plane, which the kernel ends last."""
    source = (
        "import resource, sys; from pathlib import Path; from wherry import scheduled_snapshot, settings\n"
        "settings.load = lambda prefix: print(Path('/proc/self/oom_score_adj').read_text().strip(), "
        "resource.getrlimit(resource.RLIMIT_DATA)[0])\nscheduled_snapshot.main('/none')"
    )
    found = await process.run([sys.executable, "-c", source], env={"PYTHONPATH": ":".join(sys.path)})
    assert found.stdout.splitlines()[0] == f"500 {scheduled_snapshot.MEMORY}"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"snapshot_s3_region": "us-east-1"}, "AuthorizationHeaderMalformed"),
        ({"snapshot_s3_bucket": "others"}, "404 NoSuchBucket"),
        ({"snapshot_s3_ca": ""}, "--snapshot-s3-ca names the CA of the service"),
    ],
)
async def test_what_a_service_refuses_is_reported_without_the_secret(
    settings: Settings, changes: dict[str, str], message: str
) -> None:
    msgspec.structs.replace(settings, **changes).save()  # type: ignore[arg-type]
    failed = await wherry(settings, "snapshot", "list", code=1)
    assert message in str(failed.exception) and "secret" not in str(failed.exception)


async def test_a_certificate_that_is_not_verified_needs_the_option(settings: Settings) -> None:
    msgspec.structs.replace(settings, snapshot_s3_ca="", snapshot_s3_insecure=True).save()
    assert (await wherry(settings, "snapshot", "list")).stdout.startswith("NAME")


async def test_a_wrong_secret_is_refused_and_a_damaged_object_is_not_restored(
    settings: Settings, bucket: Bucket, tmp_path: Path
) -> None:
    await wherry(settings, "snapshot", "save", "--name", "a")
    ((key, (body, metadata)),) = bucket.objects.items()
    bucket.objects[key] = (body[:-1] + b"x", metadata)
    failed = await wherry(settings, "snapshot", "restore", f"s3://backups/{key}", "--yes", code=1)
    assert "is damaged: its SHA-256 is not the one that was stored with it" in str(failed.exception)
    credentials = tmp_path / "credentials"
    credentials.write_text(credentials.read_text().replace("signs", "other"))
    failed = await wherry(settings, "snapshot", "list", code=1)
    assert "403 SignatureDoesNotMatch" in str(failed.exception)
    credentials.write_text("aws_access_key_id = %x\n[default\nsecret")
    failed = await wherry(settings, "snapshot", "list", code=1)
    assert "write `aws_access_key_id = ID`" in str(failed.exception)
    credentials.chmod(0o644)
    failed = await wherry(settings, "snapshot", "list", code=1)
    assert "other accounts may read it: `chmod 600" in str(failed.exception)


async def test_the_scheduled_process_prints_its_result(settings: Settings, tmp_path: Path) -> None:
    taken = await snapshot_schedule.take(settings)
    assert not taken.problem and mode(taken.path) == 0o600 and taken.url and taken.revision > 0
    remove(taken.path)  # the next one has the same name if it is the same second
    (tmp_path / "credentials").unlink()
    taken = await snapshot_schedule.take(settings)
    assert read(taken.path) and "credentials cannot be read" in taken.problem
    remove(taken.path)
    remove(str(control_config(settings).database))
    taken = await snapshot_schedule.take(settings)
    assert not taken.path and "there is no database" in taken.problem


async def test_names_are_escaped(settings: Settings, bucket: Bucket, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"content")
    async with S3.open(settings.snapshot_options) as opened:
        for name in ("a b+c.db", "ü~*'()!.db", "100%.db"):
            with (tmp_path / "a").open("rb") as content:
                await opened.put(name, content, {})
            await opened.get(name, tmp_path / "copy", 7)
            assert (tmp_path / "copy").read_bytes() == b"content"
            (tmp_path / "copy").unlink()
        assert len(await opened.listed()) == 3
        with pytest.raises(WherryError, match="404 NoSuchKey"):
            await opened.get("none.db", tmp_path / "copy", 7)
        with pytest.raises(WherryError, match=r"100%\.db has more bytes than the 6 that the list says"):
            await opened.get("100%.db", tmp_path / "copy", 6)
    assert not (tmp_path / "copy").exists()
