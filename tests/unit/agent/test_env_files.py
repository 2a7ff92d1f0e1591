"""Variables that a container reads from a file of a volume at its start (fileKeyRef)."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from agent import thread_slots, threads
from agent.pods import container_environment
from agent.podspec import env_files, environment
from agent.volumes import env_files as reader
from agent.volumes.mounted_volume import MountedVolume
from kube.api import core_v1
from tests.unit.agent.pods import pod

TEXT = """
# a comment
A='one'
\tB='two words' # after
C='line
 # not a comment
end'
A='later'
D='$(A) \\n "x"'
E=''
F= 'blank'
"""


def test_values_are_taken_as_they_are() -> None:
    found = env_files.parse("f", TEXT, "ABCDEFG")
    assert not found.error
    assert found.values == {
        "A": "one",
        "B": "two words",
        "C": "line\n # not a comment\nend",
        "D": '$(A) \\n "x"',
        "E": "",
        "F": "",
    }
    assert env_files.parse("f", "A='x'\r\n", "A").values == {"A": "x"}
    assert env_files.parse("f", "", "A").values == {}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("A", "invalid environment variable format at line 1: missing '='"),
        ("\n='x'", "invalid environment variable format at line 2: empty variable name"),
        ("A ='x'", "invalid environment variable format at line 1: whitespace before '=' is not allowed"),
        ("A=x", "invalid environment variable format at line 1: value must be enclosed in single quotes"),
        ("A='x'y", "invalid environment variable format at line 1: unexpected content after closing quote"),
        ("A='x\ny'z", "invalid environment variable format at line 2: unexpected content after closing quote"),
        ("\nA='x\n\n", "invalid environment variable format starting at line 2: unclosed single quote"),
        ("A='" + "x" * 65536, "error reading environment variable file: bufio.Scanner: token too long"),
    ],
)
def test_what_is_wrong_ends_the_file(text: str, error: str) -> None:
    assert env_files.parse("f", text, "AB").error == error
    found = env_files.parse("f", f"B='before'\n{text}\nC=wrong\n", "ABC")
    assert found.error and found.values.keys() <= {"A", "B"}


def value(key: str, files: Any, **more: Any) -> str | None:
    reference = {"volumeName": "v", "path": "f", "key": key, **more}
    given = pod({"name": "c", "env": [{"name": "X", "valueFrom": {"fileKeyRef": reference}}]})

    class Nothing:
        def config_map(self, namespace: str, name: str) -> None: ...
        def secret(self, namespace: str, name: str) -> None: ...

    around = environment.EnvironmentSources(Nothing(), {}, files=files)
    return environment.environment(given, given.spec.containers[0], around).get("X")


def test_a_variable_has_the_value_of_the_file_or_is_left_out_or_is_missing() -> None:
    files = {("v", "f"): env_files.parse("/volume/f", "A='one'\nE=''\n", "AE")}
    broken = {("v", "f"): env_files.parse("/volume/f", "A='one'\nnothing\nB='two'\n", "AB")}
    assert value("A", files) == value("A", broken) == "one"
    assert value("E", files, optional=True) is value("none", files, optional=True) is None
    with pytest.raises(environment.ContainerConfigError, match='variable key "E" not found in file "/volume/f"'):
        value("E", files)
    with pytest.raises(environment.ContainerConfigError, match="couldn't parse env file"):
        value("B", broken, optional=True)


def read_one(volume: Path, path: str, *keys: str) -> env_files.EnvFile:
    return reader.read({"v": volume}, {("v", path): keys or ("A",)})["v", path]


def test_links_are_resolved_within_the_volume(tmp_path: Path) -> None:
    volume, outside = tmp_path / "volume", tmp_path / "outside"
    (volume / "etc").mkdir(parents=True)
    for folder, text in ((outside, "A='outside'"), (volume / "etc", "A='inside'")):
        folder.mkdir(exist_ok=True)
        (folder / "env").write_text(text)
    (volume / "absolute").symlink_to("/etc/env")
    (volume / "up").symlink_to("../../../etc/env")
    (volume / "folder").symlink_to("etc/./")
    (volume / "loop").symlink_to("loop")
    (volume / "away").symlink_to(outside / "env")
    for path in ("etc/env", "absolute", "up", "folder/env", "/etc/../etc/env"):
        assert read_one(volume, path).values == {"A": "inside"}, path
    for path in ("loop", "away", "none", "etc"):
        found = read_one(volume, path)
        assert found.values == {} and found.error.startswith("failed to open environment variable file "), path


def test_what_is_no_file_or_too_large_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "large").open("wb") as file:
        file.truncate(reader.LARGEST + 1)
    assert "not a regular file" in read_one(tmp_path, "pipe").error
    assert (
        "1048577 bytes, 1048576 are allowed for all files of a container, of which 1048576 are left"
        in read_one(tmp_path, "large").error
    )


def test_a_file_is_read_up_to_the_last_wanted_variable_and_no_others_are_kept() -> None:
    found = env_files.parse("f", "A='1'\nB='2'\nC='3'\nwrong", ["A", "C"])
    assert found == env_files.EnvFile("f", {"A": "1", "C": "3"})
    assert env_files.parse("f", "A='1'\nwrong", ["A", "B"]).values == {"A": "1"}


def test_paths_that_differ_in_dots_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "f").write_text("A='1'\nB='2'\n" + "#" * (reader.LARGEST // 2))
    paths = {("v", f"{'./' * i}f"): ("AB"[i % 2],) for i in range(100)}
    found = reader.read({"v": tmp_path}, paths)
    assert found.keys() == paths.keys()
    assert {id(file) for file in found.values()} == {id(found["v", "f"])}
    assert found["v", "f"].values == {"A": "1", "B": "2"}


def test_the_files_of_a_container_are_limited_in_number_and_size(tmp_path: Path) -> None:
    for i in range(4):
        (tmp_path / f"f{i}").write_text("A='1'\n".ljust(reader.LARGEST // 2, "#"))
    found = reader.read({"v": tmp_path}, {("v", f"f{i}"): "A" for i in range(4)})
    assert [bool(file.error) for file in found.values()] == [False, False, True, True]
    with pytest.raises(environment.ContainerConfigError, match="name 17 files, 16 are allowed"):
        reader.read({"v": tmp_path}, {("v", f"f{i}"): "A" for i in range(17)})


def test_long_paths_and_links_are_refused_before_they_are_walked(tmp_path: Path) -> None:
    assert "the path is too long" in read_one(tmp_path, "a/" * 500_000).error
    assert "the path has more than 256 parts" in read_one(tmp_path, "a/" * 300).error
    (tmp_path / "l").symlink_to("a/" * 2000 + "l")
    assert "the path has more than 256 parts" in read_one(tmp_path, "l").error


async def test_few_files_are_read_at_a_time_round_robin_over_namespaces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running, most, had_turn = 0, 0, list[bool]()
    lock, full = threading.Lock(), threading.Event()
    monkeypatch.setattr(thread_slots, "BLOCKED", 60.0)

    def read(volumes: Any, wanted: Any) -> Any:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
            if running == thread_slots.NAMESPACE + 1:
                full.set()
        had_turn.append(
            full.wait(20)
        )  # the first of a namespace hold their slots until the other one's file is read, too
        with lock:
            running -= 1
        return {}

    monkeypatch.setattr(reader, "read", read)
    many = [read_files(tmp_path, f"many {number}", namespace="many") for number in range(8)]
    await asyncio.gather(*many, read_files(tmp_path, "other"))
    assert most == thread_slots.NAMESPACE + 1
    assert len(had_turn) == 9 and all(had_turn)


async def test_a_file_that_hangs_or_waits_for_its_namespace_delays_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread_slots, "BLOCKED", 60.0)
    hung = threading.Event()

    def read(volumes: Any, wanted: Any) -> Any:
        if ("v", "hangs") in wanted:
            hung.wait(60)
        return {}

    monkeypatch.setattr(reader, "read", read)
    busy = [
        asyncio.create_task(threads.call(f"u{number}", hung.wait, 60, owner=threads.Owner(f"u{number}", "busy")))
        for number in range(thread_slots.NAMESPACE)
    ]
    waiting = [asyncio.create_task(read_files(tmp_path, "waits", namespace="busy"))]
    waiting.append(asyncio.create_task(read_files(tmp_path, "hangs")))
    try:
        async with asyncio.timeout(1):
            assert await read_files(tmp_path, "other") == {}
        assert not any(task.done() for task in waiting)
    finally:
        hung.set()
    await asyncio.gather(*busy, *waiting)


async def test_each_file_is_read_with_a_slot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses = list[None]()
    monkeypatch.setattr(thread_slots, "pause", lambda: pauses.append(None))
    monkeypatch.setattr(reader, "parse", lambda path, *_: env_files.EnvFile(path, {}, str(len(pauses))))
    for name in "ab":
        (tmp_path / name).write_text("A='x'")
    found = reader.read({"v": tmp_path}, {("v", "a"): {"A"}, ("v", "b"): {"A"}})
    assert [file.error for file in found.values()] == ["1", "2"]


async def test_unreadable_files_of_a_container_are_one_short_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await read_files(tmp_path, *(f"{i}{'x' * 2000}" for i in range(5)))
    (record,) = caplog.records
    assert record.getMessage().endswith("... (5 files)")
    assert len(record.getMessage()) < 600


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        (core_v1.Volume(name="v", empty_dir=core_v1.EmptyDirVolumeSource()), True),
        (core_v1.Volume(name="v", host_path=core_v1.HostPathVolumeSource(path="/")), False),
        (core_v1.Volume(name="v", image=core_v1.ImageVolumeSource(reference="a")), False),
        (core_v1.Volume(name="v", secret=core_v1.SecretVolumeSource(secret_name="a")), False),
        (core_v1.Volume(name="w", empty_dir=core_v1.EmptyDirVolumeSource()), False),
    ],
    ids=["emptyDir", "hostPath", "image", "secret", "another volume's name"],
)
async def test_only_files_of_empty_dirs_are_read_whatever_the_api_server_allows(
    tmp_path: Path, kind: core_v1.Volume, found: bool
) -> None:
    (tmp_path / "f").write_text("A='x'\n")
    assert bool(await read_files(tmp_path, "f", kind=kind)) == found


async def read_files(volume: Path, *paths: str, namespace: str = "", kind: core_v1.Volume | None = None) -> Any:
    """Read the files of a container; its pod, and its namespace unless that is given, have the first path's name."""
    references = [{"fileKeyRef": {"volumeName": "v", "path": path, "key": "A"}} for path in paths]
    given = pod({"name": "c", "env": [{"name": "X", "valueFrom": reference} for reference in references]})
    given.metadata.uid = paths[0][:10]
    given.metadata.namespace = namespace or given.metadata.uid
    given.spec.volumes = [kind or core_v1.Volume(name="v", empty_dir=core_v1.EmptyDirVolumeSource())]
    mounted = {"v": MountedVolume(volume)}
    return await container_environment._read_files(given, given.spec.containers[0], mounted)
