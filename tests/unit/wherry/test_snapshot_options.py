"""Options of snapshots: their checks, the names of files, and the room that a snapshot needs."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from wherry import disk_space, snapshot_files, snapshot_names, up
from wherry import settings as saved
from wherry.errors import WherryError
from wherry.option_checks import complete
from wherry.settings import Settings
from wherry.snapshot_options import OFF, USUAL, folder_problem, machine_zone, secret_problem

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture
def credentials(tmp_path: Path) -> str:
    path = tmp_path / "key"
    path.touch(0o600)
    return str(path)


def test_sqlite_has_a_schedule_by_default_and_etcd_and_workers_have_none() -> None:
    assert Settings().snapshot_options.schedule == USUAL
    assert Settings(store="etcd").snapshot_options.schedule == Settings(role="worker").snapshot_options.schedule == OFF
    assert Settings(store="etcd", snapshot_schedule="@daily").snapshot_options.scheduled is not None
    assert Settings(snapshot_schedule="off").snapshot_options.scheduled is None
    assert Settings(prefix="/p").snapshot_options.folder == Path("/p/var/lib/wherry/snapshots")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"snapshot_schedule": "often"}, "--snapshot-schedule often: expected exactly 5 fields, found 1"),
        ({"snapshot_schedule": "0 0 31 2 *"}, "there is no such day; write five fields, @daily or off"),
        ({"snapshot_schedule": "@every 5s"}, "it is at least 60 seconds"),
        ({"snapshot_schedule": "61 * * * *"}, "--snapshot-schedule 61"),
        ({"snapshot_schedule": "x * * * *"}, "--snapshot-schedule x"),
        ({"snapshot_retention": 0}, "--snapshot-retention 0: it is at least 1"),
        ({"snapshot_folder": "here"}, "--snapshot-folder here: name it by its whole path"),
        ({"snapshot_folder": "/none/x"}, "--snapshot-folder /none/x: there is no such folder"),
        ({"snapshot_folder": "/tmp"}, "--snapshot-folder /tmp: other accounts may write it: `chmod go-w /tmp`"),
        ({"snapshot_s3_endpoint": "https://s3.example"}, "--snapshot-s3-bucket is missing"),
    ],
)
def test_options_that_cannot_work_are_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(WherryError) as found:
        complete(Settings(node_name="n1", **wrong), "192.0.2.10")  # type: ignore[arg-type]
    assert message in str(found.value)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"snapshot_s3_bucket": "a/b"}, "--snapshot-s3-bucket a/b: this is no name of a bucket"),
        ({"snapshot_s3_endpoint": "s3.example"}, "write https://HOST or https://HOST:PORT"),
        ({"snapshot_s3_endpoint": "https://s3.example/x"}, "write https://HOST or https://HOST:PORT"),
        ({"snapshot_s3_endpoint": "https://a:b@s3.example"}, "the access key belongs into the file"),
        ({"snapshot_s3_endpoint": "http://s3.example"}, "--snapshot-s3-insecure allows it"),
        ({"snapshot_s3_folder": "a/../b"}, "--snapshot-s3-folder a/../b: use letters"),
        ({"snapshot_s3_region": "eu west"}, "--snapshot-s3-region eu west"),
        ({"snapshot_s3_ca": "/none"}, "--snapshot-s3-ca /none: there is no such file"),
        ({"snapshot_s3_timeout": 0}, "--snapshot-s3-timeout 0"),
        (
            {"snapshot_s3_credentials": "/none"},
            "--snapshot-s3-credentials /none: there is no such file: write aws_access_key_id and aws_secret_access_key into it",
        ),
        (
            {"snapshot_s3_credentials": "", "prefix": "/none"},
            "--snapshot-s3-bucket backups: there is no file /none/etc/wherry/s3-credentials with the access key: write "
            "aws_access_key_id and aws_secret_access_key into it with mode 0600, or name another file with "
            "--snapshot-s3-credentials",
        ),
        ({"snapshot_s3_credentials": "/proc"}, "--snapshot-s3-credentials /proc: it is not a file"),
    ],
)
def test_options_of_a_bucket_are_checked(wrong: dict[str, object], message: str, credentials: str) -> None:
    right = Settings(node_name="n1", snapshot_s3_bucket="backups", snapshot_s3_credentials=credentials)
    complete(right, "192.0.2.10")
    with pytest.raises(WherryError) as found:
        complete(msgspec.structs.replace(right, **wrong), "192.0.2.10")  # type: ignore[arg-type]
    assert message in str(found.value)


def test_a_file_with_a_secret_is_for_root_and_the_control_planes_group(credentials: str) -> None:
    path = Path(credentials)
    other = os.getgid() + 1
    assert not secret_problem(path, -1)
    for mode in (0o604, 0o602, 0o660):
        path.chmod(mode)
        assert "other accounts may read it: `chmod 600" in secret_problem(path, -1)
    path.chmod(0o640)
    os.chown(path, -1, other)
    assert not secret_problem(path, other) and secret_problem(path, -1)


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """A folder in one of another account's."""
    (tmp_path / "alice" / "backup").mkdir(parents=True, mode=0o755)
    os.chown(tmp_path / "alice", 1234567, -1)
    return tmp_path / "alice" / "backup"


def test_a_folder_of_snapshots_is_of_root_or_the_control_planes_account_with_all_above_it(
    tmp_path: Path, other: Path
) -> None:
    (tmp_path / "own").mkdir()
    assert not folder_problem(tmp_path / "own", -1)
    os.chown(tmp_path / "own", 1234568, -1)
    assert folder_problem(tmp_path / "own", -1) == f"user 1234568 may write it, the owner of {tmp_path / 'own'}"
    assert not folder_problem(tmp_path / "own", 1234568)
    assert folder_problem(other, -1) == f"user 1234567 may write it, the owner of {other.parent}"
    (tmp_path / "link").symlink_to(other)
    assert folder_problem(tmp_path / "link", -1) == f"user 1234567 may write it, the owner of {other.parent}"
    (other / "link").symlink_to(tmp_path)
    assert "1234567" in folder_problem(other / "link", -1)
    os.chown(other.parent, 0, -1)
    other.parent.chmod(0o775)
    assert folder_problem(other, -1) == f"other accounts may write it: `chmod go-w {other.parent}`"


def test_files_of_the_bucket_are_of_root_with_all_above_them(credentials: str, other: Path) -> None:
    (other / "file").touch(0o600)
    right = Settings(node_name="n1", snapshot_s3_bucket="backups", snapshot_s3_credentials=credentials)
    for option in ("snapshot_s3_credentials", "snapshot_s3_ca"):
        wrong = msgspec.structs.replace(right, **{option: str(other / "file")})  # type: ignore[arg-type]
        with pytest.raises(WherryError, match=r"user 1234567 may write it, the owner of .*/alice"):
            complete(wrong, "192.0.2.10")
    os.chown(credentials, 1234567, -1)
    with pytest.raises(WherryError, match=r"user 1234567 may write it, the owner of .*/key"):
        complete(right, "192.0.2.10")


def test_a_change_of_the_schedule_restarts_nothing() -> None:
    before = Settings(node_name="n1")
    same = msgspec.structs.replace(before, snapshot_schedule="@daily", snapshot_s3_bucket="b", snapshot_retention=9)
    assert up._same(before, same) and not up._same(before, msgspec.structs.replace(before, snapshot_folder="/x"))


def test_settings_of_an_earlier_version_have_the_defaults(tmp_path: Path) -> None:
    Settings(prefix=str(tmp_path), node_name="n1").save()
    found = saved.load(str(tmp_path))
    assert found is not None and found.snapshot_retention == 5


def test_names_of_scheduled_snapshots_are_theirs_alone() -> None:
    name = snapshot_names.scheduled("node-1.example", NOW)
    assert name == "scheduled-node-1.example-20260102-030405.db" and snapshot_names.is_scheduled(name)
    assert snapshot_names.manual("", NOW) == "snapshot-20260102-030405.db"
    assert snapshot_names.manual("a", NOW) == "a-20260102-030405.db"
    for wrong in ("scheduled-n1", "a/b", ".a", "-", "x" * 101, "scheduled"):
        with pytest.raises(WherryError, match="--name"):
            snapshot_names.manual(wrong, NOW)
    of_a = [snapshot_names.scheduled("a", NOW + timedelta(days=day)) for day in range(4)]
    others = [
        "scheduled-a.db",
        snapshot_names.scheduled("a-20260101", NOW),
        "snapshot-20260102-030405.db",
        of_a[0] + "x",
    ]
    assert snapshot_names.surplus([*reversed(of_a), *others], "a", 2) == of_a[:2]
    assert snapshot_names.surplus(of_a, "a", 9) == []


def test_the_snapshot_that_was_just_taken_is_kept() -> None:
    """The clock was ahead when the others were taken."""
    names = [snapshot_names.scheduled("a", NOW + timedelta(days=day)) for day in range(4)]
    assert snapshot_names.surplus(names, "a", 2, newest=names[0]) == names[1:3]
    assert snapshot_names.surplus(names, "a", 4, newest=names[0]) == []


def test_a_snapshot_leaves_room_for_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Facts:
        f_bavail, f_frsize, f_blocks = 300, 1 << 20, 100_000

    monkeypatch.setattr(os, "statvfs", lambda folder: Facts)
    disk_space.require_room(tmp_path, 172 << 20)
    with pytest.raises(WherryError, match="has 300 MiB free, and a snapshot of 173 MiB must leave 128 MiB"):
        disk_space.require_room(tmp_path, 173 << 20)


def test_folders_of_killed_processes_are_removed_and_those_in_use_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_files, "UNLOCKED_SECONDS", -1.0)
    (tmp_path / ".snapshot-killed").mkdir()
    (tmp_path / ".snapshot-killed" / "half.db").touch()
    (tmp_path / ".snapshot-link").symlink_to(tmp_path)
    (tmp_path / "kept").touch()
    with snapshot_files.working_folder(tmp_path) as one, snapshot_files.working_folder(tmp_path) as two:
        assert one.is_dir() and two.is_dir() and one.stat().st_mode & 0o777 == 0o700
    assert {path.name for path in tmp_path.iterdir()} == {".snapshot-link", "kept"}
    monkeypatch.setattr(snapshot_files, "UNLOCKED_SECONDS", 60.0)
    (tmp_path / ".snapshot-new").mkdir()
    with snapshot_files.working_folder(tmp_path):
        assert (tmp_path / ".snapshot-new").is_dir()


def test_a_machine_without_a_time_zone_has_utc(tmp_path: Path) -> None:
    assert machine_zone(tmp_path / "none") is UTC
    assert machine_zone(Path("/usr/share/zoneinfo/Europe/Berlin")).utcoffset(NOW) == timedelta(hours=1)
